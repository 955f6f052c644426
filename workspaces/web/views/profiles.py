"""Agent profiles: listed, shown with their immutable versions, made, given a next version, checked."""

from __future__ import annotations

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.db.models import Count, Max, Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_http_methods, require_safe

from workspaces.actions.errors import Refused
from workspaces.actions.profiles import add_version, create_profile, headers_of
from workspaces.domain.roles import Role
from workspaces.engine.probe import ProbeResult, probe
from workspaces.models import AgentProfile, ProfileVersion, User
from workspaces.queries.access import may_operate, visible_workspaces
from workspaces.queries.policy_trial import NEWEST
from workspaces.queries.profiles import fallback_version, policy_of
from workspaces.queries.tool_catalog import builtin_tools
from workspaces.web import detectors
from workspaces.web.access import require_role, signed_in, user_of
from workspaces.web.errors import steering
from workspaces.web.profile_form import ProfileForm, VersionForm, fallbacks_for, initial_of
from workspaces.web.task_form import operated_workspaces


def visible_profiles(user: User) -> QuerySet[AgentProfile]:
    """Retired ones too: their tasks are still there."""
    return AgentProfile.objects.filter(Q(workspace=None) | Q(workspace__in=visible_workspaces(user))).select_related(
        "workspace", "created_by"
    )


def may_change(user: User, profile: AgentProfile) -> bool:
    return user.is_staff or (profile.workspace is not None and may_operate(user, profile.workspace))


def may_make(user: User) -> bool:
    return user.is_staff or operated_workspaces(user).exists()


@require_safe
@signed_in
def index(request: HttpRequest) -> HttpResponse:
    user = user_of(request)
    profiles = list(
        visible_profiles(user)
        .annotate(newest=Max("versions__number"), task_count=Count("versions__tasks", distinct=True))
        .order_by("retired_at", "name")
    )
    newest = {
        version.profile_id: version
        for version in ProfileVersion.objects.filter(profile__in=profiles)
        .select_related("key")
        .order_by("profile", "number")
    }
    rows = [{"profile": profile, "version": newest.get(profile.pk)} for profile in profiles]
    return render(request, "profiles/index.html", {"rows": rows, "may_make": may_make(user)})


