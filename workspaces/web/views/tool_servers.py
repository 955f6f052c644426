"""What a profile's MCP servers offer: read by who sees the profile, accepted or refused by who may change it."""

from __future__ import annotations

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.views.decorators.http import require_safe

from workspaces.actions.errors import Refused
from workspaces.actions.tool_servers import accept_definitions, refuse_definitions
from workspaces.engine.tool_servers import look_from_page
from workspaces.models import AgentProfile, ProfileVersion
from workspaces.queries.tool_servers import listed_servers
from workspaces.web.access import signed_in, user_of
from workspaces.web.errors import done, steering
from workspaces.web.trace_rows import diff_lines, number_or_none
from workspaces.web.views.profiles import may_change, visible_profiles

MAY_NOT = "Only those who may change this profile decide on its tools: operators of its workspace, or site staff."


@require_safe
@signed_in
def show(request: HttpRequest, profile_id: int) -> HttpResponse:
    profile = get_object_or_404(visible_profiles(user_of(request)), pk=profile_id)
    version = _newest(profile)
    servers = [
        {"said": one, "tools": [{"said": tool, "diff": diff_lines(tool.diff)} for tool in one.tools]}
        for one in listed_servers(version)
    ]
    context = {
        "profile": profile,
        "version": version,
        "servers": servers,
        "may_change": may_change(user_of(request), profile),
    }
    return render(request, "profiles/tools.html", context)


@steering
def decide(request: HttpRequest, profile_id: int) -> HttpResponse:
    profile = _changeable(request, profile_id)
    ids = [number for text in request.POST.getlist("definition")[:1_000] if (number := number_or_none(text))]
    if not ids:
        raise Refused("Choose at least one definition.")
    accept = request.POST.get("decision") == "accept"
    act = accept_definitions if accept else refuse_definitions
    count = act(profile, ids, actor=user_of(request), reason=request.POST.get("reason", ""))
    many = "definition is" if count == 1 else "definitions are"
    told = f"{count} {many} {'accepted' if accept else 'refused'}. It holds from each task's next step on."
    return done(request, told, back=reverse("profile-tools", args=[profile.pk]), reload=True)


@steering
def look(request: HttpRequest, profile_id: int) -> HttpResponse:
    """Really asks the server what it offers; only one that is reached over HTTP."""
    profile = _changeable(request, profile_id)
    told = look_from_page(_newest(profile), request.POST.get("server", ""))
    return done(request, told, back=reverse("profile-tools", args=[profile.pk]), reload=True)


def _changeable(request: HttpRequest, profile_id: int) -> AgentProfile:
    """404 for what is not to be seen. Raises PermissionDenied."""
    profile = get_object_or_404(visible_profiles(user_of(request)), pk=profile_id)
    if not may_change(user_of(request), profile):
        raise PermissionDenied(MAY_NOT)
    return profile


def _newest(profile: AgentProfile) -> ProfileVersion:
    return profile.versions.select_related("tool_secrets").order_by("-number")[0]
