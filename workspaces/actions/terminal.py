"""An operator's commands: ordered, run once, stopped, ended. Running itself is engine/terminal.py's.

A command is the only writer of its workspace's disk while it is open, as a task is while it holds the workspace.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import Case, F, Q, When
from django.db.models.functions import Now

from workspaces import dispatch, live
from workspaces.domain.events import EXCERPT_CHARS, EventKind
from workspaces.domain.states import TaskStatus, WaitingFor
from workspaces.domain.terminal import COMMAND_BYTES, KEPT_CHARS, OPEN, TIME_LIMITS_S, CommandStatus
from workspaces.domain.text import clean_text, clip
from workspaces.models import AuditEntry, OperatorCommand, Task, User, Workspace
from workspaces.queries.terminal import refusal

from .clock import database_now
from .errors import FenceLost, Refused
from .pen import Pen, writing
from .waits import wake_waiting
from .workspaces import wake_next

IS_OPEN = Q(status__in=[status.value for status in OPEN])
BATCH = 100
QUICKER = "Somebody was quicker: the workspace has just been taken. Try again in a moment."


def order_command(workspace_id: int, *, text: str, limit_s: int, actor: User) -> OperatorCommand:
    """Write the command down and have it run. Raises Refused.

    1. the task that holds the workspace is locked, and has to rest; 2. the workspace's `command` is set by one
    conditional UPDATE: of two operators one wins, and no task can take the disk after it; 3. event, audit.
    """
    text = text.replace("\r\n", "\n").strip()
    if not text:
        raise Refused("Type a command first.")
    if clean_text(text) != text:
        raise Refused("The command holds a NUL character or half of a surrogate pair: nothing was run.")
    if len(text.encode()) > COMMAND_BYTES:
        raise Refused(f"The command is longer than {COMMAND_BYTES:,} bytes. Bring it in as a file, and run that.")
    if limit_s not in TIME_LIMITS_S:
        raise Refused("Choose one of the time limits.")
    holder_id = Workspace.objects.filter(pk=workspace_id).values_list("held_by", flat=True).get()
    with _holding(holder_id, actor) as pen:
        workspace = Workspace.objects.select_related("command__actor").get(pk=workspace_id)
        holder = pen.task if pen else None
        if workspace.command is not None:
            raise Refused(f"A command of {workspace.command.actor} still runs here: let it end, or stop it.")
        why = refusal(workspace, holder)
        if why:
            raise Refused(why)
        now = database_now()
        try:
            with transaction.atomic():
                command = OperatorCommand.objects.create(
                    workspace=workspace,
                    task=holder,
                    actor=actor,
                    text=text,
                    limit_s=limit_s,
                    ordered_at=now,
                    dispatched_at=now,
                )
        except IntegrityError:
            raise Refused(QUICKER) from None
        if not Workspace.objects.filter(pk=workspace_id, held_by=holder, command=None).update(command=command):
            raise Refused(QUICKER)
        if pen:
            pen.event(EventKind.COMMAND_ORDERED, command=command.pk, text=clip(text, EXCERPT_CHARS), limit_s=limit_s)
        _audit(command, "terminal.command", actor, text=clip(text, EXCERPT_CHARS))
        live.command_changed(workspace_id, command.pk)
        dispatch.run_command(command.pk)
        return command


def stop_command(command_id: int, *, actor: User) -> None:
    """Order a command's end: its worker kills what it started. Raises Refused when it has ended."""
    with transaction.atomic():
        if not OperatorCommand.objects.filter(IS_OPEN, pk=command_id, stopped_by=None).update(stopped_by=actor):
            raise Refused("That command has ended already, or is being stopped.")
        command = OperatorCommand.objects.get(pk=command_id)
        _audit(command, "terminal.stop", actor)
        live.command_changed(command.workspace_id, command_id)
        dispatch.run_command(command_id)


def claim_command(command_id: int, *, lease_s: float) -> OperatorCommand | None:
    """Take the command for this worker. None when it has ended or another worker has it."""
    free = Q(lease_until=None) | Q(lease_until__lt=Now())
    claimed = OperatorCommand.objects.filter(IS_OPEN & free, pk=command_id).update(
        fence=F("fence") + 1, lease_until=Now() + timedelta(seconds=lease_s)
    )
    if not claimed:
        return None
    return OperatorCommand.objects.select_related("workspace", "task").get(pk=command_id)


def renew_command(command: OperatorCommand, *, lease_s: float) -> tuple[bool, bool]:
    """Prolong the lease: whether it is still ours, and whether somebody wants the command stopped."""
    ours = OperatorCommand.objects.filter(IS_OPEN, pk=command.pk, fence=command.fence)
    kept = ours.update(lease_until=Now() + timedelta(seconds=lease_s))
    return bool(kept), ours.filter(stopped_by__isnull=False).exists()


