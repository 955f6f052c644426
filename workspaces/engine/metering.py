"""Reads what sandboxes have used and what disks hold, and has it booked. May die anywhere and run twice at once."""

from __future__ import annotations

import logging

from django.db import DatabaseError, InterfaceError, connection

from workspaces.actions import metering
from workspaces.engine.boxes import drivers_named, sandbox_for
from workspaces.models import Workspace
from workspaces.sandboxes.base import SandboxError, SandboxUnavailable

logger = logging.getLogger(__name__)

_READING = 7_411_906  # the advisory lock of the one worker that reads them all


def run() -> bool:
    """Everything that runs, and the stored bytes that are due. False: another worker is at it."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_lock(%s)", [_READING])
        if not cursor.fetchone()[0]:
            return False
    try:
        for workspace in _running():
            read(workspace)
        for workspace_id in metering.storage_due():
            count(Workspace.objects.get(pk=workspace_id))
    finally:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_unlock(%s)", [_READING])
    return True


def read(workspace: Workspace) -> None:
    """What its sandbox has used; also just after it was ended. What cannot be read now is in the next reading."""
    try:
        machines = sandbox_for(workspace).machines()
        if machines is not None:
            metering.sandbox_read(workspace.pk, machines)
    except (SandboxError, DatabaseError, InterfaceError) as error:
        logger.warning("what the sandbox of workspace %s has used is not read: %s", workspace.pk, error)


def count(workspace: Workspace) -> None:
    """What its disk and its snapshots hold; and what machines that have ended were not read to their end."""
    read(workspace)
    try:
        held = sandbox_for(workspace).usage().disk_bytes
    except (SandboxError, OSError) as error:
        logger.warning("the disk of workspace %s is not counted, it is taken as it was: %s", workspace.pk, error)
        held = None
    metering.storage_counted(workspace.pk, disk_bytes=held)


def _running() -> list[Workspace]:
    """Whose sandboxes run or are frozen, on any node that answers."""
    found: list[Workspace] = []
    for name in Workspace.objects.order_by("driver").values_list("driver", flat=True).distinct():
        try:
            drivers = drivers_named(name)
        except SandboxUnavailable as error:
            logger.warning("sandboxes of the driver %s are not read: %s", name, error)
            continue
        for node, driver in drivers.items():
            try:
                keys = driver.awake()
            except SandboxUnavailable as error:
                logger.warning("%s %s: %s", name, node, error)
                continue
            found += Workspace.objects.filter(driver=name, sandbox_key__in=keys)
    return found
