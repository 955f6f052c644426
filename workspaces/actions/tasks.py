"""What a person does to a task: create, pause, resume, cancel, say. Notes: scratchpad.py; going back: rollbacks.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db import transaction
from django.db.models import Q

from workspaces import dispatch
from workspaces.domain.events import EXCERPT_CHARS, EventKind
from workspaces.domain.retuning import COLUMNS
from workspaces.domain.states import (
    ACTIVE,
    WHY_NOT,
    BudgetPeriod,
    BudgetScope,
    CallStatus,
    EscalationStatus,
    PauseMode,
    TaskStatus,
)
from workspaces.domain.text import clean_json, clean_text, clip
from workspaces.models import Branch, Escalation, Latch, ProfileVersion, Task, ToolCall, User, Workspace
from workspaces.queries.history import is_under_way

from . import question_signals, task_signals
from .budget_settings import create_budget
from .clock import database_now
from .errors import Refused
from .ledger import give_up
from .model_calls import drop_unfinished
from .pen import Pen, writing
from .tuning import tune
from .words import MESSAGE_CHARS, taken
from .workspaces import holds_workspace, release_workspace

INSTRUCTION_LIMIT = 100_000
AT_CREATION = "said when the task was created"


def create_task(
    *,
    workspace: Workspace,
    profile_version: ProfileVersion,
    instruction: str,
    actor: User,
    title: str = "",
    intake: dict[str, Any] | None = None,
    hold: bool = False,
    limits: Mapping[str, Any] | None = None,
) -> Task:
    """Queue a task; `hold` creates it paused. `intake`: see engine/intake.py. Raises Refused.

    `limits`: what is set for this task alone, by the names of domain/retuning.py.
    """
    instruction = clean_text(instruction).strip()
    if not instruction:
        raise Refused("Write what the agent is to do: the instruction is empty.")
    if len(instruction) > INSTRUCTION_LIMIT:
        raise Refused(
            f"The instruction has {len(instruction):,} characters; at most {INSTRUCTION_LIMIT:,} are taken. "
            "Put long material into an attached file."
        )
    if profile_version.profile.workspace_id not in (None, workspace.pk):
        raise Refused("That profile belongs to another workspace.")
    if workspace.driver == Workspace.Driver.LOCAL and not profile_version.local_allowed:
        raise Refused(
            f"{workspace} has no isolation (local driver) and {profile_version} is not marked safe for it. "
            "Use a Docker workspace, or a profile version that allows the local driver."
        )
    now = database_now()
    with transaction.atomic():
        task = Task.objects.create(
            workspace=workspace,
            profile_version=profile_version,
            created_by=actor,
            title=clip(clean_text(title).strip() or instruction.splitlines()[0], 120),
            instruction=instruction,
            intake=clean_json(intake or {}),
            intake_done=not intake,
            status=TaskStatus.QUEUED.value,
            status_since=now,
            max_steps=profile_version.max_steps,
            created_at=now,
        )
        task.branch = Branch.objects.create(task=task, number=1, created_by=actor)
        task.save(update_fields=["branch"])
        with writing(task.pk, actor=actor) as pen:
            seq = pen.event(
                EventKind.TASK_CREATED,
                instruction=clip(instruction, EXCERPT_CHARS),
                profile=profile_version.profile.name,
                version=profile_version.number,
            )
            pen.message("user", instruction, seq=seq, pinned=True)
            pen.audit("task.create")
            own = {what: value for what, value in (limits or {}).items() if what in COLUMNS}
            if own:
                tune(pen, own, reason=AT_CREATION)
        usd, tokens = ((limits or {}).get(what) for what in ("budget_usd", "budget_tokens"))
        if usd is not None or tokens is not None:
            create_budget(
                scope=BudgetScope.TASK,
                period=BudgetPeriod.TASK,
                task=task,
                actor=actor,
                reason=AT_CREATION,
                limit_usd=usd,
                limit_tokens=tokens,
            )
        if hold:
            pause_task(task.pk, mode=PauseMode.BOUNDARY, reason="created on hold", actor=actor)
        else:
            dispatch.advance(task.pk)
    task.refresh_from_db()
    return task


def pause_task(task_id: int, *, mode: PauseMode, reason: str, actor: User) -> Task:
    """Place a latch on the task. It is `pausing` until nothing runs for it. Raises Refused.

    1. lock the task; 2. place its latch, or make a standing one stricter; 3. move: a task that no worker
    holds is paused at once, a busy one becomes `pausing` and its worker sees the order; 4. audit.
    """
    reason = taken(reason, "reason")
    with writing(task_id, actor=actor) as pen:
        task = pen.task
        status = TaskStatus(task.status)
        stricter = status is TaskStatus.PAUSING and mode is PauseMode.NOW and task.pause_mode != mode.value
        if status not in ACTIVE or (status is TaskStatus.PAUSING and not stricter):
            raise Refused(f"Task {task_id} cannot be paused: {WHY_NOT[status]}.")
        latch, made = Latch.objects.get_or_create(
            task=task,
            released_at=None,
            defaults={
                "mode": mode.value,
                "reason": clean_text(reason),
                "placed_by": actor,
                "placed_at": pen.now,
            },
        )
        if not made:
            latch.mode = mode.value
            latch.save(update_fields=["mode"])
        order_pause(pen, latch)
        pen.audit("task.pause", reason=reason, mode=mode.value)
        return task


def order_pause(pen: Pen, latch: Latch) -> None:
    """Make a locked, active task obey a latch. Also used for latches on more than one task."""
    task = pen.task
    mode = PauseMode(latch.mode)
    pen.set(latch=latch, pause_mode=mode.value)
    busy = task.lease_until is not None and task.lease_until > pen.now
    now = mode is PauseMode.NOW
    # also what it left running in the background while it waits
    runs = (task.status == TaskStatus.RUNNING.value and (busy or now)) or (now and holds_workspace(task))
    if task.status == TaskStatus.PAUSING.value:
        pen.event(EventKind.TASK_PAUSING, mode=mode.value, reason=latch.reason)
    elif runs or is_under_way(task.pk):  # a sandbox that may still run something is a worker's matter
        pen.move(TaskStatus.PAUSING)
        pen.event(EventKind.TASK_PAUSING, mode=mode.value, reason=latch.reason)
        if not busy:
            dispatch.advance(task.pk)
    else:
        if not busy:
            void_lease(pen)
        pen.move(TaskStatus.PAUSED)
        pen.event(EventKind.TASK_PAUSED, mode=mode.value, reason=latch.reason)


def void_lease(pen: Pen) -> None:
    """Whoever held the task can write no more, also a worker that was cut off for a while and comes back."""
    if pen.task.lease_until is not None:
        pen.set(fence=pen.task.fence + 1, lease_until=None)


def resume_task(task_id: int, *, reason: str = "", actor: User) -> Task:
    """Release the task's own latch and queue it. A wider latch keeps holding it. Raises Refused."""
    reason = taken(reason, "reason")
    with writing(task_id, actor=actor) as pen:
        task = pen.task
        if task.status != TaskStatus.PAUSED.value:
            raise Refused(f"Task {task_id} cannot be resumed: {WHY_NOT[TaskStatus(task.status)]}.")
        Latch.objects.filter(task=task, released_at=None).update(released_by=actor, released_at=pen.now)
        wider = standing_latch(task)
        if wider is not None:
            raise Refused(f"A hold on {wider.scope} stands ({wider.reason}). Release that one first.")
        release_pause(pen, reason)
        pen.audit("task.resume", reason=reason)
        question_signals.attended(pen, f"{actor} has resumed the task.")
        return task


