"""What a profile version amounts to: its tools."""

from __future__ import annotations

from workspaces.models import ProfileVersion
from workspaces.tools.base import Tool
from workspaces.tools.registry import build_tools


def tools_of(version: ProfileVersion) -> dict[str, Tool]:
    """Name → tool, built-in and declared, as the version names them."""
    return build_tools(version.tools, version.declared_tools)
