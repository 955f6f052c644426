"""The form of a profile and of its next version. Keys go in and never come out; all else is kept when refused."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

import yaml
from django import forms
from django.db.models import Q, QuerySet

from workspaces.domain.compaction import read_policy as context_policy
from workspaces.domain.detection import problems as detector_problems
from workspaces.domain.fallbacks import LONGEST_WAIT_S, read_fallback
from workspaces.domain.policy import CALL_FIELDS, RESULT_FIELDS, Policy, PolicyError, read_policy
from workspaces.domain.retention import EVERY, LAST
from workspaces.domain.text import clean_json, clean_text, too_deep
from workspaces.engine.probe import probe, scenarios
from workspaces.models import AgentProfile, ProfileVersion, User, Workspace
from workspaces.queries.access import usable_profiles
from workspaces.queries.tool_catalog import builtin_tools, http_problem, servers_problem, tools_problem

from .task_form import operated_workspaces

SITE = "site"
MAX_SOURCE_CHARS = 500_000
PRICE: dict[str, Any] = {"min_value": 0, "max_value": 1_000_000, "max_digits": 20, "decimal_places": 9}
COPIED = (
    "provider",
    "base_url",
    "model",
    "system_prompt",
    "tools",
    "temperature",
    "max_output_tokens",
    "context_window_tokens",
    "max_steps",
    "model_timeout_s",
    "approval_expires_s",
    "keep_last",
    "keep_every",
    "input_usd_per_mtok",
    "output_usd_per_mtok",
    "local_allowed",
)


class _Loader(yaml.SafeLoader):
    """Without aliases: a few lines of them unfold to gigabytes. Dates stay text, as in JSON."""

    yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in found if tag != "tag:yaml.org,2002:timestamp"]
        for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.events.AliasEvent):
            raise yaml.composer.ComposerError(None, None, "aliases are not taken", self.peek_event().start_mark)
        return super().compose_node(parent, index)


class StructuredField(forms.CharField):
    """JSON or YAML, read into `kind` (list or dict); empty text is an empty one."""

    of = "tools"

    def __init__(self, kind: type, **kwargs: Any) -> None:
        super().__init__(required=False, strip=False, max_length=MAX_SOURCE_CHARS, **kwargs)
        self.kind = kind

    def clean(self, value: Any) -> Any:
        text = clean_text(super().clean(value))
        if not text.strip():
            return self.kind()
        try:
            found = yaml.load(text, _Loader)  # noqa: S506 - a SafeLoader
            json.dumps(found, allow_nan=False)
            if too_deep(found):
                raise ValueError("it is nested too deeply")
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark
            where = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
            raise forms.ValidationError(f"This is neither JSON nor YAML{where}: {error.problem}.") from None
        except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
            raise forms.ValidationError(f"This cannot be read: {error}") from None
        if not isinstance(found, self.kind):
            wanted = f"a list of {self.of}: [ … ]" if self.kind is list else "one object: { … }"
            raise forms.ValidationError(f"This has to be {wanted}.")
        return clean_json(found)


class PolicyField(StructuredField):
    """The rules of a policy, each of them right."""

    of = "rules"
    refused = forms.ValidationError

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(list, **kwargs)

    def clean(self, value: Any) -> list[Any]:
        written: list[Any] = super().clean(value)
        try:
            read_policy(written)
        except PolicyError as error:
            raise forms.ValidationError(list(error.problems)) from None
        return written

    def read(self, text: str) -> Policy:
        """Raises `refused`."""
        return read_policy(self.clean(text))


class ContextField(StructuredField):
    """When and how a context is compacted: what differs from the defaults."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(dict, **kwargs)

    def clean(self, value: Any) -> dict[str, Any]:
        written: dict[str, Any] = super().clean(value)
        try:
            context_policy(written)
        except ValueError as error:
            raise forms.ValidationError(str(error)) from None
        return written


