"""The only door to Celery: jobs by name, ids in, sent on commit.

A message is a wake-up call. When the broker does not take it, the scheduler sends it again: the database
knows what is due.
"""

from __future__ import annotations

import logging

from celery import current_app
from django.db import connection, transaction
from kombu.exceptions import OperationalError

from workspaces.domain.alerts import CHANNEL

logger = logging.getLogger(__name__)

ADVANCE = "workspaces.jobs.advance"
WAKE = "workspaces.jobs.wake_workspace"
HOUSEKEEPING = "workspaces.jobs.housekeeping"
SLEEP = "workspaces.jobs.sleep_workspace"
LOOK = "workspaces.jobs.look_at_nodes"
COMMAND = "workspaces.jobs.run_command"
LEFTOVERS = "workspaces.jobs.end_leftovers"
METERS = "workspaces.jobs.read_meters"
OWNERS = "workspaces.jobs.tell_owners"


def advance(task_id: int) -> None:
    """Have some worker run the task's next step."""
    transaction.on_commit(lambda: _send(ADVANCE, task_id))


def wake_workspace(workspace_id: int) -> None:
    """Have some worker wake the workspace, if it is still to be woken."""
    transaction.on_commit(lambda: _send(WAKE, workspace_id))


def sleep_workspace(workspace_id: int) -> None:
    """Have some worker put the workspace to sleep, if nothing wants it."""
    transaction.on_commit(lambda: _send(SLEEP, workspace_id))


def look_at_nodes() -> None:
    """Have some worker ask every node how it is."""
    transaction.on_commit(lambda: _send(LOOK))


def run_command(command_id: int) -> None:
    """Have some worker run an operator's command."""
    transaction.on_commit(lambda: _send(COMMAND, command_id))


def housekeeping() -> None:
    """Have some worker drop and free what no longer has to be kept, and end sandboxes that nobody knows to run."""
    transaction.on_commit(lambda: _send(HOUSEKEEPING))


def end_leftovers(workspace_id: int) -> None:
    """Have some worker end what a task left running in a workspace that is free."""
    transaction.on_commit(lambda: _send(LEFTOVERS, workspace_id))


def read_meters() -> None:
    """Have some worker book what sandboxes have used and what is stored."""
    transaction.on_commit(lambda: _send(METERS))


def alerts() -> None:
    """Have the couriers look at what is to be told, at the commit: they listen at the database (engine/doorbell.py)."""
    with connection.cursor() as cursor:
        cursor.execute(f"NOTIFY {CHANNEL}")


def tell_owners() -> None:
    """Have a worker tell, by mail, whose endpoints were switched off."""
    transaction.on_commit(lambda: _send(OWNERS))


def _send(name: str, *ids: int) -> None:
    try:
        current_app.send_task(name, args=ids, retry=False)
    except (OperationalError, OSError) as error:
        logger.warning("%s%s was not sent, the scheduler will: %s", name, ids, error)
