"""Holds on more than one task: placed and released. A single task's hold is steered on its own page."""

from __future__ import annotations

from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.utils.http import url_has_allowed_host_and_scheme

from workspaces.actions.errors import Refused
from workspaces.actions.latches import place_latch, release_latch
from workspaces.domain.roles import Role
from workspaces.domain.states import PauseMode
from workspaces.models import Latch
from workspaces.queries.access import visible_workspaces
from workspaces.web.access import require_role, require_staff, user_of, workspace_or_404
from workspaces.web.errors import done, steering


@steering
def place(request: HttpRequest) -> HttpResponse:
    workspace = None
    if request.POST.get("scope") == "workspace":
        workspace = workspace_or_404(request, _number(request.POST.get("workspace", "")))
        require_role(request, workspace, Role.OWNER)
    elif request.POST.get("scope") == "fleet":
        require_staff(request)
    else:
        raise Http404
    latch = place_latch(
        mode=PauseMode.NOW if request.POST.get("mode") == "now" else PauseMode.BOUNDARY,
        reason=reason_of(request),
        actor=user_of(request),
        workspace=workspace,
    )
    what = workspace.name if workspace else "The whole fleet"
    return done(request, f"{what} is on hold: {latch.reason}", back=back_of(request), reload=True)


@steering
def release(request: HttpRequest, latch_id: int) -> HttpResponse:
    latch = get_object_or_404(Latch.objects.select_related("workspace"), pk=latch_id, task=None)
    if latch.workspace is not None:
        get_object_or_404(visible_workspaces(request.user), pk=latch.workspace_id)
        require_role(request, latch.workspace, Role.OWNER)
    elif latch.user_id == user_of(request).pk and not user_of(request).is_staff:
        raise PermissionDenied("Only site staff may release a hold on a user.")
    elif latch.user_id and not user_of(request).is_staff:
        raise Http404
    else:
        require_staff(request)
    release_latch(latch_id, reason=reason_of(request), actor=user_of(request))
    return done(request, "The hold is released; its tasks are queued again.", back=back_of(request), reload=True)


def reason_of(request: HttpRequest) -> str:
    """Raises Refused when none was given."""
    reason = request.POST.get("reason", "").strip()
    if not reason:
        raise Refused("Give a reason: whoever finds this later needs it.")
    return reason[:500]


def back_of(request: HttpRequest) -> str:
    """The page that the form was on, if it is ours."""
    came_from = request.headers.get("Referer", "")
    if url_has_allowed_host_and_scheme(came_from, {request.get_host()}, require_https=request.is_secure()):
        return came_from
    return "/"


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 18):
        raise Http404
    return int(text)
