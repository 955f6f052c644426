"""Nodes: what they said last, which one a workspace is placed on, and its move when its node is gone.

Placement and moves are decided under the lock of all nodes' rows, so two workers do not fill the same place. A moved
workspace gets a new sandbox key, hence a new disk: what still runs on the old node never writes to it.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import timedelta

from django.db import transaction
from django.db.models import Q, Sum
from django.db.models.functions import Coalesce, Now

from workspaces.domain.events import EventKind
from workspaces.domain.incidents import IncidentKind, Rung, Severity
from workspaces.domain.occurrences import single
from workspaces.domain.placement import Room, roomiest
from workspaces.domain.states import WorkspaceState
from workspaces.domain.text import clip
from workspaces.models import AuditEntry, Leftover, Node, Snapshot, Workspace
from workspaces.queries.disks import SavedDisk, saved_disk
from workspaces.sandboxes.engines import EngineFacts

from .clock import database_now
from .incidents import report, respond
from .pen import writing
from .sleep import stopped, use_workspace

WAKES_WITHIN_S = 30


def fresh_key() -> str:
    """The name of a new disk and sandbox."""
    return f"w-{secrets.token_hex(8)}"


def saw(name: str, address: str, facts: EngineFacts) -> None:
    """The node answered."""
    values = {
        "address": address,
        "memory_bytes": facts.memory_bytes,
        "cpus": facts.cpus,
        "runtimes": list(facts.runtimes),
        "version": clip(facts.version, 64),
        "failing_since": None,
        "error": "",
    }
    Node.objects.update_or_create(name=name, defaults=values | {"looked_at": Now()})


def missed(name: str, address: str, error: str) -> None:
    """The node did not answer; since when it does not is kept."""
    Node.objects.get_or_create(name=name)
    Node.objects.filter(name=name).update(
        address=address, looked_at=Now(), failing_since=Coalesce("failing_since", Now()), error=clip(error, 300)
    )


def forget_nodes(names: Collection[str]) -> None:
    """Nodes that the site no longer names are no longer shown."""
    Node.objects.exclude(name__in=names).delete()


def removed(leftover: Leftover) -> None:
    Leftover.objects.filter(pk=leftover.pk).update(removed_at=Now())


def place_workspace(workspace_id: int, *, names: Collection[str], runtime: str) -> str | None:
    """Give a workspace that has no node the one with the most memory left. None: no node can take it.

    The node that it has when this returns, also if another worker was quicker.
    """
    with transaction.atomic():
        rooms = _rooms(names)
        workspace = Workspace.objects.select_for_update(no_key=True, of=("self",)).get(pk=workspace_id)
        if workspace.node in names:
            return workspace.node
        chosen = roomiest(rooms, workspace.memory_bytes, runtime)
        if chosen is not None:
            Workspace.objects.filter(pk=workspace_id).update(node=chosen)
            use_workspace(workspace_id)
        return chosen


@dataclass(frozen=True, slots=True)
class Move:
    node: str
    sandbox_key: str
    snapshot: Snapshot | None


def move_workspace(task_id: int, fence: int, *, names: Collection[str], runtime: str, why: str) -> Move | None:
    """To another node, for a task that may write to its disk. None: no other node can take it, or nothing is to move.

    In one transaction: 1. the place; 2. a new disk, the old one noted to be removed; 3. the disk to restore; 4. what
    the model has to know of lost files; 5. the event, which says what may be lost.
    """
    with writing(task_id, fence=fence) as pen:
        rooms = _rooms(names)
        workspace = Workspace.objects.select_for_update(no_key=True, of=("self",)).get(pk=pen.task.workspace_id)
        if workspace.held_by_id not in (None, task_id):
            return None
        chosen = roomiest([room for room in rooms if room.node != workspace.node], workspace.memory_bytes, runtime)
        if chosen is None:
            return None
        key = fresh_key()
        saved = saved_disk(workspace)
        _leave(workspace, chosen, key)
        if saved.snapshot is not None and pen.task.disk_restore_id is None:
            pen.set(disk_restore=saved.snapshot)
        seq = pen.event(
            EventKind.WORKSPACE_MOVED,
            from_node=workspace.node,
            node=chosen,
            why=why,
            snapshot=saved.snapshot.ref if saved.snapshot else "",
            checkpoint_seq=saved.seq,
            lost=_lost(saved),
        )
        if saved.undone:
            ids = f" (calls {', '.join(call.call_id for call in saved.calls)})" if saved.calls else ""
            told = (
                "The machine that this workspace ran on is gone; it goes on on another one. The files are as they were "
                f"before {', '.join(saved.undone)}{ids}: what that wrote is lost. Look before you rely on it."
            )
            pen.message("user", told, seq=seq)
            lost = single(
                IncidentKind.LOST_WORK,
                Severity.ERROR,
                "node_gone",
                f"The node {workspace.node} is gone ({why}). What {', '.join(saved.undone)} wrote is lost.",
                seq=seq,
                step=pen.task.steps_taken or None,
                what=f"moved from {workspace.node} to {chosen}",
                about=str(seq),
            )
            respond(pen, report(pen, lost).incident, Rung.NOTED, "The model was told what is lost.")
        pen.audit("workspace.moved", reason=why, from_node=workspace.node, node=chosen)
        return Move(chosen, key, saved.snapshot)


def _lost(saved: SavedDisk) -> str:
    """What the move loses, for whoever reads the trace."""
    if saved.whole:
        return "Nothing: it was asleep, or was to be put back to this state."
    if saved.snapshot is None:
        return "Nothing: nothing was ever saved here."
    if saved.undone:
        return f"What came after it, so what {', '.join(saved.undone)} wrote to the disk."
    return "What was written to the disk after it, if anything."


def move_idle_workspace(workspace_id: int, *, names: Collection[str], runtime: str, key: str, why: str) -> str | None:
    """To another node and to the disk `key`, which already holds what is to be there. None: not moved."""
    with transaction.atomic():
        rooms = _rooms(names)
        workspace = Workspace.objects.select_for_update(no_key=True, of=("self",)).get(pk=workspace_id)
        chosen = roomiest(rooms, workspace.memory_bytes, runtime)
        if chosen is None or workspace.held_by_id is not None or workspace.node in names:
            return None
        _leave(workspace, chosen, key)
        AuditEntry.objects.create(
            action="workspace.moved",
            workspace=workspace,
            reason=why,
            data={"from_node": workspace.node, "node": chosen},
            at=database_now(),
        )
        return chosen


def _leave(workspace: Workspace, node: str, key: str) -> None:
    """A new disk on the new node; the old one is noted to be removed."""
    Leftover.objects.create(node=workspace.node, workspace=workspace, sandbox_key=workspace.sandbox_key)
    Workspace.objects.filter(pk=workspace.pk).update(node=node, sandbox_key=key, network_read=0)
    stopped(workspace.pk)
    use_workspace(workspace.pk)


def _rooms(names: Collection[str]) -> list[Room]:
    """The nodes that answer, and what the workspaces that are awake on them may use. Their rows stay locked."""
    nodes: Iterable[Node] = Node.objects.select_for_update().filter(name__in=names).order_by("name")
    about_to_wake = Q(used_at__gt=Now() - timedelta(seconds=WAKES_WITHIN_S))  # placed a moment ago
    awake = Workspace.objects.filter(driver="docker", node__in=names)
    awake = awake.filter(about_to_wake | ~Q(state=WorkspaceState.ASLEEP.value))
    used = dict(awake.order_by().values_list("node").annotate(bytes=Sum("memory_bytes")))
    return [
        Room(node.name, node.memory_bytes, used.get(node.name, 0), frozenset(node.runtimes))
        for node in nodes
        if node.failing_since is None
    ]
