"""Agent profiles: a new version for every change, a key that is sealed when it comes in."""

from __future__ import annotations

import json
from typing import Any

from cryptography.fernet import InvalidToken
from django.db import IntegrityError, transaction
from django.db.models import Max

from workspaces.domain.fallbacks import read_fallback
from workspaces.domain.policy import PolicyError, read_policy
from workspaces.domain.text import clean_text
from workspaces.domain.tool_secrets import KEPT, MissingSecret, take_out
from workspaces.models import AgentProfile, AuditEntry, ProfileVersion, ProviderKey, User, Workspace

from .clock import database_now
from .errors import Refused

VERSION_FIELDS = frozenset(
    field.name
    for field in ProfileVersion._meta.get_fields()
    if field.name
    not in {"id", "profile", "number", "key", "headers", "tool_secrets", "created_by", "created_at", "tasks"}
)


def create_profile(
    *, name: str, workspace: Workspace | None, actor: User, api_key: str = "", **settings: Any
) -> ProfileVersion:
    """A profile with its version 1. `settings` are ProfileVersion's fields. Raises Refused."""
    name = clean_text(name).strip()
    if not name:
        raise Refused("Give the profile a name.")
    try:
        with transaction.atomic():
            profile = AgentProfile.objects.create(name=name[:80], workspace=workspace, created_by=actor)
            headers = headers_of(settings.get("provider_options", {}), None, same_place=True)
            settings, secrets = tools_of_settings(settings, None)
            return _add_version(profile, 1, actor, _seal(api_key, actor), headers, secrets, settings)
    except IntegrityError as error:
        raise Refused(f"There is already a profile named {name}.") from error


def add_version(
    profile: AgentProfile, *, actor: User, api_key: str = "", keep_key: bool = True, **settings: Any
) -> ProfileVersion:
    """The next version. An empty `api_key` with `keep_key` goes on with the newest version's key.

    The key is kept only for the address that it was given for: with another base URL or provider it has to
    be typed again, so that nobody can send a colleague's key to a server of their own. Raises Refused.
    """
    with transaction.atomic():
        AgentProfile.objects.select_for_update().get(pk=profile.pk)
        newest = profile.versions.order_by("-number").select_related("key").first()
        key = _seal(api_key, actor)
        same_place = newest is not None and (newest.provider, newest.base_url) == (
            settings.get("provider", newest.provider),
            settings.get("base_url", newest.base_url),
        )
        headers = headers_of(settings.get("provider_options", {}), newest, same_place=same_place)
        if key is None and keep_key and newest is not None and newest.key is not None:
            if not same_place:
                raise Refused("The address changed: type the key for the new address, it is not carried over.")
            key = newest.key
        settings, secrets = tools_of_settings(settings, newest)
        number = (profile.versions.aggregate(Max("number"))["number__max"] or 0) + 1
        return _add_version(profile, number, actor, key, headers, secrets, settings)


def tools_of_settings(settings: dict[str, Any], newest: ProfileVersion | None) -> tuple[dict[str, Any], dict[str, str]]:
    """The settings with their tools' secrets taken out, and those. Raises Refused."""

    def known() -> dict[str, str]:
        return newest.opened_tool_secrets() if newest is not None else {}

    try:
        http, servers, secrets = take_out(settings.get("http", {}), settings.get("mcp_servers", []), known)
    except MissingSecret as missing:
        raise Refused(str(missing)) from None
    except InvalidToken:
        raise Refused("The stored values cannot be opened: the site's encryption key has changed. Type them.") from None
    return {**settings, "http": http, "mcp_servers": servers}, secrets


def headers_of(options: dict[str, Any], newest: ProfileVersion | None, *, same_place: bool) -> dict[str, str]:
    """The options' request headers with their values; where KEPT stands for one, it is the newest version's.

    As with a key, only for the address that it was given for. Raises Refused.
    """
    given = options.get("headers") or {}
    if not isinstance(given, dict) or any(isinstance(value, dict | list) for value in given.values()):
        raise Refused("The headers have to be one object of names and texts: { X-Name: value }.")
    headers = {str(name): str(value) for name, value in given.items()}
    kept = [name for name, value in headers.items() if value == KEPT]
    if not kept:
        return headers
    if newest is None or not same_place:
        raise Refused(f"The address is another: type the value of the header {kept[0]} for it, it is not carried over.")
    try:
        known = newest.opened_headers()
    except InvalidToken:
        raise Refused(
            "The stored headers cannot be opened: the site's encryption key has changed. Type their values."
        ) from None
    for name in kept:
        if name not in known:
            raise Refused(f"The newest version has no header {name}: type its value.")
        headers[name] = known[name]
    return headers


def _add_version(
    profile: AgentProfile,
    number: int,
    actor: User,
    key: ProviderKey | None,
    headers: dict[str, str],
    secrets: dict[str, str],
    settings: dict[str, Any],
) -> ProfileVersion:
    unknown = set(settings) - VERSION_FIELDS
    if unknown:
        raise TypeError(f"not fields of a profile version: {sorted(unknown)}")
    try:
        read_policy(settings.get("policy", []))
    except PolicyError as error:
        raise Refused(f"The policy cannot be taken. {error}") from None
    _check_fallback(profile, settings.get("fallback"))
    sealed = _seal(json.dumps(headers), actor, hint=False) if headers else None
    if headers:
        options = {**settings["provider_options"], "headers": dict.fromkeys(headers, KEPT)}
        settings = {**settings, "provider_options": options}
    version = ProfileVersion.objects.create(
        profile=profile,
        number=number,
        key=key,
        headers=sealed,
        tool_secrets=_seal(json.dumps(secrets), actor, hint=False) if secrets else None,
        created_by=actor,
        **settings,
    )
    AuditEntry.objects.create(
        actor=actor,
        action="profile.version",
        workspace=profile.workspace,
        data={"profile": profile.name, "version": number},
        at=database_now(),
    )
    return version


def _check_fallback(profile: AgentProfile, stored: dict[str, Any] | None) -> None:
    """Raises Refused. One that has a fallback itself is none: a call goes from hand to hand once at most."""
    try:
        policy = read_fallback(stored)
    except ValueError as error:
        raise Refused(str(error)) from None
    if policy is None:
        return
    answers = ProfileVersion.objects.select_related("profile").filter(pk=policy.profile_version).first()
    if answers is None or answers.profile.workspace_id not in (None, profile.workspace_id):
        raise Refused("The fallback has to be a profile of the whole site, or of this profile's workspace.")
    if answers.profile_id == profile.pk:
        raise Refused("A profile is not its own fallback: choose another one.")
    if answers.fallback:
        raise Refused(f"{answers} has a fallback itself: choose one that has none.")


def _seal(secret: str, actor: User, *, hint: bool = True) -> ProviderKey | None:
    """`hint`: its last characters may be shown, to tell keys apart; equal keys are known to be equal."""
    secret = secret.strip()
    if not secret:
        return None
    fields = ProviderKey.sealed_fields(secret)
    told = {"fingerprint": ProviderKey.fingerprint_of(secret)} if hint else {"hint": ""}
    return ProviderKey.objects.create(**fields | told, created_by=actor)
