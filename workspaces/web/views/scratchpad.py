"""A task's scratchpad: written by an operator, its versions with author and difference, an older one taken again."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from workspaces.actions import scratchpad as actions
from workspaces.actions.errors import Refused
from workspaces.domain.roles import Role
from workspaces.domain.text import clean_text
from workspaces.models import Task
from workspaces.queries.access import may_operate
from workspaces.queries.scratchpad import versions_of

from ..access import require_role, signed_in, task_or_404, user_of
from ..errors import is_htmx, problem, steering
from ..task_parts import panel_context
from ..trace_rows import diff_lines, number_or_none


def _panel(request: HttpRequest, task: Task) -> HttpResponse:
    if not is_htmx(request):
        return redirect(f"/tasks/{task.pk}/?panel=scratchpad")
    task.refresh_from_db(fields=["scratchpad"])
    return render(request, "tasks/_scratchpad.html", panel_context(task, "scratchpad", True))


@steering
def note(request: HttpRequest, task_id: int) -> HttpResponse:
    task = task_or_404(request, task_id)
    require_role(request, task.workspace, Role.OPERATOR)
    section = request.POST.get("section", "").strip()[:80]
    if not section:
        raise Refused("Name the section: plan, attempts, exit_condition …")
    actions.write_note(task.pk, section=section, text=request.POST.get("text", ""), actor=user_of(request))
    return _panel(request, task)


@signed_in
@require_safe
def versions(request: HttpRequest, task_id: int) -> HttpResponse:
    """Of the section that `?section=` names: a name may hold anything."""
    task = task_or_404(request, task_id)
    return _versions(request, task, clean_text(request.GET.get("section", "")))


def _versions(request: HttpRequest, task: Task, section: str, *, status: int = 200, **refused: Any) -> HttpResponse:
    assert task.branch is not None
    found, count = versions_of(task.branch, section)
    if not found:
        raise Http404
    context = {
        "task": task,
        "section": section,
        "versions": [{"version": version, "lines": diff_lines(version.diff)[2:]} for version in found],
        "count": count,
        "can_operate": may_operate(request.user, task.workspace),
        **refused,
    }
    return render(request, "scratchpad/versions.html", context, status=status)


@signed_in
@require_POST
def restore(request: HttpRequest, task_id: int) -> HttpResponse:
    """An older version as a new one. A refusal keeps the reason that was typed."""
    task = task_or_404(request, task_id)
    require_role(request, task.workspace, Role.OPERATOR)
    section = clean_text(request.POST.get("section", ""))
    seq = number_or_none(request.POST.get("seq"))
    if seq is None:
        return problem(request, 400, "The form names no version.")
    reason = request.POST.get("reason", "")
    try:
        actions.restore_note(task.pk, seq=seq, section=section, reason=reason, actor=user_of(request))
    except Refused as refusal:
        return _versions(request, task, section, status=409, refused=str(refusal), refused_seq=seq, typed=reason)
    return redirect(f"{reverse('task-note-versions', args=[task.pk])}?{urlencode({'section': section})}")
