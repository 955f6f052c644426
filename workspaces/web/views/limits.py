"""A task's limits, changed while it is under way: a dialog that says what holds and who says so, and the deed."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from workspaces.actions.errors import Refused
from workspaces.actions.retune import retune_task
from workspaces.engine.probe import probe_model
from workspaces.models import Task
from workspaces.queries.access import may_operate
from workspaces.queries.budget_access import may_change_budget
from workspaces.queries.database import database_now
from workspaces.queries.task_budgets import own_budget
from workspaces.queries.task_limits import limits_with_history, models_beside
from workspaces.queries.task_page import step_number_of

from ..access import signed_in, task_or_404, task_to_steer, user_of
from ..errors import is_htmx
from ..limits_form import LimitsForm
from ..task_parts import head_context


@require_http_methods(["GET", "HEAD", "POST"])
@signed_in
def change(request: HttpRequest, task_id: int) -> HttpResponse:
    task = task_to_steer(request, task_id)
    if request.method != "POST":
        return _dialog(request, task, LimitsForm(task))
    form = LimitsForm(task, request.POST)
    if not form.is_valid() or not _model_is_there(task, form):
        return _dialog(request, task, form, refused=True)
    try:
        retune_task(
            task.pk,
            form.changes,
            reason=form.cleaned_data["reason"],
            seen=form.seen_values,
            actor=user_of(request),
        )
    except Refused as refusal:
        form.add_error(None, str(refusal))
        return _dialog(request, task_or_404(request, task_id), form, refused=True)
    if not is_htmx(request):
        return redirect("task", task.pk)
    task = task_or_404(request, task_id)
    head = head_context(task, may_operate(request.user, task.workspace), user_of(request))
    return render(request, "tasks/_header.html", head)


def _model_is_there(task: Task, form: LimitsForm) -> bool:
    """Another model is asked one tiny question first. Where none answers just now, a person may take it unchecked."""
    model = form.changes.get("model")
    if not model:
        return True
    found = probe_model(task.profile_version, model)
    if found.works or (found.may_pass and form.cleaned_data["unchecked"]):
        return True
    form.may_be_unchecked = found.may_pass  # type: ignore[attr-defined]
    form.add_error("model", f"{found.words} {found.detail}".strip())
    return False


def _dialog(request: HttpRequest, task: Task, form: LimitsForm, *, refused: bool = False) -> HttpResponse:
    """The dialog alone for htmx, else on a page of its own. A refused one takes the place of what was sent."""
    budget = own_budget(task)
    context = {
        "task": task,
        "form": form,
        "limits": limits_with_history(task),
        "models": models_beside(task, user_of(request)),
        "own_steps": task.max_steps != task.profile_version.max_steps,
        "steps_taken": step_number_of(task),
        "budget": budget,
        "may_set_budget": budget is None or may_change_budget(user_of(request), budget),
        "now": database_now(),
    }
    status = 422 if refused else 200
    if not is_htmx(request):
        return render(request, "tasks/limits.html", context | {"dialog": True}, status=status)
    response = render(request, "tasks/_limits.html", context, status=status)
    if refused:
        response["HX-Retarget"] = "#dialog-slot"
        response["HX-Reswap"] = "innerHTML"
    return response
