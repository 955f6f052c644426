"""Which tools a profile can have, for the pages that choose them, and whether a choice can be built."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from workspaces.domain.http_rules import BadRules, read_http_rules
from workspaces.domain.mcp import read_mcp_servers
from workspaces.tools.base import ToolSpec
from workspaces.tools.declared import DeclarationError
from workspaces.tools.registry import BUILTIN_NAMES, build_tools


def builtin_tools() -> list[ToolSpec]:
    return [tool.spec for tool in build_tools(BUILTIN_NAMES).values()]


def tools_problem(names: Sequence[str], declared: Sequence[Mapping[str, Any]]) -> str:
    """Why these tools cannot be had together, or an empty string."""
    try:
        build_tools(names, declared)
    except DeclarationError as error:
        return str(error)
    return ""


def http_problem(said: Mapping[str, Any]) -> str:
    """Why this cannot be what a profile says about HTTP requests, or an empty string."""
    try:
        read_http_rules(said)
    except BadRules as error:
        return str(error)
    return ""


def servers_problem(said: Sequence[Any], declared: Sequence[Mapping[str, Any]]) -> str:
    """Why these cannot be a profile's MCP servers beside its declared tools, or an empty string."""
    try:
        servers = read_mcp_servers(said)
    except BadRules as error:
        return str(error)
    for server in servers:
        taken = next((one["name"] for one in declared if str(one.get("name", "")).startswith(f"{server.name}__")), None)
        if taken:
            return f"name: the declared tool {taken} is named like one of the server {server.name}"
    return ""
