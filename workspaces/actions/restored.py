"""After an installation was made from a backup: nothing runs any more, whatever the rows say, and the tasks go on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from django.db import transaction
from django.db.models import F

from workspaces.domain.endpoints import DeliveryState
from workspaces.domain.events import EventKind
from workspaces.domain.states import TaskStatus, WaitingFor
from workspaces.models import (
    ActionLink,
    AlertWatch,
    Delivery,
    Endpoint,
    Heartbeat,
    Leftover,
    Node,
    Snapshot,
    StorageMeter,
    Task,
    Workspace,
)

from . import budget_holds
from .clock import database_now
from .model_calls import drop_unfinished
from .pen import writing
from .sleep import all_stopped

UNDONE = (
    "This installation was restored from a backup. The files are as they were before {calls}; what that changed in "
    "files is not there. Look at the files before you go on, and do it again where it is needed."
)
NOT_SENT = "Not sent: the installation was restored from a backup, and it may have arrived before that."


def workspaces_restored(disks: Mapping[int, Snapshot]) -> None:
    """No sandbox runs, no proxy's log is there, the engines are others. `disks`: what was put back, by workspace."""
    for of_another_site in (Node, Heartbeat, AlertWatch):
        of_another_site.objects.all().delete()
    Leftover.objects.filter(removed_at=None).update(removed_at=database_now())
    Workspace.objects.update(node="", network_read=0)
    budget_holds.nothing_runs()
    StorageMeter.objects.update(at=database_now())  # what was stored meanwhile was not stored here
    all_stopped(disks)


def alerts_restored() -> None:
    """Nothing of what waited to be sent goes out by surprise: it may have arrived, and what it tells may be long over.
    It can be sent again by hand. No link that was ever sent acts here. An endpoint has not failed while nobody sent.
    """
    with transaction.atomic():
        now = database_now()
        Delivery.objects.filter(state=DeliveryState.PENDING.value).update(
            state=DeliveryState.FAILED.value, error=NOT_SENT, finished_at=now, leased_until=None, fence=F("fence") + 1
        )
        ActionLink.objects.filter(used_at=None, revoked_at=None).update(revoked_at=now)
        Endpoint.objects.update(failing_since=None, failures=0, held_until=None)


def task_restored(task_id: int, *, made_at: str, snapshot: Snapshot | None, undone: Sequence[str]) -> None:
    """No worker holds it: it is due again if it was. `undone`: calls whose changes to files are lost."""
    with writing(task_id) as pen:
        task = pen.task
        if TaskStatus(task.status).is_final:
            return
        pen.set(fence=task.fence + 1, lease_until=None, lease_owner="", dispatched_at=None)
        drop_unfinished(pen, why="the installation was restored from a backup")
        if task.status == TaskStatus.WAITING.value and task.waiting_for == WaitingFor.WORKSPACE.value:
            pen.set(waiting_until=pen.now)
        seq = pen.event(
            EventKind.TASK_RESTORED,
            made_at=made_at,
            snapshot=snapshot.ref if snapshot else "",
            undone=list(undone),
        )
        if undone:
            pen.message("user", UNDONE.format(calls=" and ".join(undone)), seq=seq, pinned=True)


def unfinished_tasks() -> list[int]:
    final = [status.value for status in TaskStatus if status.is_final]
    return list(Task.objects.exclude(status__in=final).order_by("pk").values_list("pk", flat=True))
