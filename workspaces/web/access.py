"""What a view asks before it does anything: signed in, visible (else 404), allowed (else 403 in words)."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, cast

from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, resolve_url

from workspaces.domain.roles import Role, at_least
from workspaces.models import Alert, Escalation, Incident, QuotaPool, Task, User, Workspace
from workspaces.queries import access

View = Callable[..., HttpResponse]

NEEDS = {
    Role.OPERATOR: "Only operators and owners of this workspace may do that; you are a viewer here.",
    Role.OWNER: "Only owners of this workspace may do that.",
}


def is_htmx(request: HttpRequest) -> bool:
    return request.headers.get("HX-Request") == "true"


def signed_in(view: View) -> View:
    """Others are sent to the sign-in page, also by htmx."""

    @wraps(view)
    def wrapped(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if request.user.is_authenticated:
            return view(request, *args, **kwargs)
        if not is_htmx(request):
            return redirect_to_login(request.get_full_path())
        response = HttpResponse(status=204)
        response["HX-Redirect"] = resolve_url("sign-in")
        return response

    return wrapped


def user_of(request: HttpRequest) -> User:
    """The signed-in user, for views behind `signed_in`."""
    return cast(User, request.user)


def workspace_or_404(request: HttpRequest, workspace_id: int) -> Workspace:
    return get_object_or_404(
        access.visible_workspaces(request.user).select_related("owner", "held_by"), pk=workspace_id
    )


def task_or_404(request: HttpRequest, task_id: int) -> Task:
    found = access.visible_tasks(request.user).select_related(
        "workspace", "created_by", "profile_version__profile", "latch__placed_by", "branch"
    )
    return get_object_or_404(found, pk=task_id)


def task_to_steer(request: HttpRequest, task_id: int) -> Task:
    """Raises PermissionDenied for a viewer."""
    task = task_or_404(request, task_id)
    require_role(request, task.workspace, Role.OPERATOR)
    return task


def escalation_or_404(request: HttpRequest, escalation_id: int) -> Escalation:
    found = access.visible_escalations(request.user).select_related(
        "task__workspace", "tool_call__step", "answered_by", "first_approved_by"
    )
    return get_object_or_404(found, pk=escalation_id)


def incident_or_404(request: HttpRequest, incident_id: int) -> Incident:
    related = ("task__workspace", "task__profile_version__profile", "branch", "acknowledged_by", "resolved_by")
    return get_object_or_404(access.visible_incidents(request.user).select_related(*related), pk=incident_id)


def alert_or_404(request: HttpRequest, alert_id: int) -> Alert:
    related = ("rule", "user", "workspace", "acknowledged_by", "resolved_by")
    return get_object_or_404(access.visible_alerts(request.user).select_related(*related), pk=alert_id)


def pool_or_404(request: HttpRequest, pool_id: int) -> QuotaPool:
    return get_object_or_404(access.visible_pools(request.user).select_related("created_by"), pk=pool_id)


def require_role(request: HttpRequest, workspace: Workspace, needed: Role) -> None:
    """Raises PermissionDenied with words. Call after the 404."""
    if not at_least(access.role_in(request.user, workspace), needed):
        raise PermissionDenied(NEEDS[needed])


def require_staff(request: HttpRequest) -> None:
    if not user_of(request).is_staff:
        raise PermissionDenied("Only site staff may do that: it concerns every workspace.")