def release_pause(pen: Pen, reason: str) -> None:
    pen.move(TaskStatus.QUEUED)
    pen.set(latch=None, pause_mode="")
    pen.event(EventKind.TASK_RESUMED, reason=reason)
    dispatch.advance(pen.task.pk)


def standing_latch(task: Task, *, locked: bool = False) -> Latch | None:
    """The strictest latch that holds this task now. `locked`: nobody releases it before the transaction ends."""
    latches = Latch.objects.filter(
        Q(task=task)
        | Q(workspace_id=task.workspace_id)
        | Q(user_id=task.created_by_id)
        | Q(task=None, workspace=None, user=None),
        released_at=None,
    )
    if locked:
        latches = latches.select_for_update(no_key=True).order_by("pk")
    return min(latches, key=lambda latch: latch.mode != PauseMode.NOW.value, default=None)


def cancel_task(task_id: int, *, reason: str, actor: User) -> Task:
    """End a task. A busy one is told, and ends as soon as its worker has stopped what runs. Raises Refused."""
    reason = taken(reason, "reason")
    with writing(task_id, actor=actor) as pen:
        task = pen.task
        status = TaskStatus(task.status)
        if status.is_final:
            raise Refused(f"Task {task_id} cannot be cancelled: {WHY_NOT[status]}.")
        if task.cancelling:
            raise Refused(f"Task {task_id} is already being cancelled.")
        pen.audit("task.cancel", reason=reason)
        busy = task.lease_until is not None and task.lease_until > pen.now
        pen.set(cancelling=True)
        pen.event(EventKind.TASK_CANCELLING, reason=reason)
        if not busy:
            void_lease(pen)
            end_task(pen, TaskStatus.CANCELLED, reason)
        return task


