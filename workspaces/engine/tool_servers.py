"""MCP servers in a run: looked at once a task, compared at each call, and what nobody has accepted yet is told.

A look never stops a task: what a server offers and nobody knows is withheld, the trace and an incident say so. What was
found is known from then on, so it is written down in one transaction with the event and the incident that tell it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from hashlib import sha256

from cryptography.fernet import InvalidToken
from django.conf import settings
from django.db import DatabaseError

from workspaces.actions.errors import Refused
from workspaces.actions.incidents import report
from workspaces.actions.pen import Pen, writing
from workspaces.actions.tool_servers import record_listing, record_problem
from workspaces.domain.events import EventKind
from workspaces.domain.hidden import Hidden
from workspaces.domain.incidents import Evidence, Finding, IncidentKind, Severity
from workspaces.domain.mcp import McpServer, Offered
from workspaces.domain.text import clip
from workspaces.engine.disk import Disk
from workspaces.engine.run import Run
from workspaces.models import ProfileVersion, Step, ToolDefinition, ToolServer
from workspaces.queries.tool_servers import servers_of
from workspaces.tools.mcp import look
from workspaces.tools.mcp_session import SessionFailed
from workspaces.wire.driving import CallInterrupted

logger = logging.getLogger(__name__)

PAGE_LOOK_S = 15.0
LOOK_S = 60.0  # a server that needs longer to list its tools is looked at again by the next task
NAMED = 20
S = ToolDefinition.State


def look_at_servers(run: Run, disk: Disk) -> None:
    """Before the first step, each server that was not looked at since the task was made.

    What a server in the sandbox writes when it starts is in the checkpoint that follows.
    """
    if not run.version.mcp_servers:
        return
    try:
        servers = servers_of(run.version)
    except InvalidToken:
        logger.warning("task %s: the secrets of its MCP servers cannot be opened", run.task.pk)
        return
    profile = run.version.profile_id
    fresh = ToolServer.objects.filter(profile_id=profile, looked_at__gte=run.task.created_at)
    known = set(fresh.values_list("name", "place"))
    for server in servers:
        if (server.name, server.place) not in known:
            _look(run, disk, server)


def _look(run: Run, disk: Disk, server: McpServer) -> None:
    stdio = server.transport == "stdio"
    sandbox = disk.awake() if stdio else None
    if stdio:
        disk.changed()
    try:
        offered = look(
            server,
            private=settings.HTTP_PRIVATE,
            sandbox=sandbox,
            key=f"look-{run.task.pk}",
            interrupt=run.orders.interrupt,
            timeout_s=min(server.timeout_s, LOOK_S),
        )
    except CallInterrupted:
        run.obey(disk)
        return
    except SessionFailed as error:
        problem = Hidden(server.secrets).off(str(error))
        with writing(run.task.pk, fence=run.fence) as pen:
            record_problem(run.version.profile_id, server, problem)
            pen.event(EventKind.TOOLS_LOOKED, server=server.name, problem=clip(problem, 2_000))
        return
    with writing(run.task.pk, fence=run.fence) as pen:
        seen = record_listing(run.version.profile_id, server, offered)
        waiting = list(
            ToolDefinition.objects.filter(server=seen.server, offered=True, state__in=ToolDefinition.WAITING).order_by(
                "name"
            )
        )
        seq = _event(pen, server, offered, waiting, None)
        _report(pen, run, server, waiting, seq, None)


def look_from_page(version: ProfileVersion, name: str) -> str:
    """Ask a server over HTTP what it offers, for a person who waits; what came of it, in words. Raises Refused."""
    try:
        server = next((one for one in servers_of(version) if one.name == name), None)
    except InvalidToken:
        raise Refused("The stored values cannot be opened: the site's encryption key has changed.") from None
    if server is None:
        raise Refused("The newest version has no such server.")
    if server.transport != "http":
        raise Refused("A server that runs in a sandbox is looked at when a task with this profile begins.")
    try:
        offered = look(server, private=settings.HTTP_PRIVATE, timeout_s=min(server.timeout_s, PAGE_LOOK_S))
    except SessionFailed as error:
        problem = Hidden(server.secrets).off(str(error))
        record_problem(version.profile_id, server, problem)
        return f"{name} could not be looked at: {clip(problem, 300)}"
    seen = record_listing(version.profile_id, server, offered)
    return f"{name} offers {len(offered)} tools; {len(seen.fresh)} of them are new or changed since the last look."


class Watcher:
    """Is told what a server offers when a tool of it is about to be called."""

    def __init__(self, run: Run, step: Step | None) -> None:
        self.run = run
        self.step = step

    def __call__(self, server: McpServer, offered: Sequence[Offered]) -> None:
        """Never costs the call its answer: what cannot be written now is found again at the next call."""
        try:
            self._record(server, offered)
        except DatabaseError as error:
            logger.warning("task %s: what %s offers was not written down: %s", self.run.task.pk, server.name, error)

    def _record(self, server: McpServer, offered: Sequence[Offered]) -> None:
        run = self.run
        with writing(run.task.pk, fence=run.fence) as pen:
            seen = record_listing(run.version.profile_id, server, offered, looked=False)
            if not seen.fresh and not seen.gone:
                return
            waiting = [row for row in seen.fresh if row.state in ToolDefinition.WAITING]
            step = self.step.number if self.step else None
            seq = _event(pen, server, offered, waiting, step, gone=seen.gone)
            _report(pen, run, server, waiting, seq, step)


def _event(
    pen: Pen,
    server: McpServer,
    offered: Sequence[Offered],
    waiting: Sequence[ToolDefinition],
    step: int | None,
    gone: Sequence[str] = (),
) -> int:
    return pen.event(
        EventKind.TOOLS_LOOKED,
        step=step,
        server=server.name,
        offered=len(offered),
        waiting=[row.name for row in waiting][:NAMED],
        unusable=[{"tool": one.tool, "problem": clip(one.problem, 200)} for one in offered if one.problem][:NAMED],
        gone=list(gone)[:NAMED],
    )


def _report(
    pen: Pen, run: Run, server: McpServer, waiting: Sequence[ToolDefinition], seq: int, step: int | None
) -> None:
    """A changed definition each, all new ones of a server together."""
    accepted = set(
        ToolDefinition.objects.filter(server__in={row.server_id for row in waiting}, state=S.ACCEPTED).values_list(
            "tool", flat=True
        )
    )
    where = f"/profiles/{run.version.profile_id}/tools/"
    for row in waiting:
        if row.tool in accepted:
            words = (
                f"The server {server.name} offers another definition of {row.name} than the one that was accepted. The "
                f"tool is not called until an operator has accepted the new one: {where}"
            )
            _open(pen, server, "changed_definition", Severity.ERROR, words, seq, step, row.tool)
    new = [row for row in waiting if row.tool not in accepted]
    if new:
        names = ", ".join(row.name for row in new[:NAMED]) + (" …" if len(new) > NAMED else "")
        words = (
            f"The server {server.name} offers {len(new)} definition{'s' if len(new) > 1 else ''} that nobody has "
            f"accepted: {names}. They cannot be called until an operator does: {where}"
        )
        _open(pen, server, "new_definition", Severity.WARNING, words, seq, step, "new")


def _open(
    pen: Pen, server: McpServer, pattern: str, severity: Severity, words: str, seq: int, step: int | None, what: str
) -> None:
    report(
        pen,
        Finding(
            kind=IncidentKind.TOOL_CHANGED,
            severity=severity,
            pattern=pattern,
            first_seq=seq,
            last_seq=seq,
            evidence=(Evidence(seq, step, f"what {server.name} offered"),),
            words=words,
            cause=f"tool_changed/{pattern}/{server.name}",
            fingerprint=sha256(f"tool_changed/{server.name}/{server.place}/{what}".encode()).hexdigest(),
        ),
    )
