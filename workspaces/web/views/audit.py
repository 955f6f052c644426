"""The structural audit of one task, or of all that a person may see: as a page, as JSON, as Markdown."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from workspaces.domain.audit import audit
from workspaces.domain.audit_facts import Facts, Presence
from workspaces.models import Task
from workspaces.queries.audit import SITE_TASKS, facts_of_site, facts_of_task
from workspaces.queries.database import database_now
from workspaces.web.access import signed_in, task_or_404, user_of
from workspaces.web.audit_parts import TONES, as_json, as_markdown, shown


@require_safe
@signed_in
def site(request: HttpRequest) -> HttpResponse:
    return _answered(request, facts_of_site(user_of(request)), None, "audit")


@require_safe
@signed_in
def task(request: HttpRequest, task_id: int) -> HttpResponse:
    found = task_or_404(request, task_id)
    return _answered(request, facts_of_task(found), found, f"audit-of-task-{found.pk}")


def _answered(request: HttpRequest, facts: Facts, task: Task | None, name: str) -> HttpResponse:
    made = audit(facts)
    form = request.GET.get("format", "")
    if form in ("json", "markdown"):
        told = {"at": f"{database_now():%Y-%m-%d %H:%M:%S} UTC", "base": request.build_absolute_uri("/").rstrip("/")}
        response: HttpResponse
        if form == "json":
            response = JsonResponse(as_json(made, facts, **told), json_dumps_params={"indent": 2})
        else:
            response = HttpResponse(as_markdown(made, facts, **told), content_type="text/markdown; charset=utf-8")
        suffix = "json" if form == "json" else "md"
        response["Content-Disposition"] = f'attachment; filename="{name}.{suffix}"'
        return response
    by = "clusters" if request.GET.get("by") == "clusters" else "modes"
    context: dict[str, Any] = {
        "by": by,
        "rows": shown(made.clusters if by == "clusters" else made.modes),
        "counts": [(presence.value, *TONES[presence], made.count(presence)) for presence in Presence],
        "facts": facts,
        "task": task,
        "all_seen": facts.tasks < SITE_TASKS,
    }
    return render(request, "audit/show.html", context)
