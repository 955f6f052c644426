"""The auditor's question to the disks: can every saved state that is still offered really be put back?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from workspaces.domain.integrity import Broken
from workspaces.engine.boxes import driver_named
from workspaces.models import Checkpoint, Task
from workspaces.queries.integrity import SHOWN, Rule, Verified
from workspaces.sandboxes.base import SandboxError

DISKS = Rule("disks", "the disk of every checkpoint can be read, to the last byte", "snapshot", "")

Offers = defaultdict[str, list[tuple[int, str]]]  # ref → (task, what names it)


def verify_disks(task_id: int | None = None) -> Verified:
    """Read every snapshot that a checkpoint offers or that a task is to be put back to."""
    drivers = _offered(task_id)
    rows = [row for driver, offers in drivers.items() for row in _unreadable(driver, offers)]
    return Verified(DISKS, sum(len(offers) for offers in drivers.values()), len(rows), rows[:SHOWN])


def _offered(task_id: int | None) -> dict[str, Offers]:
    checkpoints = Checkpoint.objects.filter(snapshot__dropped_at=None).order_by("pk")
    restores = Task.objects.exclude(disk_restore=None)
    if task_id is not None:
        checkpoints, restores = checkpoints.filter(task_id=task_id), restores.filter(pk=task_id)
    drivers: defaultdict[str, Offers] = defaultdict(lambda: defaultdict(list))
    columns = ("snapshot__workspace__driver", "snapshot__ref", "task_id", "seq")
    for driver, ref, task, seq in checkpoints.values_list(*columns):
        drivers[driver][ref].append((task, f"the checkpoint at {seq}"))
    for driver, ref, task in restores.values_list("disk_restore__workspace__driver", "disk_restore__ref", "pk"):
        drivers[driver][ref].append((task, "the state that its disk is to be put back to"))
    return drivers


def _unreadable(driver: str, offers: Offers) -> Iterator[Broken]:
    try:
        problems = driver_named(driver).snapshots.problems(offers)
    except SandboxError as error:
        yield Broken(None, f"the saved disks of the driver {driver} cannot be reached: {error}")
        return
    for ref, problem in problems.items():
        for task, what in offers[ref]:
            yield Broken(task, f"{what} ({ref}): {problem}")
