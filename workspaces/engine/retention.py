"""Keeps storage bounded: old checkpoints are dropped as their profiles say, and then the stores free the bytes. So are
signals of troubles that were over long ago, and messages that were sent long ago.

Safe to die anywhere and to run twice at once: dropping is one transaction a task, freeing forgets a ref that may be
forgotten already, and what was not marked as freed is freed again.
"""

from __future__ import annotations

import logging

from workspaces.actions import alert_signals, deliveries, retention
from workspaces.engine.boxes import driver_for, driver_named
from workspaces.models import Snapshot, Workspace
from workspaces.queries.database import collecting
from workspaces.sandboxes.base import SandboxError

logger = logging.getLogger(__name__)


def run() -> None:
    """Everything that is due, once."""
    for task_id in retention.due():
        retention.retain(task_id)
    retention.drop_unattached()
    alert_signals.forget_old()
    deliveries.forget_old()
    with collecting() as mine:
        if mine:
            free()
            _tidy()


def _tidy() -> None:
    for name in Workspace.objects.order_by("driver").values_list("driver", flat=True).distinct():
        try:
            driver_named(name).snapshots.tidy()
        except SandboxError as error:
            logger.warning("the room of what was dropped was not given back: %s", error)


def free() -> int:
    """Have the stores forget what was dropped. Returns how many snapshots."""
    dropped = Snapshot.objects.filter(dropped_at__isnull=False, freed_at=None).select_related("workspace")
    done = 0
    for snapshot in dropped.order_by("dropped_at")[: retention.BATCH]:
        try:
            driver_for(snapshot.workspace).snapshots.drop(snapshot.ref)
        except SandboxError as error:
            logger.warning("snapshot %s was not freed: %s", snapshot.ref, error)
            continue
        retention.freed(snapshot.pk)
        done += 1
    return done
