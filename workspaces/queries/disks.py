"""The newest saved state of a workspace's disk, and what came after it: for a disk that is lost or made anew.

A disk is nowhere twice, its snapshots are: what was written after the last of them is lost, and named.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db import connection
from django.db.models import Q

from workspaces.domain.effects import Effect
from workspaces.domain.states import CallStatus, WorkspaceState
from workspaces.models import Checkpoint, OperatorCommand, Snapshot, Task, ToolCall, Workspace

# In SQL, because every step asks
_TOUCHED = """
SELECT EXISTS (SELECT FROM workspaces_operatorcommand WHERE workspace_id = %s AND ordered_at >= %s)
    OR EXISTS (SELECT FROM workspaces_toolcall
                WHERE branch_id = %s AND attempt > 0 AND (seq IS NULL OR seq > %s) AND effect <> 'none')
    OR EXISTS (SELECT FROM workspaces_replacement WHERE branch_id = %s AND seq > %s AND path <> '')
"""


@dataclass(frozen=True, slots=True)
class SavedDisk:
    """`seq`: of the checkpoint at which the snapshot was saved, if it was at one; `whole`: nothing came after it.

    What `calls` (finished) and `commands` (begun) wrote to the disk is not in it, oldest first.
    """

    snapshot: Snapshot | None
    seq: int | None = None
    whole: bool = False
    calls: list[ToolCall] = field(default_factory=list)
    commands: list[OperatorCommand] = field(default_factory=list)

    @property
    def undone(self) -> list[str]:
        """In words, the calls by their names."""
        return [call.name for call in self.calls] + ["a command of the operator"] * len(self.commands)


def saved_disk(workspace: Workspace) -> SavedDisk:
    """What its holder is to begin with; else what it held when it fell asleep; else the newest state, of any task."""
    holder = workspace.held_by
    if holder is not None and holder.disk_restore is not None:
        return SavedDisk(holder.disk_restore, whole=True)
    if workspace.state == WorkspaceState.ASLEEP.value and workspace.slept_snapshot is not None:
        return SavedDisk(workspace.slept_snapshot, whole=True)
    newest = Snapshot.objects.filter(workspace=workspace, dropped_at=None).order_by("-pk").first()
    at = Checkpoint.objects.filter(task__workspace=workspace).select_related("snapshot", "task")
    last = at.order_by("-created_at", "-pk").first()  # also one of an older snapshot, that a rollback went back to
    if last is not None and (newest is None or newest.created_at <= last.created_at):
        calls = _calls_since(last, last.created_at)
        return SavedDisk(last.snapshot, last.seq, False, calls, _commands_since(workspace, last.created_at))
    if newest is None:
        return SavedDisk(None)
    calls = _calls_since(last, newest.created_at) if last is not None else []
    return SavedDisk(newest, None, False, calls, _commands_since(workspace, newest.created_at))


def _calls_since(last: Checkpoint, moment: datetime) -> list[ToolCall]:
    made = ToolCall.objects.filter(branch_id=last.task.current_branch_id, attempt__gt=0, finished_at__gt=moment)
    made = made.filter(status=CallStatus.DONE.value).order_by("started_at")
    return [call for call in made if call.effect and Effect(call.effect).touches_disk]


def _commands_since(workspace: Workspace, moment: datetime) -> list[OperatorCommand]:
    begun = OperatorCommand.objects.filter(workspace=workspace, started_at__isnull=False)
    return list(begun.filter(Q(finished_at=None) | Q(finished_at__gt=moment)).order_by("pk"))


def touched_since(checkpoint: Checkpoint, task: Task) -> bool:
    """Whether an operator, a call or a compaction may have changed files after a checkpoint of the task's branch."""
    branch_id = task.current_branch_id
    values: list[Any] = [task.workspace_id, checkpoint.created_at, branch_id, checkpoint.seq, branch_id, checkpoint.seq]
    with connection.cursor() as cursor:
        cursor.execute(_TOUCHED, values)
        return bool(cursor.fetchone()[0])
