"""Back to a checkpoint, on a new branch (rollback) or in a new task (fork). Nothing is deleted."""

from __future__ import annotations

from typing import Any

from django.db import transaction

from workspaces import dispatch
from workspaces.domain.events import EXCERPT_CHARS, EventKind
from workspaces.domain.states import (
    CallStatus,
    PauseMode,
    StepPhase,
    TaskStatus,
    Verdict,
    is_quiet,
)
from workspaces.domain.text import clip
from workspaces.models import Branch, Checkpoint, Latch, Message, ModelCall, Step, Task, ToolCall, User
from workspaces.queries.effects import Standing, standing_since, words_for_the_agent
from workspaces.queries.profiles import policy_of
from workspaces.queries.terminal import commanded_since

from . import question_signals, task_signals
from .calls import tell_judged
from .checkpoints import save_checkpoint
from .clock import database_now
from .detections import forked, rolled_back
from .errors import Refused
from .escalations import ask_to_approve
from .pen import Pen, writing
from .retention import offered_snapshot
from .tasks import abandon_unfinished_calls, order_pause, void_lease, withdraw_open
from .words import MESSAGE_CHARS, taken
from .workspaces import create_workspace, hold_workspace


def roll_back(checkpoint_id: int, *, reason: str, actor: User, tell: bool = False) -> Task:
    """Take the task back to a checkpoint and leave it paused there. Raises Refused.

    1. lock the task, which has to be quiet and free of a worker; 2. it holds its workspace (again);
    3. withdraw what is open, abandon calls without a result; 4. the next branch begins at the checkpoint,
    with its scratchpad and its pending calls; 5. the disk is put back by a worker before anything else
    (`disk_restore`); 6. event, audit. `tell`: the agent hears, in a pinned message, which effects stand.
    """
    reason = taken(reason, "reason")
    if not reason:
        raise Refused("Say why you roll back: the reason is kept in the audit log.")
    checkpoint = Checkpoint.objects.select_related("branch", "snapshot").get(pk=checkpoint_id)
    with writing(checkpoint.task_id, actor=actor) as pen:
        task = pen.task
        if not is_quiet(TaskStatus(task.status)):
            raise Refused(f"Task {task.pk} is {task.status}. Pause it first, then roll back.")
        if task.lease_until is not None and task.lease_until > pen.now:
            raise Refused("A worker still holds the task; try again in a moment.")
        offered_snapshot(checkpoint.snapshot_id)
        if _stands_at(pen, checkpoint):
            raise Refused("The task stands at this checkpoint already: somebody has just taken it back there.")
        if not hold_workspace(task):
            raise Refused(
                "Another task or an operator's command works in this workspace now, and a rollback would take its "
                "files along. Fork from the checkpoint instead, or wait until that has ended."
            )
        void_lease(pen)
        undone_steps = Step.objects.filter(branch_id=task.current_branch_id, number__gt=checkpoint.step_number).count()
        undone_cost = task.cost_usd - checkpoint.cost_usd
        withdraw_open(pen, why="rolled back")
        rolled_back(pen, seq=checkpoint.seq)
        abandon_unfinished_calls(pen, why="rolled back")
        checkpoint.task = task
        standing = standing_since(checkpoint)
        kept = [
            {
                "name": each.entry.tool_call.name,
                "tool_call": each.entry.tool_call_id,
                "state": each.entry.state,
                **({"compensation": each.compensation} if each.compensation else {}),
            }
            for each in standing
        ]
        if task.status == TaskStatus.FAILED.value:
            task_signals.taken_up(pen, f"{actor} has rolled the task back: {reason}")
        question_signals.attended(pen, f"{actor} has rolled the task back.")
        if task.status != TaskStatus.PAUSED.value:
            pen.move(TaskStatus.PAUSED)
        latch, _ = Latch.objects.get_or_create(
            task=task,
            released_at=None,
            defaults={
                "mode": PauseMode.BOUNDARY.value,
                "reason": f"rolled back: {reason}",
                "placed_by": actor,
                "placed_at": pen.now,
            },
        )
        branch = Branch.objects.create(
            task=task,
            number=task.branches.count() + 1,
            parent=checkpoint.branch,
            parent_seq=checkpoint.seq,
            first_step=checkpoint.step_number + (0 if checkpoint.pending else 1),
            reason=reason,
            created_by=actor,
        )
        pen.set(
            branch=branch,
            scratchpad=checkpoint.scratchpad,
            disk_restore=checkpoint.snapshot,
            latch=latch,
            pause_mode=latch.mode,
            cancelling=False,
            result="",
            max_steps=max(task.max_steps, branch.first_step),
        )
        pen.event(
            EventKind.TASK_ROLLED_BACK,
            checkpoint_seq=checkpoint.seq,
            step_number=checkpoint.step_number,
            branch=branch.number,
            reason=clip(reason, EXCERPT_CHARS),
            steps=undone_steps,
            cost_usd=str(undone_cost),
            kept_effects=kept,
        )
        if tell:
            _tell_what_stands(pen, standing, forked=False)
        step = _put_back_pending(pen, checkpoint, branch)
        save_checkpoint(pen, step=step, snapshot=checkpoint.snapshot, fresh=False)
        pen.audit("task.rollback", reason=reason, checkpoint=checkpoint.pk, seq=checkpoint.seq, kept=kept)
        dispatch.advance(task.pk)
        return task


