"""Celery tasks: ids in, under 10 lines each."""

from __future__ import annotations

from celery import shared_task

from workspaces.engine import lifecycle, runner


@shared_task(name="workspaces.jobs.advance")
def advance(task_id: int) -> None:
    runner.advance(task_id)


@shared_task(name="workspaces.jobs.rest_workspace")
def rest_workspace(workspace_id: int) -> None:
    lifecycle.rest(workspace_id)
