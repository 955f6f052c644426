"""What MCP servers offer, written down; and a person's word on it, without which no definition is used."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db import transaction

from workspaces.domain.mcp import McpServer, Offered
from workspaces.domain.text import clean_text, clip
from workspaces.models import AgentProfile, AuditEntry, ToolDefinition, ToolServer, User

from .clock import database_now
from .errors import Refused
from .words import taken

S = ToolDefinition.State


@dataclass(frozen=True, slots=True)
class Seen:
    """What a list changed. `fresh`: offered now, and not before; `gone`: no longer offered."""

    server: ToolServer
    fresh: tuple[ToolDefinition, ...] = ()
    gone: tuple[str, ...] = ()


def record_listing(profile_id: int, server: McpServer, offered: Sequence[Offered], *, looked: bool = True) -> Seen:
    """A server's list as it is now. A definition that was never seen waits for a person, as does one that was replaced.

    Writing the same list again changes nothing but when it was looked at (with `looked`).
    """
    with transaction.atomic():
        row = _locked(profile_id, server)
        now = database_now()
        usable = {one.tool: one for one in offered if not one.problem}
        unusable = [{"tool": one.tool, "problem": clip(one.problem, 500)} for one in offered if one.problem][:200]
        before = {found.tool: found for found in row.definitions.filter(offered=True)}
        if looked or unusable != row.unusable:
            row.looked_at, row.problem, row.unusable = now, "", unusable
            row.save(update_fields=["looked_at", "problem", "unusable"])
        left = [
            tool
            for tool, found in before.items()
            if tool not in usable or usable[tool].fingerprint != found.fingerprint
        ]
        row.definitions.filter(offered=True, tool__in=left).update(offered=False)
        fresh = [_offer(row, one, now) for tool, one in usable.items() if tool not in before or tool in left]
        gone = tuple(sorted(tool for tool in left if tool not in usable))
        return Seen(row, tuple(fresh), gone)


def record_problem(profile_id: int, server: McpServer, problem: str) -> ToolServer:
    """It could not be looked at. What was accepted stays so: it is compared again at each call."""
    with transaction.atomic():
        row = _locked(profile_id, server)
        row.looked_at, row.problem = database_now(), clip(clean_text(problem), 2_000)
        row.save(update_fields=["looked_at", "problem"])
        return row


def _locked(profile_id: int, server: McpServer) -> ToolServer:
    ToolServer.objects.get_or_create(
        profile_id=profile_id,
        name=server.name,
        place=server.place,
        defaults={"transport": server.transport, "address": clip(clean_text(server.words), 2_000)},
    )
    return ToolServer.objects.select_for_update().get(profile_id=profile_id, name=server.name, place=server.place)


def _offer(row: ToolServer, one: Offered, now: datetime) -> ToolDefinition:
    found, made = ToolDefinition.objects.get_or_create(
        server=row,
        tool=one.tool,
        fingerprint=one.fingerprint,
        defaults={"name": one.name, "definition": one.definition, "first_seen_at": now, "seen_at": now},
    )
    if not made:
        found.offered, found.seen_at = True, now
        found.save(update_fields=["offered", "seen_at"])
    return found


def accept_definitions(profile: AgentProfile, ids: Sequence[int], *, actor: User, reason: str) -> int:
    """A person has read these very definitions and trusts them. What was accepted of these tools before is replaced.

    Raises Refused: one of them is no longer what the server offers, or somebody has decided meanwhile.
    """
    reason = taken(reason, "reason")
    with transaction.atomic():
        now = database_now()
        rows = _waiting(profile, ids)
        for row in rows:
            if not row.offered:
                raise Refused(f"The server does not offer this definition of {row.tool} any more. Read the new one.")
            ToolDefinition.objects.filter(server_id=row.server_id, tool=row.tool, state=S.ACCEPTED).update(
                state=S.REPLACED
            )
            _decide(row, S.ACCEPTED, actor, reason, now)
        _audit(profile, "tool.accept", actor, reason, rows)
        return len(rows)


def refuse_definitions(profile: AgentProfile, ids: Sequence[int], *, actor: User, reason: str) -> int:
    """These definitions are not to be used; also such as were accepted before. Raises Refused."""
    reason = taken(reason, "reason")
    if not reason:
        raise Refused("Say why: the reason stays with the definition.")
    with transaction.atomic():
        now = database_now()
        rows = _waiting(profile, ids, also=(S.ACCEPTED, S.REPLACED))
        for row in rows:
            _decide(row, S.REFUSED, actor, reason, now)
        _audit(profile, "tool.refuse", actor, reason, rows)
        return len(rows)


def _waiting(
    profile: AgentProfile, ids: Sequence[int], also: tuple[str, ...] = (S.REFUSED, S.REPLACED)
) -> list[ToolDefinition]:
    wanted = ToolDefinition.objects.filter(server__profile=profile, pk__in=ids)
    servers = ToolServer.objects.filter(pk__in=wanted.values("server")).order_by("pk")
    list(servers.select_for_update())  # as who writes down a list does: the two take turns
    rows = list(wanted.select_for_update(of=("self",)).select_related("server").order_by("pk"))
    if not rows or len(rows) != len(set(ids)):
        raise Refused("There is no such definition.")
    decided = next((row for row in rows if row.state not in (S.QUARANTINED, *also)), None)
    if decided is not None:
        raise Refused(f"{decided.decided_by} has decided on {decided.name} meanwhile: it is {decided.state}.")
    return rows


def _decide(row: ToolDefinition, state: str, actor: User, reason: str, now: datetime) -> None:
    row.state, row.decided_by, row.decided_at, row.reason = state, actor, now, reason
    row.save(update_fields=["state", "decided_by", "decided_at", "reason"])


def _audit(profile: AgentProfile, action: str, actor: User, reason: str, rows: Sequence[ToolDefinition]) -> None:
    AuditEntry.objects.create(
        actor=actor,
        action=action,
        reason=reason,
        workspace=profile.workspace,
        data={
            "profile": profile.name,
            "profile_id": profile.pk,
            "definitions": [{"name": row.name, "hash": row.fingerprint} for row in rows],
        },
        at=database_now(),
    )
