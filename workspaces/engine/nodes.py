"""The nodes as workers meet them: asked how they are, swept, and left when they are gone."""

from __future__ import annotations

import logging
import os
import threading
import time
from dataclasses import dataclass, field

from django.conf import settings
from django.db import connection
from django.db.models import DurationField, ExpressionWrapper, F
from django.db.models.functions import Now

from workspaces.actions import nodes as moves
from workspaces.domain.isolation import runtime_of
from workspaces.engine.boxes import driver_named, engine_of
from workspaces.engine.run import Run
from workspaces.models import Leftover, Node, Snapshot, Workspace
from workspaces.queries.disks import saved_disk
from workspaces.sandboxes.base import SandboxError, SandboxLimits, SandboxSpec, SandboxUnavailable

logger = logging.getLogger(__name__)

KNOWN_FOR_S = 2.0
_LOOKING = 7_411_904  # the advisory lock of the one worker that looks


def look() -> bool:
    """Ask every node how it is, and remove what moved workspaces left on those that answer.

    False when another worker is at it. A node that does not answer costs a few seconds.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_lock(%s)", [_LOOKING])
        if not cursor.fetchone()[0]:
            return False
    try:
        for name, address in settings.NODES.items():
            try:
                moves.saw(name, address, engine_of(name).facts())
            except SandboxError as error:
                moves.missed(name, address, str(error))
                continue
            try:
                _sweep(name)
            except SandboxError as error:
                logger.warning("%s: what was left behind is not removed yet: %s", name, error)
        moves.forget_nodes(list(settings.NODES))
    finally:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_unlock(%s)", [_LOOKING])
    _health.forget()
    return True


def _sweep(name: str) -> None:
    """Never touches a key that a workspace has: keys are given once."""
    for leftover in Leftover.objects.filter(node=name, removed_at=None).order_by("pk"):
        driver_named("docker", name).open(SandboxSpec(key=leftover.sandbox_key)).destroy()
        moves.removed(leftover)
        logger.info("%s: what workspace %s left behind is removed", name, leftover.workspace_id)


def settle(run: Run) -> None:
    """See to it that the task's workspace has a node that is not lost. Raises SandboxUnavailable when none is left."""
    workspace = run.task.workspace
    place(workspace)
    why = lost(workspace.node) if workspace.node else ""
    if why:
        _move(run, why)


def place(workspace: Workspace) -> None:
    """Give a workspace its first node, in place, where there is more than one. Raises SandboxUnavailable."""
    if workspace.driver != Workspace.Driver.DOCKER.value or workspace.node or len(settings.NODES) == 1:
        return
    names = list(settings.NODES)
    if Snapshot.objects.filter(workspace=workspace).exists():
        names = names[:1]  # it was used before nodes had names, so on the first one, where its sandbox may run
    _known()
    chosen = moves.place_workspace(workspace.pk, names=names, runtime=_runtime(workspace))
    if chosen is None:
        raise _no_node(_runtime(workspace))
    workspace.node = chosen


def _move(run: Run, why: str) -> None:
    workspace = run.task.workspace
    runtime = _runtime(workspace)
    move = moves.move_workspace(run.task.pk, run.fence, names=list(settings.NODES), runtime=runtime, why=why)
    if move is None:
        return  # the wait goes on as for any engine that does not answer
    workspace.node, workspace.sandbox_key, workspace.network_read = move.node, move.sandbox_key, 0
    run.task.refresh_from_db(fields=["disk_restore", "last_seq", "last_hash", "last_event_at"])


def leave_lost(workspace: Workspace) -> None:
    """For a person who opens a workspace whose node is lost and that no task holds: move it, in place.

    The disk is put back before the move is written, so nobody finds it half there. Raises SandboxUnavailable.
    """
    why = lost(workspace.node) if workspace.node and workspace.driver == Workspace.Driver.DOCKER.value else ""
    if not why:
        return
    if workspace.held_by_id is not None:
        raise SandboxUnavailable(f"{why}; it moves when task {workspace.held_by_id} goes on")
    names = [name for name in settings.NODES if name != workspace.node and not lost(name)]
    if not names:
        raise SandboxUnavailable(f"{why}; no other node can take it")
    key = moves.fresh_key()
    # the disks are every node's, the engine that is asked about the new one has to answer
    limits = SandboxLimits(disk_bytes=workspace.disk_bytes)
    fresh = driver_named("docker", names[0]).open(SandboxSpec(key=key, limits=limits))
    snapshot = saved_disk(workspace).snapshot
    if snapshot is not None:
        fresh.restore(snapshot.ref)
    node = moves.move_idle_workspace(workspace.pk, names=names, runtime=_runtime(workspace), key=key, why=why)
    if node is None:
        fresh.destroy()
        raise SandboxUnavailable(f"{why}; no other node can take it")
    workspace.refresh_from_db(fields=["node", "sandbox_key", "network_read", "state"])


def _runtime(workspace: Workspace) -> str:
    return runtime_of(workspace.runtime, settings.SANDBOX_RUNTIME).value


def _no_node(runtime: str) -> SandboxUnavailable:
    offers = "; ".join(
        f"{node.name}: {node.error or 'does not answer'}" if node.failing_since else f"{node.name}: {_list(node)}"
        for node in Node.objects.order_by("name")
    )
    return SandboxUnavailable(f"no node that answers offers the runtime {runtime} ({offers})")


def _list(node: Node) -> str:
    return ", ".join(node.runtimes)


def _known() -> None:
    """Have every node looked at once, for a worker that comes before the first look."""
    if Node.objects.filter(name__in=settings.NODES).count() < len(settings.NODES):
        deadline = time.monotonic() + 30
        while not look() and time.monotonic() < deadline:
            time.sleep(0.1)


@dataclass
class _Health:
    """Which nodes are lost, asked at most every two seconds a process."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    words: dict[str, str] = field(default_factory=dict)
    read_at: float = float("-inf")
    process: int = 0

    def of(self, name: str) -> str:
        with self.lock:
            if time.monotonic() - self.read_at > KNOWN_FOR_S or self.process != os.getpid():
                self.words = _lost_nodes()
                self.read_at = time.monotonic()
                self.process = os.getpid()
            return self.words.get(name, "")

    def forget(self) -> None:
        with self.lock:
            self.read_at = float("-inf")


_health = _Health()


def lost(name: str) -> str:
    """Why the node is given up: it has not answered for NODE_LOST_S, or the site no longer names it. Else empty."""
    if len(settings.NODES) == 1 and name in settings.NODES:
        return ""  # there is no other
    if name not in settings.NODES:
        return f"the node {name} is no longer one of this site's"
    return _health.of(name)


def _lost_nodes() -> dict[str, str]:
    silent = ExpressionWrapper(Now() - F("failing_since"), output_field=DurationField())
    found = Node.objects.filter(failing_since__isnull=False).annotate(silent=silent)
    return {
        node.name: f"the node {node.name} has not answered for {node.silent.total_seconds():.0f} s: {node.error}"
        for node in found
        if node.silent.total_seconds() >= settings.NODE_LOST_S
    }
