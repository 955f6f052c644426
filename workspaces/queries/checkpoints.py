"""What the desk shows about checkpoints: their list, and beforehand what a rollback to one would undo."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from django.db.models import QuerySet

from workspaces.models import Checkpoint, Message, Step, Task

from .effects import Standing, standing_since
from .history import latest_checkpoint, line_of

LISTED = 60


@dataclass(frozen=True, slots=True)
class RollbackPreview:
    """Counts are of the current branch's line after the checkpoint. `newest`: the last saved state of now."""

    checkpoint: Checkpoint
    newest: Checkpoint | None
    steps: int
    messages: int
    events: int
    cost_usd: Decimal
    prompt_tokens: int
    output_tokens: int
    effects: list[Standing]

    @property
    def same_disk(self) -> bool:
        return self.newest is not None and self.newest.snapshot_id == self.checkpoint.snapshot_id


def checkpoints_of(task: Task) -> QuerySet[Checkpoint]:
    """Newest first, on every branch."""
    return Checkpoint.objects.filter(task=task).select_related("branch", "snapshot").order_by("-seq")


def offered(task: Task) -> QuerySet[Checkpoint]:
    """Of `checkpoints_of`, those that can be gone back to: their files are still kept."""
    return checkpoints_of(task).filter(snapshot__dropped_at=None)


def rollback_preview(checkpoint: Checkpoint) -> RollbackPreview:
    """What would be undone, and which effects would not."""
    task = checkpoint.task
    own = [span.branch_id for span in line_of(task.branch) if span.task_id == task.pk] if task.branch else []
    return RollbackPreview(
        checkpoint=checkpoint,
        newest=latest_checkpoint(task),
        steps=Step.objects.filter(branch=task.branch, number__gt=checkpoint.step_number).count(),
        messages=Message.objects.filter(branch_id__in=own, seq__gt=checkpoint.seq).count(),
        events=task.last_seq - checkpoint.seq,
        cost_usd=task.cost_usd - checkpoint.cost_usd,
        prompt_tokens=task.prompt_tokens - checkpoint.prompt_tokens,
        output_tokens=task.output_tokens - checkpoint.output_tokens,
        effects=standing_since(checkpoint),
    )
