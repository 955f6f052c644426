"""A task that waits is woken: waiting → queued."""

from __future__ import annotations

from workspaces import dispatch
from workspaces.domain.events import EventKind
from workspaces.domain.states import TaskStatus
from workspaces.models import Task

from .pen import Pen, writing


def wake(pen: Pen, *, why: str) -> None:
    """Queue a locked, waiting task."""
    pen.move(TaskStatus.QUEUED)
    pen.event(EventKind.TASK_QUEUED, reason=why)
    dispatch.advance(pen.task.pk)


def wake_waiting(task_id: int, *, waiting_for: str, why: str) -> bool:
    """Wake the task if it still waits for that. Does nothing otherwise."""
    with writing(task_id) as pen:
        task: Task = pen.task
        if task.status != TaskStatus.WAITING.value or task.waiting_for != waiting_for:
            return False
        wake(pen, why=why)
        return True
