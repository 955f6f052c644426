"""A policy as it stands in the form, tried on past calls. Stores nothing and changes no task."""

from __future__ import annotations

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render

from workspaces.models import AgentProfile, Workspace
from workspaces.queries.access import visible_workspaces
from workspaces.queries.policy_trial import NEWEST, calls_to_try, try_policy

from ..access import user_of
from ..errors import steering
from ..profile_form import PolicyField
from .profiles import may_make, visible_profiles


@steering
def try_on_past_calls(request: HttpRequest) -> HttpResponse:
    """What was typed is read as when it is saved; what is wrong with it is said in the same words."""
    user = user_of(request)
    if not may_make(user):
        raise PermissionDenied("Only those who may make a profile may try a policy.")
    profile, workspace = _whose(request)
    newest = next((count for count in NEWEST if str(count) == request.POST.get("trial_newest")), NEWEST[0])
    bound = PolicyField()
    errors: list[str] = []
    trial = None
    try:
        policy = bound.read(request.POST.get("policy", ""))
    except bound.refused as refusal:
        errors = refusal.messages
    else:
        trial = try_policy(policy, list(calls_to_try(user, profile=profile, workspace=workspace)[:newest]))
    context = {"trial": trial, "errors": errors, "profile": profile, "workspace": workspace, "newest": newest}
    return render(request, "profiles/_trial.html", context)


def _whose(request: HttpRequest) -> tuple[AgentProfile | None, Workspace | None]:
    """`trial_calls`: "profile" (with profile_id), a workspace's id, or empty for all that the person can see."""
    wanted = request.POST.get("trial_calls", "")
    profile_id = request.POST.get("profile_id", "")
    if wanted == "profile":
        if not _is_id(profile_id):
            return None, None
        return get_object_or_404(visible_profiles(user_of(request)), pk=profile_id), None
    if _is_id(wanted):
        return None, get_object_or_404(visible_workspaces(request.user), pk=wanted)
    return None, None


def _is_id(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 18
