"""Who advances a task: claim, renew, release. A lease has a fence, and every write of its holder carries it.

Times are the database's own, so that workers with wrong clocks agree.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from django.db import connection
from django.db.models import Q
from django.db.models.functions import Now

from workspaces import dispatch
from workspaces.domain.states import TaskStatus

S = TaskStatus
CLAIMABLE = (
    Q(status__in=[S.QUEUED.value, S.RUNNING.value, S.PAUSING.value])
    | Q(status=S.PAUSED.value, disk_restore__isnull=False)
    # ordered while a worker was about to make it wait or pause: nothing else would come back to it
    | Q(status__in=[S.WAITING.value, S.PAUSED.value], cancelling=True)
)
LEASE_FREE = Q(lease_until=None) | Q(lease_until__lt=Now())


# CLAIMABLE and LEASE_FREE once more, in SQL: a step makes two of these statements, so each is one round trip
_DUE = """(status IN ('queued', 'running', 'pausing')
    OR (status = 'paused' AND disk_restore_id IS NOT NULL)
    OR (status IN ('waiting', 'paused') AND cancelling))"""
_CLAIM = f"""
UPDATE workspaces_task
   SET fence = workspaces_task.fence + 1, lease_owner = %(worker)s,
       lease_until = statement_timestamp() + make_interval(secs => %(lease_s)s)
  FROM (SELECT id, lease_owner FROM workspaces_task WHERE id = %(task)s FOR NO KEY UPDATE SKIP LOCKED) AS before
 WHERE workspaces_task.id = before.id AND {_DUE}
   AND (lease_until IS NULL OR lease_until < statement_timestamp())
RETURNING workspaces_task.fence, before.lease_owner
"""  # noqa: S608 - no value from outside is in it
_RELEASE = f"""
UPDATE workspaces_task
   SET lease_until = NULL, lease_owner = '',
       dispatched_at = CASE WHEN {_DUE} THEN statement_timestamp() ELSE dispatched_at END
 WHERE id = %(task)s AND fence = %(fence)s
RETURNING {_DUE}
"""  # noqa: S608


@dataclass(frozen=True, slots=True)
class Claim:
    """`previous_owner`: the worker that let its lease run out, if one did."""

    task_id: int
    fence: int
    previous_owner: str


def claim(task_id: int, *, worker: str, lease_s: float) -> Claim | None:
    """Take the task, by one conditional UPDATE. None when it is not due or another worker has it."""
    with connection.cursor() as cursor:
        cursor.execute(_CLAIM, {"task": task_id, "worker": worker, "lease_s": lease_s})
        row = cursor.fetchone()
    return Claim(task_id, *row) if row else None


def renew(held: Mapping[int, int], *, lease_s: float) -> set[int]:
    """Prolong the leases (task id → fence) that are still ours; returns the ids of those that it did.

    One that was let go meanwhile stays so: nobody would let go of it again, and its task would stand still.

    A task whose row somebody has locked is passed over: a long write about one task must not cost the others of
    this process their leases. It keeps its fence, and nobody can claim it meanwhile; try it again.
    """
    if not held:
        return set()
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE workspaces_task SET lease_until = statement_timestamp() + make_interval(secs => %s)"
            " FROM (SELECT task.id FROM workspaces_task AS task"
            "         JOIN unnest(%s::bigint[], %s::bigint[]) AS held(id, fence)"
            "           ON task.id = held.id AND task.fence = held.fence AND task.lease_until IS NOT NULL"
            "          FOR NO KEY UPDATE OF task SKIP LOCKED) AS ours"
            " WHERE workspaces_task.id = ours.id"
            " RETURNING workspaces_task.id",
            [lease_s, list(held), list(held.values())],
        )
        return {row[0] for row in cursor.fetchall()}


def release(task_id: int, fence: int) -> bool:
    """Let go; whether the task is still to be advanced. Nobody is called: see `call`, or leave it to the scheduler."""
    with connection.cursor() as cursor:
        cursor.execute(_RELEASE, {"task": task_id, "fence": fence})
        row = cursor.fetchone()
    return bool(row and row[0])


def call(task_id: int) -> None:
    """Call some worker for the task's next step."""
    dispatch.advance(task_id)