def _stands_at(pen: Pen, checkpoint: Checkpoint) -> bool:
    """Whether the current branch begins at that checkpoint and nothing has happened on it."""
    branch = pen.branch
    return (
        (branch.parent_id, branch.parent_seq) == (checkpoint.branch_id, checkpoint.seq)
        and pen.task.scratchpad == checkpoint.scratchpad
        and not Message.objects.filter(branch=branch).exists()
        and not ModelCall.objects.filter(step__branch=branch).exists()
        and not ToolCall.objects.filter(branch=branch, attempt__gt=0).exists()
        and not commanded_since(pen.task.workspace_id, branch.created_at)
    )


def _tell_what_stands(pen: Pen, standing: list[Standing], *, forked: bool) -> None:
    if standing:
        words = words_for_the_agent(standing, forked=forked)
        seq = pen.event(EventKind.MESSAGE_ADDED, role="operator", text=clip(words, EXCERPT_CHARS))
        pen.message("user", f"Message from the operator: {words}", seq=seq, pinned=True)


def fork(
    checkpoint_id: int, *, reason: str, actor: User, instruction: str = "", hold: bool = False, tell: bool = False
) -> Task:
    """A new task that goes on from a checkpoint, in a fork of the workspace. Raises Refused.

    `instruction`: more words for the fork, appended as an operator's message. The effects of the history
    that both share are remembered for both: the ledger's key is the root task's. `tell`: as in a rollback, of the
    effects that the origin made after the checkpoint. The origin's own limits are the fork's, a deadline while it lies
    ahead.
    """
    reason = taken(reason, "reason")
    if not reason:
        raise Refused("Say why you fork: the reason is kept in the audit log.")
    instruction = taken(instruction, "instruction", MESSAGE_CHARS)
    checkpoint = Checkpoint.objects.select_related(
        "task__workspace", "task__profile_version", "branch", "snapshot"
    ).get(pk=checkpoint_id)
    origin = checkpoint.task
    now = database_now()
    with transaction.atomic():
        # its task first, as in a rollback: the order of locks
        Task.objects.select_for_update(no_key=True, of=("self",)).get(pk=origin.pk)
        offered_snapshot(checkpoint.snapshot_id)
        number = Task.objects.filter(forked_from=origin).count() + 1
        workspace = create_workspace(
            name=clip(f"{origin.workspace.name} · fork {origin.pk}.{number}", 80),
            owner=origin.workspace.owner,
            driver=origin.workspace.driver,
            actor=actor,
            forked_from=origin.workspace,
        )
        for membership in origin.workspace.memberships.exclude(user=origin.workspace.owner):
            workspace.memberships.create(user=membership.user, role=membership.role)
        task = Task.objects.create(
            workspace=workspace,
            profile_version=origin.profile_version,
            created_by=actor,
            title=clip(f"{origin.title} (fork)", 120),
            instruction=origin.instruction,
            intake_done=True,
            status=TaskStatus.QUEUED.value,
            status_since=now,
            max_steps=origin.max_steps,
            model_override=origin.model_override,
            max_output_tokens_override=origin.max_output_tokens_override,
            interactive=origin.interactive,
            deadline=origin.deadline if origin.deadline and origin.deadline > now else None,
            scratchpad=checkpoint.scratchpad,
            disk_restore=checkpoint.snapshot,
            root=origin.root or origin,
            forked_from=origin,
            created_at=now,
        )
        task.branch = Branch.objects.create(
            task=task,
            number=1,
            parent=checkpoint.branch,
            parent_seq=checkpoint.seq,
            first_step=checkpoint.step_number + (0 if checkpoint.pending else 1),
            reason=reason,
            created_by=actor,
        )
        task.save(update_fields=["branch"])
        hold_workspace(task)
        with writing(task.pk, actor=actor) as pen:
            pen.event(
                EventKind.TASK_CREATED,
                instruction=clip(task.instruction, EXCERPT_CHARS),
                profile=str(origin.profile_version),
                version=origin.profile_version.number,
                fork_of=origin.pk,
                checkpoint_seq=checkpoint.seq,
            )
            step = _put_back_pending(pen, checkpoint, task.branch)
            if tell:
                _tell_what_stands(pen, standing_since(checkpoint), forked=True)
            if instruction:
                seq = pen.event(EventKind.MESSAGE_ADDED, role="operator", text=clip(instruction, EXCERPT_CHARS))
                pen.message("user", f"Message from the operator: {instruction}", seq=seq, pinned=True)
            save_checkpoint(pen, step=step, snapshot=checkpoint.snapshot, fresh=False)
            pen.audit("task.fork", reason=reason, of=origin.pk, seq=checkpoint.seq)
            if hold:
                latch = Latch.objects.create(
                    task=pen.task,
                    mode=PauseMode.BOUNDARY.value,
                    reason="forked on hold",
                    placed_by=actor,
                    placed_at=pen.now,
                )
                order_pause(pen, latch)
            dispatch.advance(task.pk)
        with writing(origin.pk, actor=actor) as pen:
            told: dict[str, Any] = {"checkpoint_seq": checkpoint.seq, "fork": task.pk, "reason": clip(reason, 500)}
            forked(pen, pen.event(EventKind.TASK_FORKED, **told))
            if pen.task.status == TaskStatus.FAILED.value:
                task_signals.taken_up(pen, f"{actor} goes on from it in task {task.pk}: {reason}")
            question_signals.attended(pen, f"{actor} goes on from it in task {task.pk}.")
    task.refresh_from_db()
    return task


def _put_back_pending(pen: Pen, checkpoint: Checkpoint, branch: Branch) -> Step | None:
    """Calls that had no result at the checkpoint stand on the new branch again, held ones with a new question."""
    if not checkpoint.pending:
        return None
    step = Step.objects.create(
        task=pen.task,
        branch=branch,
        number=checkpoint.step_number,
        phase=StepPhase.JUDGED.value,
        started_at=pen.now,
    )
    for fields in checkpoint.pending:
        held = fields["verdict"] == Verdict.HOLD.value
        call = ToolCall.objects.create(
            task=pen.task,
            branch=branch,
            step=step,
            status=(CallStatus.HELD if held else CallStatus.APPROVED).value,
            **fields,
        )
        tell_judged(pen, call, policy_of(pen.task.profile_version).rule(call.policy_rule))
        if call.status == CallStatus.HELD.value:
            ask_to_approve(pen, call)
    return step