@require_safe
@signed_in
def show(request: HttpRequest, profile_id: int) -> HttpResponse:
    user = user_of(request)
    profile = get_object_or_404(visible_profiles(user), pk=profile_id)
    versions = list(
        profile.versions.select_related("key", "created_by").annotate(task_count=Count("tasks")).order_by("-number")
    )
    wanted = request.GET.get("version", "")
    chosen = next((version for version in versions if str(version.number) == wanted), versions[0])
    context = {
        "profile": profile,
        "versions": versions,
        "version": chosen,
        "detectors": detectors.shown(chosen.detectors),
        "options": {key: value for key, value in chosen.provider_options.items() if key != "scenario_text"},
        "policy": policy_of(chosen),
        "fallback": fallback_version(chosen),
        "may_change": may_change(user, profile),
    }
    return render(request, "profiles/show.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
@signed_in
def new(request: HttpRequest) -> HttpResponse:
    user = user_of(request)
    if not may_make(user):
        raise PermissionDenied("To make a profile you have to be an operator or owner of some workspace.")
    if request.method != "POST":
        return _form_page(request, ProfileForm(user, initial={"provider": "openai"}))
    form = ProfileForm(user, request.POST)
    if form.is_valid():
        try:
            version = create_profile(
                name=form.cleaned_data["name"],
                workspace=form.workspace(),
                actor=user,
                api_key=form.cleaned_data["api_key"],
                **form.version_fields(),
            )
        except Refused as refusal:
            form.add_error(_field_of(refusal, "name"), str(refusal))
        else:
            messages.success(request, f"{version} is ready for tasks.")
            return redirect("profile", version.profile_id)
    return _form_page(request, form, status=422)


@require_http_methods(["GET", "HEAD", "POST"])
@signed_in
def new_version(request: HttpRequest, profile_id: int) -> HttpResponse:
    user = user_of(request)
    profile = get_object_or_404(visible_profiles(user), pk=profile_id)
    _require_change(request, profile)
    newest, fallbacks = _newest(profile), fallbacks_for(user, profile)
    if request.method != "POST":
        return _form_page(request, VersionForm(initial=initial_of(newest), fallbacks=fallbacks), profile)
    form = VersionForm(request.POST, fallbacks=fallbacks)
    if form.is_valid():
        try:
            version = add_version(
                profile,
                actor=user,
                api_key=form.cleaned_data["api_key"],
                keep_key=form.cleaned_data["keep_key"],
                **form.version_fields(),
            )
        except Refused as refusal:
            form.add_error(_field_of(refusal, "api_key"), str(refusal))
        else:
            messages.success(request, f"{version} is ready. Running tasks keep the version that they name.")
            return redirect("profile", profile.pk)
    return _form_page(request, form, profile, status=422)


@steering
def check(request: HttpRequest) -> HttpResponse:
    """Really asks the provider, with what stands in the form now. Stores nothing."""
    user = user_of(request)
    if not may_make(user):
        raise PermissionDenied("Only those who may make a profile may check one.")
    profile_id = request.POST.get("profile_id", "")
    newest = None
    if profile_id.isascii() and profile_id.isdigit() and len(profile_id) < 18:
        profile = get_object_or_404(visible_profiles(user), pk=profile_id)
        _require_change(request, profile)
        newest = _newest(profile)
    form = VersionForm(request.POST)
    form.is_valid()
    return render(request, "profiles/_check.html", {"result": _checked(form, newest)})


def _checked(form: VersionForm, newest: ProfileVersion | None) -> ProbeResult:
    data = form.cleaned_data
    for name in ("provider", "base_url", "model", "options", "scenario", "scenario_text"):
        if name in form.errors:
            return ProbeResult(False, "Not asked.", f"{name.replace('_', ' ')}: {form.errors[name][0]}")
    key = data["api_key"]
    if not key and data["keep_key"] and newest is not None and newest.key is not None:
        # a stored key goes only to the address that it was given for, as in actions/profiles.py
        if (newest.provider, newest.base_url) != (data["provider"], data["base_url"]):
            return ProbeResult(False, "Not asked.", "The address changed: type the key for the new address.")
        key = newest.key.open()
    options = form.provider_options(data)
    same_place = newest is not None and (newest.provider, newest.base_url) == (data["provider"], data["base_url"])
    try:
        headers = headers_of(options, newest, same_place=same_place)
    except Refused as refusal:
        return ProbeResult(False, "Not asked.", str(refusal))
    options |= {"headers": headers} if headers else {}
    return probe(data["provider"], base_url=data["base_url"], api_key=key, model=data["model"], options=options)


def _form_page(
    request: HttpRequest, form: VersionForm, profile: AgentProfile | None = None, *, status: int = 200
) -> HttpResponse:
    newest = _newest(profile) if profile else None
    chosen = form["tools"].value() or []
    context = {
        "form": form,
        "profile": profile,
        "newest": newest,
        "next_number": newest.number + 1 if newest else 1,
        "tools": [{"spec": spec, "chosen": spec.name in chosen} for spec in builtin_tools()],
        "providers": ProfileVersion.Provider.choices,
        "trial_workspaces": visible_workspaces(request.user).order_by("name"),
        "trial_newest": NEWEST,
        "detector_defaults": detectors.defaults(),
    }
    return render(request, "profiles/form.html", context, status=status)


def _field_of(refusal: Refused, otherwise: str) -> str:
    said = str(refusal)
    if "fallback" in said:
        return "fallback"
    if "of the server" in said:
        return "mcp_servers"
    if "the header for" in said:
        return "http"
    return "options" if "header" in said else otherwise


def _newest(profile: AgentProfile) -> ProfileVersion:
    return profile.versions.select_related("key", "headers").order_by("-number")[0]


def _require_change(request: HttpRequest, profile: AgentProfile) -> None:
    if profile.workspace is None:
        if not user_of(request).is_staff:
            raise PermissionDenied("This profile belongs to the whole site: only site staff may change it.")
    else:
        require_role(request, profile.workspace, Role.OPERATOR)
