"""Who advances a task: claim, renew, release. A lease has a fence, and every write of its holder carries it.

Times are the database's own, so that workers with wrong clocks agree.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from django.db import connection, transaction
from django.db.models import F, Q
from django.db.models.functions import Now

from workspaces import dispatch
from workspaces.domain.states import TaskStatus
from workspaces.models import Task

S = TaskStatus
CLAIMABLE = Q(status__in=[S.QUEUED.value, S.RUNNING.value, S.PAUSING.value]) | Q(
    status=S.PAUSED.value, disk_restore__isnull=False
)
LEASE_FREE = Q(lease_until=None) | Q(lease_until__lt=Now())


@dataclass(frozen=True, slots=True)
class Claim:
    """`previous_owner`: the worker that let its lease run out, if one did."""

    task_id: int
    fence: int
    previous_owner: str


def claim(task_id: int, *, worker: str, lease_s: float) -> Claim | None:
    """Take the task, by one conditional UPDATE. None when it is not due or another worker has it."""
    with transaction.atomic():
        before = (
            Task.objects.select_for_update(skip_locked=True)
            .filter(CLAIMABLE & LEASE_FREE, pk=task_id)
            .values_list("fence", "lease_owner")
            .first()
        )
        if before is None:
            return None
        fence, owner = before
        taken = Task.objects.filter(CLAIMABLE & LEASE_FREE, pk=task_id, fence=fence).update(
            fence=F("fence") + 1,
            lease_owner=worker,
            lease_until=Now() + timedelta(seconds=lease_s),
        )
        return Claim(task_id, fence + 1, owner) if taken == 1 else None


def renew(held: Mapping[int, int], *, lease_s: float) -> set[int]:
    """Prolong the leases (task id → fence) that are still ours; returns the ids of those."""
    if not held:
        return set()
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE workspaces_task SET lease_until = statement_timestamp() + make_interval(secs => %s)"
            " FROM unnest(%s::bigint[], %s::bigint[]) AS ours(id, fence)"
            " WHERE workspaces_task.id = ours.id AND workspaces_task.fence = ours.fence"
            " RETURNING workspaces_task.id",
            [lease_s, list(held), list(held.values())],
        )
        return {row[0] for row in cursor.fetchall()}


def release(task_id: int, fence: int) -> None:
    """Let go, and call for the next step when the task is still to be advanced."""
    with transaction.atomic():
        let_go = Task.objects.filter(pk=task_id, fence=fence).update(lease_until=None, lease_owner="")
        if let_go and Task.objects.filter(CLAIMABLE, pk=task_id).exists():
            Task.objects.filter(pk=task_id).update(dispatched_at=Now())
            dispatch.advance(task_id)
