"""What a profile version amounts to: its tools."""

from __future__ import annotations

from functools import lru_cache

from workspaces.models import ProfileVersion
from workspaces.tools.base import Tool
from workspaces.tools.registry import build_tools


def tools_of(version: ProfileVersion) -> dict[str, Tool]:
    """Name → tool, built-in and declared, as the version names them."""
    return _tools_of(version.pk)


@lru_cache(maxsize=256)
def _tools_of(version_id: int) -> dict[str, Tool]:
    version = ProfileVersion.objects.get(pk=version_id)  # immutable, so that once is enough
    return build_tools(version.tools, version.declared_tools)
