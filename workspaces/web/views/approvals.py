"""Standing approvals of a task: revoked here. They are given on a question's card (escalations.py)."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse

from workspaces.actions.approvals import revoke_standing
from workspaces.domain.roles import Role
from workspaces.models import StandingApproval

from ..access import require_role, task_or_404, user_of
from ..errors import steering


@steering
def revoke(request: HttpRequest, task_id: int, standing_id: int) -> HttpResponse:
    task = task_or_404(request, task_id)
    require_role(request, task.workspace, Role.OPERATOR)
    standing = get_object_or_404(StandingApproval, task=task, pk=standing_id)
    revoke_standing(standing.pk, reason=request.POST.get("reason", ""), actor=user_of(request))
    messages.success(request, f"{standing.name} is asked about again.")
    return redirect(f"{reverse('task', args=[task_id])}?panel=checkpoints")
