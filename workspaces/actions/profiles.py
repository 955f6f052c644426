"""Agent profiles: a new version for every change, a key that is sealed when it comes in."""

from __future__ import annotations

from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import Max

from workspaces.domain.text import clean_text
from workspaces.models import AgentProfile, AuditEntry, ProfileVersion, ProviderKey, User, Workspace

from .clock import database_now
from .errors import Refused

VERSION_FIELDS = frozenset(
    field.name
    for field in ProfileVersion._meta.get_fields()
    if field.name not in {"id", "profile", "number", "key", "created_by", "created_at", "tasks"}
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
            return _add_version(profile, 1, actor, _seal(api_key, actor), settings)
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
        if key is None and keep_key and newest is not None and newest.key is not None:
            same_place = (newest.provider, newest.base_url) == (
                settings.get("provider", newest.provider),
                settings.get("base_url", newest.base_url),
            )
            if not same_place:
                raise Refused("The address changed: type the key for the new address, it is not carried over.")
            key = newest.key
        number = (profile.versions.aggregate(Max("number"))["number__max"] or 0) + 1
        return _add_version(profile, number, actor, key, settings)


def _add_version(
    profile: AgentProfile, number: int, actor: User, key: ProviderKey | None, settings: dict[str, Any]
) -> ProfileVersion:
    unknown = set(settings) - VERSION_FIELDS
    if unknown:
        raise TypeError(f"not fields of a profile version: {sorted(unknown)}")
    version = ProfileVersion.objects.create(profile=profile, number=number, key=key, created_by=actor, **settings)
    AuditEntry.objects.create(
        actor=actor,
        action="profile.version",
        workspace=profile.workspace,
        data={"profile": profile.name, "version": number},
        at=database_now(),
    )
    return version


def _seal(api_key: str, actor: User) -> ProviderKey | None:
    api_key = api_key.strip()
    return ProviderKey.objects.create(**ProviderKey.sealed_fields(api_key), created_by=actor) if api_key else None
