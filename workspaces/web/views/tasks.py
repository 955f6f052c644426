"""A task's page and what an operator does to the task. Rollback and fork: checkpoints.py; the trace: traces.py."""

from __future__ import annotations

from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from workspaces.actions import tasks as actions
from workspaces.actions.errors import Refused
from workspaces.actions.sleep import want_awake
from workspaces.domain.states import PauseMode, TaskStatus
from workspaces.models import Task
from workspaces.queries.access import may_operate
from workspaces.queries.escalations import cards_of_tasks
from workspaces.queries.trace import KindGroup, TraceFilter, running_now
from workspaces.queries.usage import usage_by_step

from ..access import signed_in, task_or_404, task_to_steer, user_of
from ..charts import usage_figure
from ..errors import done, is_htmx, steering
from ..task_parts import BUSY, PANELS, head_context, panel_context, trace_context
from ..trace_rows import number_or_none
from .files import tree_context


@signed_in
@require_safe
def show(request: HttpRequest, task_id: int) -> HttpResponse:
    task = task_or_404(request, task_id)
    operate = may_operate(request.user, task.workspace)
    wanted = TraceFilter.from_words(request.GET.get("group"), request.GET.get("branch"))
    before = number_or_none(request.GET.get("before"))
    context = head_context(task, operate, user_of(request)) | trace_context(task, wanted, before, operate)
    panel = request.GET.get("panel", "context")
    context |= {
        "cards": [card for card in cards_of_tasks(request.user, [task.pk]) if card.is_open],
        "running": running_now(task),
        "busy": task.status in BUSY,
        "frozen": task.status == TaskStatus.PAUSED.value,
        "before": before,
        "groups": list(KindGroup),
        "all_branches": list(task.branches.order_by("number").values_list("number", flat=True)),
        **_panel(request, task, panel if panel in PANELS else "context", operate),
    }
    return render(request, "tasks/show.html", context)


@signed_in
@require_safe
def header(request: HttpRequest, task_id: int) -> HttpResponse:
    task = task_or_404(request, task_id)
    head = head_context(task, may_operate(request.user, task.workspace), user_of(request))
    return render(request, "tasks/_header.html", head)


@signed_in
@require_safe
def panel(request: HttpRequest, task_id: int, panel: str) -> HttpResponse:
    task = task_or_404(request, task_id)
    if panel not in PANELS:
        raise Http404
    context = _panel(request, task, panel, may_operate(request.user, task.workspace))
    return render(request, "tasks/_panel.html", context)


def _panel(request: HttpRequest, task: Task, panel: str, operate: bool) -> dict[str, object]:
    context = panel_context(task, panel, operate)
    if panel == "files":
        if operate and not request.GET.get("at"):
            # whoever works with the files as they are now will want the sandbox next; they are read meanwhile
            context["workspace_state"] = want_awake(task.workspace_id)
        context |= tree_context(task, request.GET.get("at"), request.GET.get("path"))
    return context


@signed_in
@require_safe
def usage(request: HttpRequest, task_id: int) -> HttpResponse:
    """Tokens and cost of each step as a Plotly figure."""
    return JsonResponse(usage_figure(usage_by_step(task_or_404(request, task_id))))


def _steered(request: HttpRequest, task: Task, text: str) -> HttpResponse:
    """The fresh header in place (htmx), or the page again with a message."""
    if not is_htmx(request):
        return done(request, text, back=f"/tasks/{task.pk}/")
    task = task_or_404(request, task.pk)
    head = head_context(task, may_operate(request.user, task.workspace), user_of(request))
    return render(request, "tasks/_header.html", head)


@steering
def pause(request: HttpRequest, task_id: int) -> HttpResponse:
    task = task_to_steer(request, task_id)
    mode = PauseMode.NOW if request.POST.get("mode") == PauseMode.NOW.value else PauseMode.BOUNDARY
    reason = request.POST.get("reason", "").strip() or "paused from the task page"
    actions.pause_task(task.pk, mode=mode, reason=reason, actor=user_of(request))
    return _steered(request, task, "The task was asked to pause.")


@steering
def resume(request: HttpRequest, task_id: int) -> HttpResponse:
    task = task_to_steer(request, task_id)
    actions.resume_task(task.pk, reason=request.POST.get("reason", ""), actor=user_of(request))
    return _steered(request, task, "The task goes on.")


@steering
def cancel(request: HttpRequest, task_id: int) -> HttpResponse:
    task = task_to_steer(request, task_id)
    reason = request.POST.get("reason", "").strip()
    if not reason:
        raise Refused("Say why you cancel: the reason is kept in the audit log.")
    actions.cancel_task(task.pk, reason=reason, actor=user_of(request))
    return _steered(request, task, "The task was asked to cancel.")


@steering
def message(request: HttpRequest, task_id: int) -> HttpResponse:
    task = task_to_steer(request, task_id)
    actions.send_message(task.pk, text=request.POST.get("text", ""), actor=user_of(request))
    return _steered(request, task, "The agent reads your message at its next step.")
