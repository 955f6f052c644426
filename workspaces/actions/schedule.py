"""What time brings: due tasks are dispatched again, waits end, questions expire. Any number may run at once."""

from __future__ import annotations

from datetime import timedelta

from django.db import transaction
from django.db.models import Exists, F, OuterRef, Q, QuerySet
from django.db.models.functions import Now

from workspaces import dispatch
from workspaces.domain.states import ClaimState, EscalationStatus, TaskStatus, WaitingFor
from workspaces.models import Escalation, Node, QuotaClaim, Task, Workspace

from .escalations import expire_escalation
from .leases import CLAIMABLE, LEASE_FREE
from .pen import writing
from .waits import wake

BATCH = 500
LOOK_AT_NODES_S = 10


def redispatch_due(*, after_s: float) -> int:
    """Call again for tasks that nobody took up `after_s` after the last call; returns how many."""
    due = Q(dispatched_at=None) | Q(dispatched_at__lt=Now() - timedelta(seconds=after_s))
    with transaction.atomic():
        ids = list(
            Task.objects.select_for_update(skip_locked=True)
            .filter(CLAIMABLE & LEASE_FREE & due)
            .order_by(F("dispatched_at").asc(nulls_first=True))
            .values_list("pk", flat=True)[:BATCH]
        )
        Task.objects.filter(pk__in=ids).update(dispatched_at=Now())
        for task_id in ids:
            dispatch.advance(task_id)
    return len(ids)


def end_waits() -> int:
    """Wake tasks whose waiting time is over (all but those that wait for an operator, or in the queue of a quota pool,
    which are called when it is their turn: quota_sweep.py); returns how many.

    Also one that waits for a workspace that is free: whoever was called when it was let go of did not take it.
    """
    free = Q(waiting_for=WaitingFor.WORKSPACE.value, workspace__held_by=None, workspace__command=None)
    ids = list(
        Task.objects.filter(Q(waiting_until__lte=Now()) | free, status=TaskStatus.WAITING.value)
        .exclude(waiting_for=WaitingFor.OPERATOR.value)
        .exclude(Q(waiting_for=WaitingFor.QUOTA.value) & Exists(_queued()))
        .order_by("waiting_until")
        .values_list("pk", flat=True)[:BATCH]
    )
    woken = 0
    for task_id in ids:
        with writing(task_id) as pen:
            task = pen.task
            still = task.status == TaskStatus.WAITING.value and task.waiting_for != WaitingFor.OPERATOR.value
            over = task.waiting_until is not None and task.waiting_until <= pen.now
            if still and (over or _waits_for_nobody(task)):
                wake(pen, why=f"the wait for {task.waiting_for} is over")
                woken += 1
    return woken


def _queued() -> QuerySet[QuotaClaim]:
    return QuotaClaim.objects.filter(task=OuterRef("pk"), state=ClaimState.WAITING.value)


def _waits_for_nobody(task: Task) -> bool:
    free = Workspace.objects.filter(pk=task.workspace_id, held_by=None, command=None)
    return task.waiting_for == WaitingFor.WORKSPACE.value and free.exists()


def expire_due() -> int:
    """Expire escalations whose deadline has passed; returns how many."""
    ids = list(
        Escalation.objects.filter(status=EscalationStatus.OPEN.value, deadline__lte=Now())
        .order_by("deadline")
        .values_list("pk", flat=True)[:BATCH]
    )
    return sum(expire_escalation(escalation_id) for escalation_id in ids)


def call_for_nodes() -> bool:
    """Have a worker look at the nodes, unless one did a moment ago or nothing runs on any. Whether it was called."""
    with transaction.atomic():
        if Node.objects.filter(called_at__gt=Now() - timedelta(seconds=LOOK_AT_NODES_S)).exists():
            return False
        if not Workspace.objects.filter(driver=Workspace.Driver.DOCKER).exists():
            return False
        Node.objects.update(called_at=Now())
        dispatch.look_at_nodes()
    return True