class VersionForm(forms.Form):
    """What every version says."""

    provider = forms.ChoiceField(choices=ProfileVersion.Provider.choices)
    base_url = forms.CharField(required=False, max_length=500)
    api_key = forms.CharField(required=False, max_length=2000, strip=True)
    keep_key = forms.BooleanField(required=False)
    model = forms.CharField(max_length=200, error_messages={"required": "Name the model."})
    system_prompt = forms.CharField(required=False, max_length=200_000)
    tools = forms.MultipleChoiceField(required=False)
    declared_tools = StructuredField(list)
    http = StructuredField(dict)
    policy = PolicyField()
    mcp_servers = StructuredField(list)
    detectors = StructuredField(dict)
    context_policy = ContextField()
    scenario = forms.ChoiceField(required=False)
    scenario_text = forms.CharField(required=False, strip=False, max_length=MAX_SOURCE_CHARS)
    options = StructuredField(dict)
    temperature = forms.FloatField(required=False, min_value=0, max_value=2)
    max_output_tokens = forms.IntegerField(min_value=16, max_value=1_000_000, initial=4096)
    context_window_tokens = forms.IntegerField(min_value=1024, max_value=100_000_000, initial=128_000)
    max_steps = forms.IntegerField(min_value=1, max_value=10_000, initial=100)
    model_timeout_s = forms.IntegerField(min_value=1, max_value=3600, initial=120)
    approval_expires_s = forms.IntegerField(min_value=60, max_value=30 * 86_400, initial=86_400)
    keep_last = forms.IntegerField(min_value=1, max_value=10_000, initial=LAST)
    keep_every = forms.IntegerField(min_value=0, max_value=10_000, initial=EVERY)
    input_usd_per_mtok = forms.DecimalField(required=False, **PRICE)
    output_usd_per_mtok = forms.DecimalField(required=False, **PRICE)
    local_allowed = forms.BooleanField(required=False)
    fallback = forms.ChoiceField(required=False, error_messages={"invalid_choice": "This one cannot be the fallback."})
    fallback_wait_s = forms.IntegerField(required=False, min_value=0, max_value=LONGEST_WAIT_S)
    fallback_on_open = forms.BooleanField(required=False, initial=True)

    def __init__(self, *args: Any, fallbacks: Sequence[ProfileVersion] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        offered = [("", "None: the task waits"), *((str(one.pk), f"{one}: {one.model}") for one in fallbacks)]
        self.fields["fallback"].choices = offered  # type: ignore[attr-defined]
        names = [spec.name for spec in builtin_tools()]
        self.fields["tools"].choices = [(name, name) for name in names]  # type: ignore[attr-defined]
        self.fields["tools"].initial = names
        shipped = [("", "–"), *((name, name) for name in scenarios())]
        self.fields["scenario"].choices = shipped  # type: ignore[attr-defined]

    def clean_base_url(self) -> str:
        url = self.cleaned_data["base_url"].strip()
        if url:
            _check_base_url(url)
        return url

    def clean_system_prompt(self) -> str:
        return clean_text(self.cleaned_data["system_prompt"])

    def clean(self) -> dict[str, Any]:
        data = super().clean() or self.cleaned_data
        if data.get("provider") == ProfileVersion.Provider.SCRIPTED:
            self._clean_scenario(data)
        elif data.get("provider") == ProfileVersion.Provider.ANTHROPIC and not (
            data.get("api_key") or data.get("keep_key")
        ):
            self.add_error("api_key", "Anthropic needs a key.")
        if "tools" in data and "declared_tools" in data:
            problem = tools_problem(data["tools"], data["declared_tools"])
            if problem:
                self.add_error("declared_tools", problem)
        for problem in detector_problems(data.get("detectors") or {}):
            self.add_error("detectors", problem)
        problem = http_problem(data["http"]) if data.get("http") else ""
        if problem:
            self.add_error("http", problem)
        problem = servers_problem(data.get("mcp_servers") or [], data.get("declared_tools") or [])
        if problem:
            self.add_error("mcp_servers", problem)
        if data.get("fallback"):
            try:
                read_fallback(self.fallback_fields(data))
            except ValueError as error:
                self.add_error("fallback", str(error))
        return data

    @staticmethod
    def fallback_fields(data: dict[str, Any]) -> dict[str, Any]:
        if not data.get("fallback"):
            return {}
        wait_s, on_open = data.get("fallback_wait_s"), bool(data.get("fallback_on_open"))
        return {"profile_version": int(data["fallback"]), "when_wait_over_s": wait_s, "on_circuit_open": on_open}

    def _clean_scenario(self, data: dict[str, Any]) -> None:
        found = probe("scripted", base_url="", api_key="", model="", options=self.provider_options(data))
        if not found.works:
            field = "scenario_text" if data.get("scenario_text", "").strip() else "scenario"
            self.add_error(field, found.detail or found.words)

    @staticmethod
    def provider_options(data: dict[str, Any]) -> dict[str, Any]:
        options = dict(data.get("options") or {})
        if data.get("provider") == ProfileVersion.Provider.SCRIPTED:
            if data.get("scenario_text", "").strip():
                options["scenario_text"] = clean_text(data["scenario_text"].replace("\r\n", "\n"))
            elif data.get("scenario"):
                options["scenario"] = data["scenario"]
        return options

    def version_fields(self) -> dict[str, Any]:
        """As the actions want them."""
        data = self.cleaned_data
        fields = {name: data[name] for name in COPIED}
        return fields | {
            "declared_tools": data["declared_tools"],
            "http": data["http"],
            "policy": data["policy"],
            "mcp_servers": data["mcp_servers"],
            "detectors": data["detectors"],
            "context_policy": data["context_policy"],
            "provider_options": self.provider_options(data),
            "fallback": self.fallback_fields(data),
        }


class ProfileForm(VersionForm):
    """A new profile: its name and whose it is, and its version 1. `place`: a workspace's id, or "site"."""

    name = forms.CharField(max_length=80, error_messages={"required": "Give the profile a name."})
    place = forms.ChoiceField(error_messages={"required": "Choose who may use it."})

    def __init__(self, user: User, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, fallbacks=fallbacks_for(user), **kwargs)
        self.operated: QuerySet[Workspace] = operated_workspaces(user)
        choices = [(str(workspace.pk), workspace.name) for workspace in self.operated]
        if user.is_staff:
            choices.insert(0, (SITE, "Every workspace of this site"))
        self.fields["place"].choices = choices  # type: ignore[attr-defined]

    def workspace(self) -> Workspace | None:
        place = self.cleaned_data["place"]
        return None if place == SITE else self.operated.get(pk=place)


def fallbacks_for(user: User, profile: AgentProfile | None = None) -> list[ProfileVersion]:
    """Whose model may answer in the place of a profile's own (None: of a new one): the newest version of each."""
    usable = usable_profiles(user)
    if profile is not None:
        usable = usable.filter(Q(workspace=None) | Q(workspace=profile.workspace_id)).exclude(pk=profile.pk)
    newest = (
        ProfileVersion.objects.filter(profile__in=usable)
        .order_by("profile", "-number")
        .distinct("profile")
        .select_related("profile")
    )
    return sorted((one for one in newest if not one.fallback), key=lambda one: one.profile.name)


def initial_of(version: ProfileVersion) -> dict[str, Any]:
    """The next version's form begins as this one, without the key."""
    options = dict(version.provider_options)
    found = {name: getattr(version, name) for name in COPIED}
    return found | {
        "scenario": options.pop("scenario", ""),
        "scenario_text": options.pop("scenario_text", ""),
        "options": json.dumps(options, indent=2) if options else "",
        "declared_tools": json.dumps(version.declared_tools, indent=2) if version.declared_tools else "",
        "http": json.dumps(version.http, indent=2) if version.http else "",
        "policy": _policy_text(version.policy),
        "mcp_servers": json.dumps(version.mcp_servers, indent=2) if version.mcp_servers else "",
        "detectors": json.dumps(version.detectors, indent=2) if version.detectors else "",
        "context_policy": json.dumps(version.context_policy, indent=2) if version.context_policy else "",
        "keep_key": version.key_id is not None,
        "fallback": str(version.fallback.get("profile_version", "")),
        "fallback_wait_s": version.fallback.get("when_wait_over_s"),
        "fallback_on_open": version.fallback.get("on_circuit_open", True),
        "input_usd_per_mtok": _plain(version.input_usd_per_mtok),
        "output_usd_per_mtok": _plain(version.output_usd_per_mtok),
    }


def _policy_text(rules: list[dict[str, Any]]) -> str:
    """As YAML, with the fields in the order in which the help names them."""
    if not rules:
        return ""
    order = list(dict.fromkeys((*CALL_FIELDS, *RESULT_FIELDS)))
    written = [{name: rule[name] for name in order if name in rule} for rule in rules]
    return yaml.safe_dump(written, sort_keys=False, allow_unicode=True, width=110)


def _plain(amount: Any) -> str:
    return "" if amount is None else f"{amount:f}".rstrip("0").rstrip(".")


def _check_base_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise forms.ValidationError("This is not an address.") from None
    if parts.scheme not in ("http", "https") or not host or any(char.isspace() for char in url):
        raise forms.ValidationError("Give an address that begins with https:// (or http://) and names a host.")
    if "@" in parts.netloc:
        raise forms.ValidationError("No name or password in the address: it is shown. The key has a field of its own.")
    if parts.query or parts.fragment:
        raise forms.ValidationError("The address ends with a path, such as /v1; nothing after ? or #.")
