"""Workspaces: listed, shown, made, and shared. Their files are shown by files.py."""

from __future__ import annotations

from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_safe

from workspaces.actions.errors import Refused
from workspaces.actions.workspaces import create_workspace
from workspaces.actions.workspaces import set_member as set_member_role
from workspaces.domain.roles import Role
from workspaces.domain.text import clean_text
from workspaces.models import User, Workspace
from workspaces.queries.workspaces import workspace_rows, workspace_view
from workspaces.web.access import require_role, signed_in, user_of, workspace_or_404
from workspaces.web.errors import done, steering
from workspaces.web.views.isolation import isolation_context
from workspaces.web.views.sleep import state_context


@require_safe
@signed_in
def index(request: HttpRequest) -> HttpResponse:
    return render(request, "workspaces/index.html", {"rows": workspace_rows(user_of(request))})


@require_safe
@signed_in
def show(request: HttpRequest, workspace_id: int) -> HttpResponse:
    workspace = workspace_or_404(request, workspace_id)
    view = workspace_view(user_of(request), workspace)
    context = {"view": view, "roles": list(Role), **state_context(workspace), **isolation_context(workspace)}
    return render(request, "workspaces/show.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
@signed_in
def new(request: HttpRequest) -> HttpResponse:
    user = user_of(request)
    drivers = _drivers()
    context = {"drivers": drivers, "name": "", "driver": drivers[0][0], "error": ""}
    if request.method != "POST":
        return render(request, "workspaces/new.html", context)
    name, driver = request.POST.get("name", ""), request.POST.get("driver", "")
    context |= {"name": name, "driver": driver}
    try:
        if driver not in dict(drivers):
            raise Refused("Choose how its commands are isolated.")
        workspace = create_workspace(name=name, owner=user, driver=driver, actor=user)
    except Refused as refusal:
        return render(request, "workspaces/new.html", context | {"error": str(refusal)}, status=422)
    messages.success(request, f"{workspace.name} is ready. You own it.")
    return redirect("workspace", workspace.pk)


@steering
def set_member(request: HttpRequest, workspace_id: int) -> HttpResponse:
    """Give a role, change it, or (role "none") take it away."""
    workspace = workspace_or_404(request, workspace_id)
    require_role(request, workspace, Role.OWNER)
    name = clean_text(request.POST.get("user", "")).strip()
    member = User.objects.filter(username=name, is_active=True).first()
    if member is None:
        raise Refused(f"Nobody here signs in as {name[:80] or '(no name)'}. Names are case-sensitive.")
    wanted = request.POST.get("role", "")
    if wanted not in {"none", *(role.value for role in Role)}:
        raise Refused("Choose a role: viewer, operator or owner.")
    role = None if wanted == "none" else Role(wanted)
    set_member_role(workspace, user=member, role=role, actor=user_of(request))
    told = f"{member} is {role.value} now." if role else f"{member} is no longer a member."
    left = role is None and member == request.user and not member.is_staff
    back = reverse("workspaces") if left else reverse("workspace", args=[workspace.pk])
    return done(request, told, back=back, reload=True)


def _drivers() -> list[tuple[str, str]]:
    """What this installation offers; the first is the default."""
    offered = {
        "docker": [Workspace.Driver.DOCKER],
        "local": [Workspace.Driver.LOCAL],
        "auto": [Workspace.Driver.DOCKER, Workspace.Driver.LOCAL],
    }[settings.SANDBOX_DRIVER]
    return [(driver.value, str(driver.label)) for driver in offered]
