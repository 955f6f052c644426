"""Which tools of MCP servers a profile version has now: those whose offered definition a person has accepted."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from cryptography.fernet import InvalidToken
from django.conf import settings

from workspaces.domain.diffs import unified_diff
from workspaces.domain.effects import Effect
from workspaces.domain.mcp import McpServer, read_mcp_servers, shown
from workspaces.models import ProfileVersion, ToolDefinition, ToolServer
from workspaces.tools.base import Tool
from workspaces.tools.mcp import McpTool, WithheldTool

S = ToolDefinition.State
WHY = {
    S.QUARANTINED: "its definition is new, and no operator has accepted it yet",
    S.REPLACED: "an earlier definition of it is back, and no operator has accepted it again yet",
    S.REFUSED: "an operator has refused its definition",
}
CHANGED = "its definition has changed since an operator accepted it, and nobody has accepted the new one yet"
GONE = "its server does not offer it any more"


def servers_of(version: ProfileVersion) -> list[McpServer]:
    """With their secrets. Raises InvalidToken."""
    return _servers_of(version.pk) if version.mcp_servers else []


@lru_cache(maxsize=256)
def _servers_of(version_id: int) -> list[McpServer]:
    version = ProfileVersion.objects.select_related("tool_secrets").get(pk=version_id)  # immutable, so once is enough
    return read_mcp_servers(version.opened_tools()[1])


def mcp_tools(version: ProfileVersion) -> tuple[dict[str, Tool], dict[str, WithheldTool]]:
    """Name → tool: those that may be called now, and those that may not, which say why."""
    if not version.mcp_servers:
        return {}, {}
    try:
        servers = {(server.name, server.place): server for server in servers_of(version)}
    except InvalidToken:  # a server that needs a token is not asked without one
        return {}, {}
    rows = ToolDefinition.objects.filter(server__profile_id=version.profile_id).select_related("server")
    tools: dict[str, Tool] = {}
    withheld: dict[str, WithheldTool] = {}
    found = list(rows.order_by("server__name", "name", "offered", "pk"))
    accepted = {(row.server_id, row.tool) for row in found if row.state == S.ACCEPTED}
    for row in found:
        server = servers.get((row.server.name, row.server.place))
        if server is None or not server.lets_through(row.tool):
            continue
        if row.state == S.ACCEPTED and row.offered:
            tools[row.name] = McpTool(server, row.name, row.definition, private=settings.HTTP_PRIVATE)
        elif row.offered:
            known = row.state == S.QUARANTINED and (row.server_id, row.tool) in accepted
            withheld[row.name] = WithheldTool(row.name, CHANGED if known else WHY[S(row.state)])
        elif row.state == S.ACCEPTED:
            withheld.setdefault(row.name, WithheldTool(row.name, GONE))
    return tools, {name: tool for name, tool in withheld.items() if name not in tools}


@dataclass(frozen=True, slots=True)
class ListedTool:
    """A definition for people. `diff`: against the one that was accepted, if that is another."""

    row: ToolDefinition
    effect: Effect
    hints: tuple[str, ...]
    diff: str
    waits: bool
    changed: bool


@dataclass(frozen=True, slots=True)
class ListedServer:
    """`row` is None when it was never looked at."""

    server: McpServer
    row: ToolServer | None
    tools: tuple[ListedTool, ...]
    waiting: int


_HINTS = {
    "readOnlyHint": "says that it only reads",
    "destructiveHint": "says that it can destroy",
    "idempotentHint": "says that a repeat does no more",
    "openWorldHint": "says that it reaches outside",
}


def listed_servers(version: ProfileVersion) -> list[ListedServer]:
    """What the servers of a version offered when they were last looked at, and what people have said of it."""
    rows = {
        (row.name, row.place): row
        for row in ToolServer.objects.filter(profile_id=version.profile_id).prefetch_related("definitions__decided_by")
    }
    found = []
    for server in read_mcp_servers(version.mcp_servers):
        row = rows.get((server.name, server.place))
        definitions = sorted(row.definitions.all(), key=lambda one: (one.name, one.pk)) if row else []
        accepted = {one.tool: one for one in definitions if one.state == S.ACCEPTED}
        now = {one.tool for one in definitions if one.offered}
        tools = tuple(
            _listed(server, one, accepted.get(one.tool))
            for one in definitions
            if server.lets_through(one.tool) and (one.offered or (one.state == S.ACCEPTED and one.tool not in now))
        )
        found.append(ListedServer(server, row, tools, sum(tool.waits for tool in tools)))
    return found


def _listed(server: McpServer, row: ToolDefinition, accepted: ToolDefinition | None) -> ListedTool:
    hints = row.definition.get("annotations") or {}
    before = shown(accepted.definition) if accepted is not None and accepted.pk != row.pk else ""
    return ListedTool(
        row=row,
        effect=server.effect_of(row.definition),
        hints=tuple(words for name, words in _HINTS.items() if hints.get(name) is True),
        diff=unified_diff(before, shown(row.definition), row.tool) if before else "",
        waits=row.offered and row.state in ToolDefinition.WAITING,
        changed=bool(before),
    )
