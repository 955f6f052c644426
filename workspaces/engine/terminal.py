"""Runs an operator's command in its workspace's sandbox: once, watched, and to an end that is told.

A worker that dies is followed by one that waits for the same command by its key. What was begun and is not known
to the sandbox any more is never run again: its outcome is unknown, and that is said.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from django.conf import settings
from django.db import DatabaseError, InterfaceError, connection

from workspaces.actions import terminal
from workspaces.actions.errors import FenceLost
from workspaces.actions.streams import command_stream
from workspaces.domain.states import PauseMode, TaskStatus
from workspaces.domain.terminal import OUTPUT_BYTES, CommandStatus
from workspaces.domain.text import decode_output
from workspaces.engine import nodes
from workspaces.engine.boxes import sandbox_for
from workspaces.engine.connections import record_last_connections
from workspaces.engine.lifecycle import awake_sandbox
from workspaces.engine.run import HandedOver
from workspaces.engine.runner import keeper
from workspaces.models import OperatorCommand, Task, Workspace
from workspaces.queries.database import database_now, is_away
from workspaces.sandboxes.base import (
    ExecInterrupted,
    ExecResult,
    Sandbox,
    SandboxError,
    SandboxGone,
    SandboxUnavailable,
)
from workspaces.tools.shell import argv_of

logger = logging.getLogger(__name__)

WATCH_S = 0.5
KILLED_WITHIN_S = 10.0
ENGINE_WAIT_S = 60.0  # an engine that restarts is waited for; one that stays away is told
LOST = (
    "It was begun, and the sandbox ended or was restarted before its end was known: it may have run, in part or in "
    "whole. It is not run again. Look at the files."
)


@dataclass(slots=True)
class _Orders:
    interrupt: threading.Event = field(default_factory=threading.Event)
    done: threading.Event = field(default_factory=threading.Event)
    lost: bool = False
    hand_over: bool = False  # the process is to end


def run(command_id: int) -> None:
    """Take the command up, if it is open and free. Never raises for what is the command's own trouble."""
    if keeper().draining:
        return  # the scheduler calls another worker
    command = terminal.claim_command(command_id, lease_s=settings.LEASE_S)
    if command is None:
        return
    try:
        with _kept(command) as orders:
            _run(command, orders)
    except FenceLost as lost:
        logger.info("%s", lost)
    except HandedOver:
        terminal.let_go(command)
    except Exception as error:
        if is_away(error):
            logger.warning("command %s is taken up again when its lease has run out: %s", command_id, error)
            return
        logger.exception("command %s", command_id)
        _end(command, CommandStatus.UNKNOWN, why=f"agentdesk failed: {type(error).__name__}: {error}")


def _run(command: OperatorCommand, orders: _Orders) -> None:
    begun = command.status == CommandStatus.RUNNING.value
    if command.stopped_by_id and not begun:
        _end(command, CommandStatus.FAILED, why="stopped before it began")
        return
    try:
        nodes.place(command.workspace)
        if not begun:
            nodes.leave_lost(command.workspace)
        sandbox = sandbox_for(command.workspace)
        state = sandbox.state()
        if begun and not (state in ("running", "frozen") and sandbox.is_known(command.key)):
            _end(command, CommandStatus.UNKNOWN, why=LOST)
            return
        awake_sandbox(command.workspace)
        if sandbox.state() != "running":
            sandbox.start()  # a pause has frozen it
        if not begun:
            terminal.begin_command(command)
        ended = _waited(command, sandbox, orders)
        _tell_connections(command)
        _freeze_again(command, sandbox, was_frozen=state == "frozen")
        stopped = OperatorCommand.objects.filter(pk=command.pk, stopped_by__isnull=False).exists()
        terminal.end_command(
            command,
            CommandStatus.FINISHED,
            exit_code=ended.exit_code,
            timed_out=ended.timed_out,
            output=_text_of(ended),
            cut=ended.stdout_truncated or ended.stderr_truncated,
            duration_s=round(ended.duration_s, 3),
            why="stopped by an operator" if stopped else "",
        )
    except SandboxGone:
        _tell_connections(command)
        _end(command, CommandStatus.UNKNOWN, why=LOST)
    except SandboxUnavailable as error:
        _try_again(command, error)
    except SandboxError as error:
        known = CommandStatus.UNKNOWN if command.status == CommandStatus.RUNNING.value else CommandStatus.FAILED
        _end(command, known, why=f"{error} {error.hint}".strip())