def end_task(pen: Pen, status: TaskStatus, text: str) -> None:
    """Move to a final state: withdraw what is open, free the workspace, wake who waits for it."""
    task = pen.task
    withdraw_open(pen, why=f"the task ended: {status.value}")
    abandon_unfinished_calls(pen, why=f"the task ended: {status.value}")
    pen.move(status)
    pen.set(cancelling=False, pause_mode="", latch=None, result=clean_text(text))
    Latch.objects.filter(task=task, released_at=None).update(released_at=pen.now)
    kind = {
        TaskStatus.SUCCEEDED: EventKind.TASK_SUCCEEDED,
        TaskStatus.FAILED: EventKind.TASK_FAILED,
        TaskStatus.CANCELLED: EventKind.TASK_CANCELLED,
    }[status]
    pen.event(kind, text=clip(text, EXCERPT_CHARS))
    task_signals.ended(pen, status, text)
    release_workspace(task)


def withdraw_open(pen: Pen, *, why: str) -> None:
    """Close the task's open escalations because nobody needs to answer them any more."""
    for escalation in Escalation.objects.filter(task=pen.task, status=EscalationStatus.OPEN.value):
        Escalation.objects.filter(pk=escalation.pk).update(status=EscalationStatus.WITHDRAWN.value)
        pen.event(EventKind.ESCALATION_WITHDRAWN, escalation=escalation.pk, why=why)
        question_signals.over(pen, escalation, f"Nobody needs to answer any more: {why}.")


def abandon_unfinished_calls(pen: Pen, *, why: str) -> None:
    """Calls, of tools and of the model, that will never get a result on this line say so."""
    drop_unfinished(pen, why=why)
    unfinished = ToolCall.objects.filter(task=pen.task).exclude(
        status__in=[CallStatus.DONE.value, CallStatus.ABANDONED.value]
    )
    for call in unfinished.select_related("step"):
        pen.event(
            EventKind.CALL_ABANDONED,
            step=call.step.number,
            tool_call=call.pk,
            name=call.name,
            was=call.status,
            why=why,
        )
    give_up(pen, list(unfinished))
    unfinished.update(status=CallStatus.ABANDONED.value, finished_at=pen.now)


def send_message(task_id: int, *, text: str, actor: User) -> None:
    """An operator's words for the agent: pinned, seen at its next step. Raises Refused."""
    text = taken(text, "message", MESSAGE_CHARS)
    if not text:
        raise Refused("The message is empty.")
    with writing(task_id, actor=actor) as pen:
        if TaskStatus(pen.task.status).is_final:
            raise Refused(
                f"Task {task_id} takes no message: {WHY_NOT[TaskStatus(pen.task.status)]}. "
                "Roll it back to a checkpoint first, or fork it."
            )
        seq = pen.event(EventKind.MESSAGE_ADDED, role="operator", text=clip(text, EXCERPT_CHARS))
        pen.message("user", f"Message from the operator: {text}", seq=seq, pinned=True)
        pen.audit("task.message")
        question_signals.attended(pen, f"{actor} has spoken to the agent.")
