"""Budgets: who is limited by what, what is left, who waits; set, changed and ended with a reason."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_safe

from workspaces.actions.budget_settings import change_budget, create_budget, end_budget
from workspaces.actions.errors import Refused
from workspaces.domain.states import BudgetPeriod
from workspaces.models import Budget, Task
from workspaces.queries import budget_page as one
from workspaces.queries import budget_pages as pages
from workspaces.queries.access import may_operate, visible_tasks
from workspaces.queries.alert_page import alerts_of
from workspaces.queries.budget_access import may_change_budget, visible_budgets
from workspaces.queries.task_budgets import enough_for
from workspaces.web.access import is_htmx, signed_in, task_or_404, user_of
from workspaces.web.budget_charts import periods_figure
from workspaces.web.budget_form import AmountsForm, NewBudgetForm, offered
from workspaces.web.errors import done, steering
from workspaces.web.task_parts import head_context
from workspaces.web.trace_rows import number_or_none
from workspaces.web.views.latches import reason_of

TASKS_NAMED = 12


@require_safe
@signed_in
def index(request: HttpRequest) -> HttpResponse:
    user = user_of(request)
    context = {"rows": pages.standing(user), "ended": pages.ended(user)}
    return render(request, "budgets/index.html", context)


@require_safe
@signed_in
def show(request: HttpRequest, budget_id: int) -> HttpResponse:
    user = user_of(request)
    budget = _budget_or_404(request, budget_id)
    (now,) = pages.shown(user, [budget])
    waiting = list(visible_tasks(user).filter(pk__in=now.waiting).order_by("waiting_since")[:TASKS_NAMED])
    since = max(now.now - one.DRAWN_LATELY, now.starts_at or budget.created_at)
    context = {
        "budget": budget,
        "noun_alerts": alerts_of(user, budget=budget.pk),
        "shown": now,
        "waiting": waiting,
        "more_waiting": now.waits - len(waiting),
        "periods": [one.PeriodRow(budget, *each) for each in one.accounts_of(budget, user)],
        "since": since,
        "drew": one.drew_lately(budget, user, since.replace(minute=0, second=0, microsecond=0)),
        "changes": one.changes_of(budget),
        "per_task": budget.period == BudgetPeriod.TASK.value and budget.task_id is None,
    }
    return render(request, "budgets/show.html", context)


@require_safe
@signed_in
def figure(request: HttpRequest, budget_id: int) -> HttpResponse:
    """Its periods as a Plotly figure."""
    budget = _budget_or_404(request, budget_id)
    rows = [one.PeriodRow(budget, *each) for each in one.accounts_of(budget, user_of(request))]
    return JsonResponse(periods_figure(rows[::-1]))


@require_http_methods(["GET", "HEAD", "POST"])
@signed_in
def new(request: HttpRequest) -> HttpResponse:
    user = user_of(request)
    if request.method != "POST":
        wanted = {name: request.GET[name] for name in ("of", "task", "period") if request.GET.get(name)}
        return _new_page(request, NewBudgetForm(user, initial=wanted))
    form = NewBudgetForm(user, request.POST)
    if form.is_valid():
        try:
            budget = create_budget(
                scope=form.scope,
                period=BudgetPeriod(form.cleaned_data["period"]),
                actor=user,
                reason=form.cleaned_data["reason"],
                alerts=form.cleaned_data["alerts"],
                **form.target,
                **form.limits,
            )
            return redirect("budget", budget.pk)
        except Refused as refusal:
            form.add_error(None, str(refusal))
    return _new_page(request, form, status=422)


def _new_page(request: HttpRequest, form: NewBudgetForm, *, status: int = 200) -> HttpResponse:
    chosen = str(form["of"].value() or "")
    context = {"form": form, "groups": offered(user_of(request)), "chosen": chosen}
    return render(request, "budgets/new.html", context, status=status)


@require_http_methods(["GET", "HEAD", "POST"])
@signed_in
def change(request: HttpRequest, budget_id: int) -> HttpResponse:
    """The dialog, and the deed. With ?task=: as it is opened where that task waits for it."""
    budget = _to_change(request, budget_id)
    number = number_or_none(request.GET.get("task"))
    task = task_or_404(request, number) if number is not None else None
    if request.method != "POST":
        enough = enough_for(budget, task) if task is not None else None
        initial = {
            "limit_usd": enough.usd if enough else budget.limit_usd,
            "limit_tokens": enough.tokens if enough else budget.limit_tokens,
            "alerts": budget.alerts,
        }
        return _dialog(request, budget, task, AmountsForm(initial=initial))
    form = AmountsForm(request.POST)
    if not form.is_valid():
        return _dialog(request, budget, task, form, refused=True)
    try:
        change_budget(
            budget.pk,
            actor=user_of(request),
            reason=form.cleaned_data["reason"],
            alerts=form.cleaned_data["alerts"],
            **form.limits,
        )
    except Refused as refusal:
        form.add_error(None, str(refusal))
        return _dialog(request, budget, task, form, refused=True)
    if task is not None and is_htmx(request):
        task = task_or_404(request, task.pk)
        head = head_context(task, may_operate(request.user, task.workspace), user_of(request))
        return render(request, "tasks/_header.html", head)
    back = reverse("task", args=[task.pk]) if task is not None else reverse("budget", args=[budget.pk])
    return done(request, "The budget is changed. Tasks that have room now go on.", back=back, reload=True)


def _dialog(
    request: HttpRequest, budget: Budget, task: Task | None, form: AmountsForm, *, refused: bool = False
) -> HttpResponse:
    """The dialog alone for htmx, else on a page of its own. A refused one takes the place of what was sent."""
    (now,) = pages.shown(user_of(request), [budget])
    context: dict[str, Any] = {"budget": budget, "shown": now, "task": task, "form": form}
    status = 422 if refused else 200
    if not is_htmx(request):
        return render(request, "budgets/change.html", context | {"dialog": True}, status=status)
    response = render(request, "budgets/_change.html", context, status=status)
    if refused:
        response["HX-Retarget"] = "#dialog-slot"
        response["HX-Reswap"] = "innerHTML"
    return response


@steering
def end(request: HttpRequest, budget_id: int) -> HttpResponse:
    budget = _to_change(request, budget_id)
    end_budget(budget.pk, actor=user_of(request), reason=reason_of(request))
    told = "The budget has ended. What it counted stays here."
    return done(request, told, back=reverse("budget", args=[budget.pk]), reload=True)


def _budget_or_404(request: HttpRequest, budget_id: int) -> Budget:
    related = ("user", "workspace", "profile__workspace", "task__workspace", "created_by", "ended_by")
    return get_object_or_404(pages.binding_budgets(user_of(request)).select_related(*related), pk=budget_id)


def _to_change(request: HttpRequest, budget_id: int) -> Budget:
    """Raises PermissionDenied where it is seen and is not theirs to change."""
    budget = _budget_or_404(request, budget_id)
    user = user_of(request)
    if not visible_budgets(user).filter(pk=budget.pk).exists() or not may_change_budget(user, budget):
        raise PermissionDenied("Site staff, or whoever set this budget and may still do so, changes it.")
    return budget