def _waited(command: OperatorCommand, sandbox: Sandbox, orders: _Orders) -> ExecResult:
    """Its end. An order to stop kills it and waits for that end, too."""
    connection.close()  # nothing is held while a command runs
    try:
        return _exec(command, sandbox, orders.interrupt)
    except ExecInterrupted:
        if orders.lost:
            raise FenceLost(f"command {command.pk} was taken over") from None
        if orders.hand_over:
            raise HandedOver from None
    deadline = time.monotonic() + KILLED_WITHIN_S
    while True:
        sandbox.kill(command.key)
        patience = threading.Event()
        timer = threading.Timer(1.0, patience.set)
        timer.start()
        try:
            return _exec(command, sandbox, patience)
        except ExecInterrupted:
            if time.monotonic() > deadline:
                raise SandboxGone("the command does not end") from None
        finally:
            timer.cancel()


def _exec(command: OperatorCommand, sandbox: Sandbox, interrupt: threading.Event) -> ExecResult:
    return sandbox.exec(
        argv_of(command.text),
        key=command.key,
        timeout_s=float(command.limit_s),
        output_limit_bytes=OUTPUT_BYTES,
        on_output=command_stream(command.workspace_id, command.pk),
        interrupt=interrupt,
    )


def _text_of(ended: ExecResult) -> str:
    out, err = decode_output(ended.stdout), decode_output(ended.stderr)
    if not err:
        return out
    return f"{out}{'' if not out or out.endswith(chr(10)) else chr(10)}[standard error]\n{err}"


def _freeze_again(command: OperatorCommand, sandbox: Sandbox, *, was_frozen: bool) -> None:
    """A task that was paused at once, also while this ran, is quiet: what its calls left behind does not go on."""
    task = Task.objects.filter(pk=command.task_id).first() if command.task_id is not None else None
    if task is None:
        return
    paused_now = task.pause_mode == PauseMode.NOW.value and task.status in (TaskStatus.PAUSING, TaskStatus.PAUSED)
    if paused_now or (was_frozen and task.status == TaskStatus.PAUSED):
        sandbox.freeze()


def _tell_connections(command: OperatorCommand) -> None:
    """What it tried to reach, into the trace of the task that it ran for; else the next call would seem to have."""
    try:
        record_last_connections(Workspace.objects.get(pk=command.workspace_id))
    except SandboxError as error:
        logger.warning("the connections of command %s are told later: %s", command.pk, error)


def _try_again(command: OperatorCommand, error: SandboxUnavailable) -> None:
    """The engine does not answer. A command that was begun is looked for again; one that was not may still run."""
    if (database_now() - command.ordered_at).total_seconds() > ENGINE_WAIT_S + command.limit_s:
        known = CommandStatus.UNKNOWN if command.status == CommandStatus.RUNNING.value else CommandStatus.FAILED
        _end(command, known, why=f"{error} {error.hint}".strip())
        return
    terminal.let_go(command, at_once=False)


def _end(command: OperatorCommand, status: CommandStatus, *, why: str) -> None:
    try:
        terminal.end_command(command, status, why=why)
    except FenceLost as lost:
        logger.info("%s", lost)


@contextmanager
def _kept(command: OperatorCommand) -> Iterator[_Orders]:
    """Meanwhile a thread renews the lease and looks for an order to stop."""
    orders = _Orders()
    thread = threading.Thread(target=_keep, args=(command, orders), name=f"command-{command.pk}", daemon=True)
    thread.start()
    try:
        yield orders
    finally:
        orders.done.set()
        thread.join()


def _keep(command: OperatorCommand, orders: _Orders) -> None:
    """A database that does not answer for a while takes nothing away: the lease runs on until it is over."""
    renewed_at = time.monotonic()
    while not orders.done.wait(WATCH_S):
        try:
            kept, stop = terminal.renew_command(command, lease_s=settings.LEASE_S)
            renewed_at = time.monotonic()
        except (DatabaseError, InterfaceError) as error:
            logger.warning("the database does not answer command %s: %s", command.pk, error)
            kept, stop = time.monotonic() - renewed_at < settings.LEASE_S, False
        finally:
            connection.close()
        orders.lost = not kept
        orders.hand_over = keeper().draining
        if stop or orders.lost or orders.hand_over:
            orders.interrupt.set()
