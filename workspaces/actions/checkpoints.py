"""Checkpoints: conversation, scratchpad, pending calls and disk, saved together at one seq."""

from __future__ import annotations

from typing import Any

from workspaces.domain.events import EventKind
from workspaces.domain.states import CallStatus, StepPhase, TaskStatus
from workspaces.models import Checkpoint, Snapshot, Step, ToolCall, Workspace
from workspaces.sandboxes.base import SnapshotInfo

from .detections import Detected, answer
from .pen import Pen, writing
from .tasks import end_task

PENDING_FIELDS = (
    "position",
    "call_id",
    "name",
    "raw_arguments",
    "arguments",
    "arguments_hash",
    "effect",
    "effect_key",
    "verdict",
    "policy_rule",
)


def store_snapshot(workspace: Workspace, info: SnapshotInfo) -> Snapshot:
    """Keep the driver's snapshot by its ref."""
    return Snapshot.objects.create(
        workspace=workspace,
        ref=info.ref,
        added_bytes=info.added_bytes,
        total_bytes=info.total_bytes,
        files=info.files,
        duration_s=info.duration_s,
        quiet=info.quiet,
    )


def save_checkpoint(
    pen: Pen, *, step: Step | None, snapshot: Snapshot, fresh: bool, settled: bool = False
) -> Checkpoint:
    """At the next seq of a locked task. `fresh`: the snapshot was taken for it; `settled`: no call is pending."""
    task = pen.task
    pending = pending_calls(step) if step and not settled else []
    number = step.number if step else pen.branch.first_step - 1
    seq = pen.event(
        EventKind.CHECKPOINT_SAVED,
        step=step.number if step else None,
        snapshot=snapshot.ref,
        added_bytes=snapshot.added_bytes if fresh else 0,
        files=snapshot.files,
        duration_s=round(snapshot.duration_s, 4) if fresh else 0.0,
        pending=len(pending),
    )
    return Checkpoint.objects.create(
        task=task,
        branch_id=task.current_branch_id,
        step=step,
        step_number=number,
        seq=seq,
        snapshot=snapshot,
        scratchpad=task.scratchpad,
        pending=pending,
        prompt_tokens=task.prompt_tokens,
        output_tokens=task.output_tokens,
        cost_usd=task.cost_usd,
        created_at=pen.now,
    )


def pending_calls(step: Step) -> list[dict[str, Any]]:
    """The step's calls without a result, as they can be put on another branch."""
    calls = (
        ToolCall.objects.filter(step=step)
        .exclude(status__in=[CallStatus.DONE.value, CallStatus.ABANDONED.value])
        .order_by("position")
    )
    return [{name: getattr(call, name) for name in PENDING_FIELDS} for call in calls]


def settle_step(
    task_id: int,
    fence: int,
    step: Step,
    *,
    snapshot: Snapshot,
    fresh: bool,
    result: str | None,
    detected: Detected,
) -> bool:
    """The step is over: its checkpoint, one more step taken, the answer to what it showed; all of it or nothing.

    With a `result` the task ends with it. Returns whether the task goes on.
    """
    with writing(task_id, fence=fence) as pen:
        save_checkpoint(pen, step=step, snapshot=snapshot, fresh=fresh, settled=True)
        step.phase, step.settled_at = StepPhase.SETTLED.value, pen.now
        pen.change(step, "phase", "settled_at")
        pen.set(steps_taken=pen.task.steps_taken + 1)
        goes_on = answer(pen, detected, succeeded=result is not None)
        if result is not None:
            end_task(pen, TaskStatus.SUCCEEDED, result)
        return goes_on and result is None