def begin_command(command: OperatorCommand) -> None:
    """ordered → running: the intent, written before it runs. Raises FenceLost."""
    mine = OperatorCommand.objects.filter(pk=command.pk, fence=command.fence, status=CommandStatus.ORDERED.value)
    with transaction.atomic():
        if not mine.update(status=CommandStatus.RUNNING.value, started_at=Now()):
            raise FenceLost(f"command {command.pk} was taken over")
        live.command_changed(command.workspace_id, command.pk)
    command.status = CommandStatus.RUNNING.value


def end_command(
    command: OperatorCommand,
    status: CommandStatus,
    *,
    exit_code: int | None = None,
    timed_out: bool = False,
    output: str = "",
    cut: bool = False,
    duration_s: float | None = None,
    why: str = "",
) -> None:
    """The command is over, however: its workspace is free again. Raises FenceLost."""
    output = clean_text(output)
    kept = output if len(output) <= KEPT_CHARS else "…" + output[-KEPT_CHARS:]
    with _holding(command.task_id, None) as pen:
        fields: dict[str, Any] = {
            "status": status.value,
            "exit_code": exit_code,
            "timed_out": timed_out,
            "output": kept,
            "cut": cut or kept != output,
            "duration_s": duration_s,
            "why": clean_text(why),
            "finished_at": Now(),
            "lease_until": None,
        }
        if not OperatorCommand.objects.filter(IS_OPEN, pk=command.pk, fence=command.fence).update(**fields):
            raise FenceLost(f"command {command.pk} was taken over")
        if pen:
            told: dict[str, Any] = {"exit_code": exit_code, "duration_s": duration_s, "why": clip(why, EXCERPT_CHARS)}
            pen.event(
                EventKind.COMMAND_FINISHED,
                command=command.pk,
                outcome="timeout" if timed_out else status.value,
                result=clip(kept, EXCERPT_CHARS),
                **{name: value for name, value in told.items() if value not in (None, "")},
            )
        _free(command)
        live.command_changed(command.workspace_id, command.pk)


def let_go(command: OperatorCommand, *, at_once: bool = True) -> None:
    """Another worker goes on with it, called now or, in a while, by the scheduler."""
    with transaction.atomic():
        mine = OperatorCommand.objects.filter(pk=command.pk, fence=command.fence)
        if mine.update(lease_until=None, dispatched_at=Now()) and at_once:
            dispatch.run_command(command.pk)


def redispatch_commands(*, after_s: float) -> int:
    """Call again for commands that nobody has taken up, or whose worker has died; returns how many."""
    due = Q(dispatched_at=None) | Q(dispatched_at__lt=Now() - timedelta(seconds=after_s))
    free = Q(lease_until=None) | Q(lease_until__lt=Now())
    with transaction.atomic():
        found = OperatorCommand.objects.select_for_update(skip_locked=True).filter(IS_OPEN & due & free)
        ids = list(found.order_by("pk").values_list("pk", flat=True)[:BATCH])
        OperatorCommand.objects.filter(pk__in=ids).update(dispatched_at=Now())
        for command_id in ids:
            dispatch.run_command(command_id)
    return len(ids)


def _free(command: OperatorCommand) -> None:
    """The disk has no writer now: whoever waited for it goes on."""
    mine = Workspace.objects.filter(pk=command.workspace_id, command=command)
    # with a holder, what runs there may be that task's own
    mine.update(command=None, left_running=Case(When(held_by=None, then=True), default=F("left_running")))
    holder = Task.objects.filter(held_workspace=command.workspace_id).first()
    if holder is None:
        wake_next(command.workspace_id)
    elif holder.status == TaskStatus.WAITING.value:
        reason, waits = "the operator's command has ended", WaitingFor.WORKSPACE.value
        transaction.on_commit(lambda: wake_waiting(holder.pk, waiting_for=waits, why=reason))
    elif holder.disk_restore_id is not None:
        dispatch.advance(holder.pk)


@contextmanager
def _holding(task_id: int | None, actor: User | None) -> Iterator[Pen | None]:
    """One transaction; with the task's pen when a task holds the workspace."""
    if task_id is None:
        with transaction.atomic():
            yield None
        return
    with writing(task_id, actor=actor) as pen:
        yield pen


def _audit(command: OperatorCommand, action: str, actor: User, **data: Any) -> None:
    AuditEntry.objects.create(
        actor=actor,
        action=action,
        workspace_id=command.workspace_id,
        task=command.task,
        data={"command": command.pk, **data},
        at=database_now(),
    )
