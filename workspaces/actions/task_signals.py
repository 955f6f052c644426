"""What the end of a task signals, and that a person has taken up one that failed. Ends no task."""

from __future__ import annotations

from workspaces.domain.alerts import AlertKind, Edge
from workspaces.domain.incidents import Severity
from workspaces.domain.states import TaskStatus
from workspaces.domain.text import clip

from . import question_signals
from .alert_signals import signal
from .pen import Pen

TITLE_CHARS = 120


def ended(pen: Pen, status: TaskStatus, text: str) -> None:
    """A failure lasts until a person has taken it up; one that a person decided on only happened. That a task was
    cancelled is told to nobody: a person did it, and it finished nothing.
    """
    task = pen.task
    question_signals.attended(pen, f"The task has ended: {status.value}.")
    if status is TaskStatus.CANCELLED:
        return
    failed = status is TaskStatus.FAILED
    signal(
        AlertKind.TASK_FAILED if failed else AlertKind.TASK_FINISHED,
        Edge.BEGAN if failed and pen.actor is None else Edge.HAPPENED,
        _subject(task.pk, failed=failed),
        words=text or ("It has failed." if failed else "It has finished."),
        severity=Severity.ERROR if failed else Severity.INFO,
        at=pen.now,
        task=task,
        detail=status.value,
        cause=f"task/{status.value}",
        data={"title": clip(task.title, TITLE_CHARS), "steps": task.steps_taken, "cost_usd": str(task.cost_usd)},
    )


def taken_up(pen: Pen, words: str) -> None:
    """The task has failed, and a person goes on with it, or from it."""
    signal(
        AlertKind.TASK_FAILED,
        Edge.ENDED,
        _subject(pen.task.pk, failed=True),
        words=words,
        severity=Severity.ERROR,
        at=pen.now,
        task=pen.task,
        detail=TaskStatus.FAILED.value,
        cause=f"task/{TaskStatus.FAILED.value}",
    )


def _subject(task_id: int, *, failed: bool) -> str:
    return f"{'failed' if failed else 'finished'}:{task_id}"
