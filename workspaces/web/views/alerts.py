"""The list of alerts, one of them, and what a person says about it: acknowledged, resolved, several at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.core.exceptions import PermissionDenied
from django.db import DatabaseError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_safe

from workspaces.actions.alerts import acknowledge_alert, resolve_alert
from workspaces.actions.errors import Refused
from workspaces.models import Alert, User
from workspaces.queries import alerts
from workspaces.queries.database import is_away
from workspaces.queries.heartbeats import pulse
from workspaces.web.access import alert_or_404, is_htmx, signed_in, user_of
from workspaces.web.alert_parts import (
    EVERYONE,
    KIND_CHOICES,
    SEVERITY_CHOICES,
    WHOSE_CHOICES,
    head_context,
    list_context,
    page_context,
    shown_rows,
)
from workspaces.web.errors import problem, steering
from workspaces.web.views.alert_rules import MUTES

MAX_AT_ONCE = 500
MAY_NOT = "Only operators and owners of its workspace may do that; you are a viewer here."
UNSURE = "the database stopped answering: look whether it was done, then try again"
UNTRIED = "not tried: the database does not answer"
DEEDS: dict[str, Callable[..., Alert]] = {"acknowledge": acknowledge_alert, "resolve": resolve_alert}
DONE = {"acknowledge": "is acknowledged", "resolve": "is resolved"}


@require_safe
@signed_in
def index(request: HttpRequest) -> HttpResponse:
    user = user_of(request)
    filters = alerts.Filters.from_query(request.GET)
    context = list_context(user, filters)
    if is_htmx(request):
        return render(request, "alerts/_list.html", context)
    choices = alerts.choices(user)
    context |= head_context(user, filters)
    context |= {
        "kinds": KIND_CHOICES,
        "severities": SEVERITY_CHOICES,
        "rules": [(rule.pk, rule.name) for rule in choices.rules],
        "workspaces": [(workspace.pk, workspace.name) for workspace in choices.workspaces],
        "without_task": filters.address(task=None),
        "whose": [*WHOSE_CHOICES, EVERYONE] if user.is_staff else WHOSE_CHOICES,
        "pulse": pulse(),
        "may_see_pulse": user.is_staff,
    }
    return render(request, "alerts/index.html", context)


@require_safe
@signed_in
def show(request: HttpRequest, alert_id: int) -> HttpResponse:
    alert = alert_or_404(request, alert_id)
    return _page(request, alert)


def _page(request: HttpRequest, alert: Alert, *, status: int = 200, **more: str) -> HttpResponse:
    context = {**page_context(alert, user_of(request), request.GET), "rule": alert.rule, "mutes": MUTES, **more}
    return render(request, "alerts/show.html", context, status=status)


@steering
def acknowledge(request: HttpRequest, alert_id: int) -> HttpResponse:
    return _said(request, alert_id, "acknowledge")


@steering
def resolve(request: HttpRequest, alert_id: int) -> HttpResponse:
    return _said(request, alert_id, "resolve")


def _said(request: HttpRequest, alert_id: int, what: str) -> HttpResponse:
    """The row or the head as it is now (htmx), or the page; refused: why, with what was typed kept."""
    alert = alert_or_404(request, alert_id)
    user = user_of(request)
    if not alerts.may_act(user, alert):
        raise PermissionDenied(MAY_NOT)
    reason = request.POST.get("reason", "")
    try:
        DEEDS[what](alert.pk, actor=user, reason=reason)
    except Refused as refusal:
        if is_htmx(request):
            return problem(request, 409, str(refusal))
        refused = {f"{what}_refused": str(refusal), f"{what}_typed": reason}
        return _page(request, alert_or_404(request, alert_id), status=409, **refused)
    if not is_htmx(request):
        return redirect("alert", alert.pk)
    if request.POST.get("from") == "list":
        (row,) = shown_rows(user, alerts.rows(user, [alert.pk]))
        return render(request, "alerts/_row.html", {"row": row})
    return render(request, "alerts/_head.html", page_context(alert_or_404(request, alert_id), user, request.GET))


@dataclass(frozen=True, slots=True)
class Result:
    """What came of one alert of several; as fleet/_results.html shows it."""

    task_id: int
    title: str
    done: bool
    words: str


@steering
def act(request: HttpRequest) -> HttpResponse:
    """Each alert by itself: one that refuses does not stop the others."""
    action = request.POST.get("action", "")
    if action not in DEEDS:
        raise Refused("Choose acknowledge or resolve.")
    ids = {pk for text in request.POST.getlist("alert") if (pk := alerts.number(text)) is not None}
    if len(ids) > MAX_AT_ONCE:
        raise Refused(f"At most {MAX_AT_ONCE} alerts at once; {len(ids)} were chosen.")
    reason = request.POST.get("reason", "").strip()
    if action == "resolve" and not reason:
        raise Refused("Say how they were resolved: whoever finds this later needs it.")
    user = user_of(request)
    results = _act_on_each(user, alerts.rows(user, sorted(ids)), action, reason)
    done = sum(1 for result in results if result.done)
    context: dict[str, Any] = {
        "heading": f"{action.capitalize()}: {done} of {len(results)} done",
        "results": results,
        "nothing": "No alert was chosen. Tick some rows first.",
        "untick": True,
    }
    return render(request, "fleet/_results.html", context)


def _act_on_each(user: User, rows: list[alerts.Row], action: str, reason: str) -> list[Result]:
    """A database that goes away in the middle: what was done until then is told, the rest is not tried."""
    results: list[Result] = []
    for row in rows:
        try:
            results.append(_act_on(user, row.alert, row.may_act, action, reason))
        except DatabaseError as error:
            if not is_away(error):
                raise
            results.append(Result(row.alert.pk, row.alert.title, False, UNSURE))
            rest = rows[len(results) :]
            return results + [Result(each.alert.pk, each.alert.title, False, UNTRIED) for each in rest]
    return results


def _act_on(user: User, alert: Alert, may_act: bool, action: str, reason: str) -> Result:
    if not may_act:
        return Result(alert.pk, alert.title, False, MAY_NOT)
    try:
        DEEDS[action](alert.pk, actor=user, reason=reason)
    except Refused as refusal:
        return Result(alert.pk, alert.title, False, str(refusal))
    return Result(alert.pk, alert.title, True, DONE[action])
