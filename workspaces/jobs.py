"""Celery tasks: ids in, under 10 lines each."""

from __future__ import annotations

import os
from typing import Any

from celery import shared_task
from celery.signals import worker_init, worker_ready, worker_shutdown, worker_shutting_down
from django.conf import settings

from workspaces.engine import courier, lifecycle, mail, metering, nodes, retention, runner, terminal, watch


@shared_task(name="workspaces.jobs.advance")
def advance(task_id: int) -> None:
    runner.go_on(task_id)


@shared_task(name="workspaces.jobs.wake_workspace")
def wake_workspace(workspace_id: int) -> None:
    lifecycle.wake(workspace_id)


@shared_task(name="workspaces.jobs.sleep_workspace")
def sleep_workspace(workspace_id: int) -> None:
    lifecycle.sleep(workspace_id)


@shared_task(name="workspaces.jobs.look_at_nodes")
def look_at_nodes() -> None:
    nodes.look()


@shared_task(name="workspaces.jobs.run_command")
def run_command(command_id: int) -> None:
    terminal.run(command_id)


@shared_task(name="workspaces.jobs.housekeeping")
def housekeeping() -> None:
    retention.run()
    lifecycle.sweep_all()


@shared_task(name="workspaces.jobs.end_leftovers")
def end_leftovers(workspace_id: int) -> None:
    lifecycle.end_leftovers(workspace_id)


@shared_task(name="workspaces.jobs.read_meters")
def read_meters() -> None:
    metering.run()


@shared_task(name="workspaces.jobs.tell_owners")
def tell_owners() -> None:
    mail.tell_owners()


@worker_init.connect
def watch_from_here(**_: Any) -> None:
    watch.start_in_worker()


@worker_ready.connect
def start_courier(**_: Any) -> None:
    courier.start(stands_back=True)


@worker_shutdown.connect
def join_courier(**_: Any) -> None:
    courier.join()


@worker_shutting_down.connect
def drain(**_: Any) -> None:
    """The signal's handler itself only starts it; Celery then waits for the threads, which this ends."""
    watch.worker_ends()
    courier.end()
    runner.keeper().drain(settings.DRAIN_S, end=lambda: os._exit(0))
