"""What a profile version amounts to: its tools, its policy."""

from __future__ import annotations

from functools import lru_cache

from cryptography.fernet import InvalidToken
from django.conf import settings

from workspaces.domain.detection import Detection, detection_of
from workspaces.domain.fallbacks import Fallback, read_fallback
from workspaces.domain.http_rules import HttpRules, read_http_rules
from workspaces.domain.policy import Policy, read_policy
from workspaces.models import ProfileVersion
from workspaces.queries.tool_servers import mcp_tools
from workspaces.tools.base import Tool
from workspaces.tools.registry import build_tools


def tools_of(version: ProfileVersion) -> dict[str, Tool]:
    """Name → tool: those that the version names itself, and those of its MCP servers that may be called now."""
    return own_tools_of(version) | mcp_tools(version)[0]


def own_tools_of(version: ProfileVersion) -> dict[str, Tool]:
    """Those that are the same at all times."""
    return _tools_of(version.pk)


@lru_cache(maxsize=256)
def _tools_of(version_id: int) -> dict[str, Tool]:
    version = ProfileVersion.objects.select_related("tool_secrets").get(pk=version_id)  # immutable, so once is enough
    return build_tools(
        version.tools, version.declared_tools, http=http_rules_of(version), private=settings.HTTP_PRIVATE
    )


def http_rules_of(version: ProfileVersion) -> HttpRules | None:
    """With the values of its headers. None: the version has no http_request."""
    if not version.http:
        return None
    try:
        opened, _ = version.opened_tools()
    except InvalidToken:  # a request without its key is another request: none is made
        return HttpRules()
    return read_http_rules(opened)


def policy_of(version: ProfileVersion) -> Policy:
    """The rules by which the version's calls are judged and its results are named."""
    return _policy_of(version.pk)


@lru_cache(maxsize=256)
def _policy_of(version_id: int) -> Policy:
    return read_policy(ProfileVersion.objects.values_list("policy", flat=True).get(pk=version_id))


def fallback_of(version: ProfileVersion) -> tuple[Fallback, ProfileVersion] | None:
    """When another version's model answers in this one's place, and that version. None where there is none."""
    try:
        policy = read_fallback(version.fallback)
    except ValueError:  # saved under other rules
        return None
    found = fallback_version(version) if policy is not None else None
    return (policy, found) if policy is not None and found is not None else None


def fallback_version(version: ProfileVersion) -> ProfileVersion | None:
    named = version.fallback.get("profile_version") if version.fallback else None
    if named is None:
        return None
    return ProfileVersion.objects.select_related("profile", "key", "headers").filter(pk=named).first()


def detectors_of(version: ProfileVersion) -> Detection:
    """What a version's detectors look for, and what is done about it."""
    return _detectors_of(version.pk)


@lru_cache(maxsize=256)
def _detectors_of(version_id: int) -> Detection:
    """One that was saved under other rules has the usual numbers rather than no detection."""
    settings = ProfileVersion.objects.values_list("detectors", flat=True).get(pk=version_id)
    try:
        return detection_of(settings)
    except ValueError:
        return detection_of({})
