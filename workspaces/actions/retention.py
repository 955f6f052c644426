"""What stays restorable: snapshots that nothing refers to any more are dropped, under the lock that a rollback takes.

`offered_snapshot` and `retain` lock the same row, so that a checkpoint which is offered can be restored. Order of
locks: tasks before snapshots. A dropped snapshot stays as a row; its bytes are freed by engine/retention.py.
"""

from __future__ import annotations

from datetime import timedelta

from django.db import connection, transaction
from django.db.models import Exists, F, OuterRef, Q
from django.db.models.functions import Now

from workspaces import dispatch
from workspaces.domain.incidents import IncidentState
from workspaces.domain.retention import kept
from workspaces.domain.states import FINAL, CallStatus, EscalationStatus, StepPhase
from workspaces.models import Checkpoint, Escalation, Incident, ProfileVersion, Snapshot, Task, ToolCall, Workspace

from .clock import database_now
from .errors import Refused

BATCH = 200
INCIDENTS = 20  # the newest open ones of a task, each of which keeps a checkpoint
UNATTACHED_FOR = timedelta(hours=1)  # a snapshot is taken before the row that refers to it is written
LOOK_AGAIN = timedelta(days=1)


def offered_snapshot(snapshot_id: int) -> Snapshot:
    """The snapshot, locked until the transaction ends. Raises Refused when it is no longer kept."""
    snapshot = Snapshot.objects.select_for_update(no_key=True).get(pk=snapshot_id)
    if snapshot.dropped_at is not None:
        raise Refused(
            "The files of this checkpoint are no longer kept: of the older ones only some stay, as the profile says. "
            "Choose another checkpoint."
        )
    return snapshot


def call_housekeeping() -> None:
    """Have a worker do it."""
    dispatch.housekeeping()


def due() -> list[int]:
    """Tasks with new events since they were last gone through, and each now and then."""
    return list(
        Task.objects.filter(
            Q(retained_at=None) | Q(last_event_at__gt=F("retained_at")) | Q(retained_at__lt=Now() - LOOK_AGAIN)
        )
        .order_by(F("retained_at").asc(nulls_first=True))
        .values_list("pk", flat=True)[:BATCH]
    )


def retain(task_id: int) -> int:
    """Drop the task's snapshots that neither a checkpoint which stays nor anything else refers to. Returns how many.

    1. what could go; 2. lock it; 3. look again, now that nobody can come to refer to it; 4. drop.
    """
    began = database_now()
    candidates = {snapshot for _, snapshot in _positions(task_id)[1]} - _staying(task_id)
    dropped = _drop(candidates) if candidates else 0
    Task.objects.filter(pk=task_id).update(retained_at=began)
    return dropped


def drop_unattached() -> int:
    """Drop snapshots that no checkpoint has: of sleeps that are over, and from within steps. Returns how many."""
    found = (
        Snapshot.objects.filter(dropped_at=None, created_at__lt=Now() - UNATTACHED_FOR)
        .exclude(Exists(Checkpoint.objects.filter(snapshot=OuterRef("pk"))))
        .exclude(_NEEDED)
        .order_by("pk")
        .values_list("pk", flat=True)[:BATCH]
    )
    return _drop(set(found)) if found else 0


def freed(snapshot_id: int) -> None:
    """Its bytes are gone."""
    Snapshot.objects.filter(pk=snapshot_id, dropped_at__isnull=False, freed_at=None).update(freed_at=Now())


def _needed() -> Q:
    """Snapshots that are needed whatever a profile says: to be put back, to undo a call, or as a sleeping disk.

    And the newest of each workspace: it is all there is of its disk when its node is lost.
    """
    restoring = Task.objects.filter(disk_restore=OuterRef("pk"))
    asleep = Workspace.objects.filter(slept_snapshot=OuterRef("pk"))
    over = Q(step__phase=StepPhase.SETTLED.value) | Q(task__status__in=[status.value for status in FINAL])
    undo = ToolCall.objects.filter(snapshot_before=OuterRef("pk"), branch=F("task__branch"))
    undo = undo.exclude(over & Q(status__in=[CallStatus.DONE.value, CallStatus.ABANDONED.value]))
    newer = Snapshot.objects.filter(workspace=OuterRef("workspace"), pk__gt=OuterRef("pk"))
    return Q(Exists(restoring)) | Q(Exists(asleep)) | Q(Exists(undo)) | ~Q(Exists(newer))


_NEEDED = _needed()


def _drop(candidates: set[int]) -> int:
    with transaction.atomic():
        locked = set(
            Snapshot.objects.select_for_update(no_key=True)
            .filter(pk__in=candidates, dropped_at=None)
            .order_by("pk")
            .values_list("pk", flat=True)
        )
        tasks = Checkpoint.objects.filter(snapshot__in=locked).values_list("task", flat=True).distinct()
        going = locked - {snapshot for task_id in tasks for snapshot in _staying(task_id)}
        return Snapshot.objects.filter(pk__in=going).exclude(_NEEDED).update(dropped_at=Now())


def _staying(task_id: int) -> set[int]:
    """Snapshots of the checkpoints that stay: by the profile's numbers, at open questions, before open incidents."""
    count, positions = _positions(task_id)
    last, every = ProfileVersion.objects.filter(tasks=task_id).values_list("keep_last", "keep_every").get()
    stay = kept([position for position, _ in positions], count=count, last=last, every=every)
    found = {snapshot for position, snapshot in positions if position in stay}
    questions = Escalation.objects.filter(task=task_id, status=EscalationStatus.OPEN.value)
    for opened_at in questions.values_list("opened_at", flat=True):
        asked_at = Checkpoint.objects.filter(task=task_id, created_at__lte=opened_at).order_by("-seq")
        found |= set(asked_at.values_list("snapshot", flat=True)[:1])
    return found | _before_incidents(task_id)


def _before_incidents(task_id: int) -> set[int]:
    """The checkpoint before each incident that is not over: where an operator would go back to. Bounded."""
    incidents = Incident.objects.filter(task=task_id).exclude(state=IncidentState.RESOLVED.value).order_by("-pk")
    found: set[int] = set()
    for first_seq in incidents.values_list("first_seq", flat=True)[:INCIDENTS]:
        before = Checkpoint.objects.filter(task=task_id, seq__lt=first_seq).order_by("-seq")
        found |= set(before.values_list("snapshot", flat=True)[:1])
    return found


def _positions(task_id: int) -> tuple[int, list[tuple[int, int]]]:
    """How many checkpoints the task has, and (position, snapshot) of those whose snapshot is still kept."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT counted.position, counted.snapshot_id, counted.total FROM"
            " (SELECT snapshot_id, row_number() OVER (ORDER BY seq) AS position, count(*) OVER () AS total"
            "    FROM workspaces_checkpoint WHERE task_id = %s) AS counted"
            " JOIN workspaces_snapshot AS snapshot ON snapshot.id = counted.snapshot_id"
            " WHERE snapshot.dropped_at IS NULL ORDER BY counted.position",
            [task_id],
        )
        rows = cursor.fetchall()
    return (rows[0][2] if rows else 0), [(row[0], row[1]) for row in rows]
