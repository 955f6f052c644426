"""Which saved state a workspace's disk has to be after a restore, so that it is what the conversation knows.

Disks themselves are in no backup, their snapshots are: what was written after the last of them is lost, and named.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from django.db.models import Q

from workspaces.domain.effects import Effect
from workspaces.domain.states import CallStatus, TaskStatus
from workspaces.models import Checkpoint, Snapshot, Task, ToolCall, Workspace
from workspaces.queries.history import latest_checkpoint


@dataclass(frozen=True, slots=True)
class Wanted:
    """`undone`: names of finished calls whose changes to files are not in the snapshot, oldest first."""

    snapshot: Snapshot | None
    undone: list[str] = field(default_factory=list)


def wanted(workspace: Workspace) -> Wanted:
    if workspace.slept_snapshot is not None:
        return Wanted(workspace.slept_snapshot)
    holder = workspace.held_by
    if holder is not None and not TaskStatus(holder.status).is_final:
        return _of_task(holder)
    newest = _newest(workspace)
    last = Checkpoint.objects.filter(task__workspace=workspace).select_related("snapshot").order_by("-pk").first()
    if last is None or (newest is not None and newest.created_at > last.created_at):
        return Wanted(newest)
    return Wanted(last.snapshot)  # also one that a rollback went back to


def _of_task(task: Task) -> Wanted:
    if task.disk_restore is not None:
        return Wanted(task.disk_restore)
    last = latest_checkpoint(task)
    if last is None:
        return Wanted(_newest(task.workspace))
    since = ToolCall.objects.filter(branch_id=task.current_branch_id, attempt__gt=0).filter(
        Q(seq=None) | Q(seq__gt=last.seq)
    )
    touching = [
        call
        for call in since.select_related("snapshot_before").order_by("-started_at")
        if call.effect and Effect(call.effect).touches_disk
    ]
    if not touching:
        return Wanted(last.snapshot)
    newest = _newest(task.workspace)
    ended = touching[0].finished_at
    if ended is not None and newest is not None and newest.created_at > ended:
        return Wanted(newest)  # taken for the checkpoint that was about to be saved
    undone: list[str] = []
    for call in touching:
        if call.status == CallStatus.DONE.value:
            undone.insert(0, call.name)
        if call.snapshot_before is not None:
            return Wanted(call.snapshot_before, undone)
    return Wanted(last.snapshot, undone)


def _newest(workspace: Workspace) -> Snapshot | None:
    return Snapshot.objects.filter(workspace=workspace, dropped_at=None).order_by("-pk").first()
