"""Sandboxes wake, sleep and rest: what a worker does between the moves that actions/sleep.py writes down.

Safe to die at any line: a claim ends with its lease, and each of these may run again, also twice at once.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from django.conf import settings
from django.db import DatabaseError, InterfaceError, connection

from workspaces.actions import sleep as moves
from workspaces.domain.states import CallStatus, WorkspaceState
from workspaces.engine import metering, nodes
from workspaces.engine.boxes import drivers_named, sandbox_for
from workspaces.engine.connections import record_last_connections
from workspaces.models import ToolCall, Workspace
from workspaces.sandboxes.base import Sandbox, SandboxError, SandboxUnavailable

logger = logging.getLogger(__name__)

ASK_AGAIN_S = 0.05


@dataclass(frozen=True, slots=True)
class Waking:
    """`awake`: it is, after `duration_s`. Otherwise it stands in the queue, with `ahead` before it."""

    awake: bool
    ahead: int = 0
    duration_s: float = 0.0


def wake(workspace_id: int, *, gone: bool = False) -> Waking:
    """Start the workspace's sandbox, if it may wake now. `gone`: see claim_wake. Raises SandboxError."""
    ticket = moves.claim_wake(workspace_id, lease_s=settings.LEASE_S, at_once=settings.WAKES_AT_ONCE, gone=gone)
    if ticket.fence is None:
        return Waking(ticket.awake, ticket.ahead)
    began = time.monotonic()
    try:
        workspace = Workspace.objects.get(pk=workspace_id)
        with _kept(workspace_id, ticket.fence):
            nodes.place(workspace)
            sandbox_for(workspace).start()
    except BaseException as error:
        why = _told(error) if isinstance(error, SandboxError) else ""
        moves.wake_failed(workspace_id, ticket.fence, at_once=settings.WAKES_AT_ONCE, why=why)
        raise
    in_time = moves.woke(workspace_id, ticket.fence, at_once=settings.WAKES_AT_ONCE)
    return Waking(in_time, duration_s=time.monotonic() - began)  # a claim that had ended is asked for anew


def _told(error: SandboxError) -> str:
    return f"{error} {error.hint}".strip()


def awake_sandbox(workspace: Workspace, *, within_s: float = 20.0) -> Sandbox:
    """The sandbox, running, for a person at a terminal: waits in the queue if it has to. Raises SandboxUnavailable.

    Nothing keeps it awake but use: call `use_workspace` while the person goes on.
    """
    deadline = time.monotonic() + within_s
    sandbox = sandbox_for(workspace)
    gone = moves.use_workspace(workspace.pk) is WorkspaceState.AWAKE and sandbox.state() not in ("running", "frozen")
    while not (found := wake(workspace.pk, gone=gone)).awake:
        gone = False
        if time.monotonic() > deadline:
            raise SandboxUnavailable(f"{found.ahead} other workspaces wake before it", hint="try again in a moment")
        connection.close()
        time.sleep(ASK_AGAIN_S)
    return sandbox


def sleep(workspace_id: int) -> bool:
    """End an idle workspace's sandbox, save its disk, and say that it sleeps. Whether it does.

    1. claim; 2. end the sandbox; 3. snapshot, of a disk that nothing writes to any more; 4. asleep.
    """
    nap = moves.claim_sleep(workspace_id, lease_s=settings.LEASE_S, site_timeout_s=settings.IDLE_TIMEOUT_S)
    if nap is None:
        return False
    workspace = Workspace.objects.get(pk=workspace_id)
    sandbox = sandbox_for(workspace)
    try:
        with _kept(workspace_id, nap.fence):
            sandbox.stop()
            record_last_connections(workspace)
            metering.read(workspace)
            info = sandbox.snapshot()
    except SandboxError as error:
        logger.warning("workspace %s was not put to sleep: %s", workspace_id, error)
        moves.stay_awake(nap, _told(error))
        return False
    return moves.slept(nap, info)


@contextmanager
def _kept(workspace_id: int, fence: int) -> Iterator[None]:
    """Meanwhile a thread renews the claim: it may take long, and one whose worker died must not hold up the others."""
    done = threading.Event()

    def keep() -> None:
        while not done.wait(settings.LEASE_S / 4):
            try:
                moves.renew_claim(workspace_id, fence, lease_s=settings.LEASE_S)
            except (DatabaseError, InterfaceError) as error:
                logger.warning("the claim on workspace %s is not renewed: %s", workspace_id, error)
            finally:
                connection.close()

    thread = threading.Thread(target=keep, name=f"claim-{workspace_id}", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def end_leftovers(workspace_id: int) -> bool:
    """End the sandbox that a task left, with all that runs there, unless another task has come. Whether it did."""
    return _end(workspace_id, moves.claim_leftovers(workspace_id, lease_s=settings.LEASE_S))


def _end(workspace_id: int, fence: int | None) -> bool:
    if fence is None:
        return False
    workspace = Workspace.objects.get(pk=workspace_id)
    try:
        with _kept(workspace_id, fence):
            sandbox_for(workspace).stop()
        record_last_connections(workspace)
        metering.read(workspace)
    except SandboxError as error:
        logger.warning("what was left in workspace %s was not ended: %s", workspace_id, error)
        moves.leftovers_stay(workspace_id, fence)
        return False
    return moves.leftovers_ended(workspace_id, fence)


def sweep(driver: str) -> int:
    """End sandboxes that run although their workspace sleeps: a start that came after its claim had ended. How many."""
    found = moves.strays(_running(driver))
    return sum(_end(workspace_id, moves.claim_stray(workspace_id, lease_s=settings.LEASE_S)) for workspace_id in found)


def sweep_all() -> int:
    """`sweep`, for the drivers that there are workspaces of."""
    names = Workspace.objects.order_by("driver").values_list("driver", flat=True).distinct()
    ended = 0
    for name in names:
        try:
            ended += sweep(name)
        except SandboxError as error:
            logger.warning("sandboxes of the driver %s are not looked through: %s", name, error)
    return ended


def _running(driver: str) -> list[str]:
    """Keys of the sandboxes that run on any node. One that does not answer is told, and holds up no other."""
    keys: list[str] = []
    for node, on_node in drivers_named(driver).items():
        try:
            keys += on_node.awake()
        except SandboxUnavailable as error:
            logger.warning("%s %s: %s", driver, node, error)
    return keys


def rest_all(driver: str) -> Counter[str]:
    """For a stop of the installation: idle sandboxes end, one with a command in flight is frozen where it stands.

    Returns how many were "stopped" and "frozen". The next worker waits for the frozen commands. Call it when no
    worker runs any more. Raises SandboxUnavailable.
    """
    done: Counter[str] = Counter()
    for workspace in Workspace.objects.filter(driver=driver, sandbox_key__in=_running(driver)):
        in_flight = (
            workspace.command_id is not None
            or ToolCall.objects.filter(task__workspace=workspace, status=CallStatus.RUNNING.value).exists()
        )
        sandbox = sandbox_for(workspace)
        if in_flight:
            sandbox.freeze()
        else:
            sandbox.stop()
            metering.read(workspace)
            moves.stopped(workspace.pk)
        done["frozen" if in_flight else "stopped"] += 1
    if not _running(driver):
        for on_node in drivers_named(driver).values():
            on_node.detach()
    return done
