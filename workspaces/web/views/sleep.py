"""A workspace's sleep: its state as it is now, waking it by hand, and after how long it sleeps."""

from __future__ import annotations

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_safe

from workspaces.actions.errors import Refused
from workspaces.actions.sleep import set_idle_timeout, wake_by_hand
from workspaces.domain.roles import Role
from workspaces.domain.states import WorkspaceState
from workspaces.models import Workspace
from workspaces.queries.workspaces import is_queued, wakes_before
from workspaces.web.access import require_role, signed_in, user_of, workspace_or_404
from workspaces.web.errors import done, steering

LOOK_AGAIN_S, LOOK_AGAIN_SOON_S = 15, 2


def state_context(workspace: Workspace) -> dict[str, object]:
    """What `workspaces/_sleep.html` shows."""
    between = is_queued(workspace) or workspace.state in (WorkspaceState.WAKING, WorkspaceState.FALLING_ASLEEP)
    timeout_s = settings.IDLE_TIMEOUT_S if workspace.idle_timeout_s is None else workspace.idle_timeout_s
    return {
        "workspace": workspace,
        "wakes_before": wakes_before(workspace),
        "may_be_woken": workspace.state == WorkspaceState.ASLEEP and not is_queued(workspace),
        "look_again_s": LOOK_AGAIN_SOON_S if between else LOOK_AGAIN_S,
        "timeout_s": timeout_s,
    }


@require_safe
@signed_in
def state(request: HttpRequest, workspace_id: int) -> HttpResponse:
    """The part of the page that says whether it sleeps; the page asks for it again and again."""
    return render(request, "workspaces/_sleep.html", state_context(workspace_or_404(request, workspace_id)))


@steering
def wake(request: HttpRequest, workspace_id: int) -> HttpResponse:
    workspace = workspace_or_404(request, workspace_id)
    require_role(request, workspace, Role.OPERATOR)
    found = wake_by_hand(workspace, actor=user_of(request))
    told = "It is awake." if found is WorkspaceState.AWAKE else "It is to wake."
    return done(request, told, back=reverse("workspace", args=[workspace.pk]), reload=True)


@steering
def idle_timeout(request: HttpRequest, workspace_id: int) -> HttpResponse:
    """Minutes; empty: as the site says."""
    workspace = workspace_or_404(request, workspace_id)
    require_role(request, workspace, Role.OWNER)
    text = request.POST.get("minutes", "").strip()
    if text and not (text.isascii() and text.isdigit() and len(text) < 9):
        raise Refused("Give a whole number of minutes, 0 for never, or nothing for the site's own.")
    set_idle_timeout(workspace, int(text) * 60 if text else None, actor=user_of(request))
    return done(request, "Changed.", back=reverse("workspace", args=[workspace.pk]), reload=True)
