"""What incidents and tasks show together: recurrence over versions, compounding with length and agents."""

from __future__ import annotations

from typing import Any

from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from workspaces.queries import compounding, incidents, recurrence
from workspaces.queries.database import database_now
from workspaces.web.access import signed_in, user_of
from workspaces.web.incident_tiles import PERIOD_CHOICES
from workspaces.web.rate_charts import compounding_figure, recurrence_figure


def _filters(request: HttpRequest) -> incidents.Filters:
    """Only period, profile and cause are read here."""
    read = incidents.Filters.from_query(request.GET)
    return incidents.Filters(period=read.period, profile=read.profile, cause=read.cause)


def _choices(request: HttpRequest, filters: incidents.Filters) -> dict[str, Any]:
    profiles = incidents.choices(user_of(request)).profiles
    return {
        "filters": filters,
        "profiles": [(profile.pk, profile.name) for profile in profiles],
        "periods": PERIOD_CHOICES,
    }


@require_safe
@signed_in
def recurring(request: HttpRequest) -> HttpResponse:
    """Every cause with its verdict; one that is named (or the first) with its versions, their changes and a chart."""
    filters = _filters(request)
    user = user_of(request)
    since = incidents.since(filters.period, database_now())
    found = recurrence.recurrence_of(user, profile=filters.profile, since=since)
    named = [group for group in found.groups if group.cause == filters.cause]
    if filters.cause and not named:
        named = list(recurrence.recurrence_of(user, profile=filters.profile, cause=filters.cause, since=since).groups)
    chosen = next(iter(named or found.groups), None)
    context = _choices(request, filters) | {
        "found": found,
        "chosen": chosen,
        "unknown_cause": bool(filters.cause) and not named,
        "editions": recurrence.editions_of(chosen) if chosen else [],
        "figure_address": _figure_address(chosen, filters) if chosen else "",
        "groups": [
            {"group": group, "address": filters.address(profile=group.profile_id, cause=group.cause)}
            for group in found.groups
        ],
    }
    return render(request, "incidents/recurrence.html", context)


def _figure_address(group: recurrence.Group, filters: incidents.Filters) -> str:
    query = incidents.Filters(profile=group.profile_id, cause=group.cause, period=filters.period).address()
    return f"/incidents/recurrence.json{query}"


@require_safe
@signed_in
def recurring_figure(request: HttpRequest) -> HttpResponse:
    filters = _filters(request)
    since = incidents.since(filters.period, database_now())
    found = recurrence.recurrence_of(user_of(request), profile=filters.profile, cause=filters.cause, since=since)
    if not found.groups or not filters.cause:
        raise Http404
    return JsonResponse(recurrence_figure(found.groups[0].rates))


@require_safe
@signed_in
def compounded(request: HttpRequest) -> HttpResponse:
    filters = _filters(request)
    found = _compounding(request, filters)
    context = _choices(request, filters) | {"found": found, "query": filters.address()}
    return render(request, "incidents/compounding.html", context)


@require_safe
@signed_in
def compounded_figure(request: HttpRequest, by: str) -> HttpResponse:
    found = _compounding(request, _filters(request))
    if by == "steps":
        return JsonResponse(compounding_figure(found.steps, "steps of the task"))
    return JsonResponse(compounding_figure(found.agents, "tasks at the same time, itself counted"))


def _compounding(request: HttpRequest, filters: incidents.Filters) -> compounding.Compounding:
    since = incidents.since(filters.period, database_now())
    return compounding.compounding_of(user_of(request), profile=filters.profile, since=since)
