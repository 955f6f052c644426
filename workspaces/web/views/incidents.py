"""The list of incidents, one of them, and what a person says about it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_safe

from workspaces.actions.errors import Refused
from workspaces.actions.incidents import acknowledge_incident, resolve_incident
from workspaces.domain.roles import Role
from workspaces.models import Incident
from workspaces.queries import incidents
from workspaces.web.access import incident_or_404, is_htmx, require_role, signed_in, user_of
from workspaces.web.errors import problem, steering
from workspaces.web.incident_parts import page_context
from workspaces.web.incident_tiles import (
    CLUSTER_CHOICES,
    MODE_CHOICES,
    PERIOD_CHOICES,
    SEVERITY_CHOICES,
    STATE_CHOICES,
    tiles,
)


@require_safe
@signed_in
def index(request: HttpRequest) -> HttpResponse:
    user = user_of(request)
    filters = incidents.Filters.from_query(request.GET)
    page = incidents.page_of(user, filters)
    context: dict[str, Any] = {
        "filters": filters,
        "page": page,
        "previous_address": filters.address(page=page.number - 1) if page.number > 1 else "",
        "next_address": filters.address(page=page.number + 1) if page.number < page.pages else "",
    }
    if is_htmx(request):
        return render(request, "incidents/_list.html", context)
    choices = incidents.choices(user)
    context |= {
        "counts": tiles(incidents.counts_by_kind(user, filters), filters),
        "states": STATE_CHOICES,
        "severities": SEVERITY_CHOICES,
        "modes": MODE_CHOICES,
        "clusters": CLUSTER_CHOICES,
        "periods": PERIOD_CHOICES,
        "workspaces": [(workspace.pk, workspace.name) for workspace in choices.workspaces],
        "profiles": [(profile.pk, profile.name) for profile in choices.profiles],
        "without_task": filters.address(task=None),
        "without_cause": filters.address(cause=""),
    }
    return render(request, "incidents/index.html", context)


@require_safe
@signed_in
def show(request: HttpRequest, incident_id: int) -> HttpResponse:
    incident = incident_or_404(request, incident_id)
    return render(request, "incidents/show.html", page_context(incident, user_of(request)))


@steering
def acknowledge(request: HttpRequest, incident_id: int) -> HttpResponse:
    return _said(request, incident_id, "acknowledge", acknowledge_incident)


@steering
def resolve(request: HttpRequest, incident_id: int) -> HttpResponse:
    return _said(request, incident_id, "resolve", resolve_incident)


def _said(request: HttpRequest, incident_id: int, what: str, action: Callable[..., Incident]) -> HttpResponse:
    """The head as it is now (htmx) or the page; refused: why, with what was typed kept."""
    incident = incident_or_404(request, incident_id)
    require_role(request, incident.task.workspace, Role.OPERATOR)
    reason = request.POST.get("reason", "")
    try:
        action(incident.pk, actor=user_of(request), reason=reason)
    except Refused as refusal:
        if is_htmx(request):
            return problem(request, 409, str(refusal))
        context = page_context(incident_or_404(request, incident_id), user_of(request))
        context |= {f"{what}_refused": str(refusal), f"{what}_typed": reason}
        return render(request, "incidents/show.html", context, status=409)
    if not is_htmx(request):
        return redirect("incident", incident.pk)
    context = page_context(incident_or_404(request, incident_id), user_of(request))
    return render(request, "incidents/_head.html", context)
