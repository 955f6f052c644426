"""What the head of a task's page shows: the task with its people, its lineage and what may be done to it now."""

from __future__ import annotations

from dataclasses import dataclass

from workspaces.domain.states import ACTIVE, PauseMode, TaskStatus, is_quiet
from workspaces.models import Checkpoint, Step, Task

from .incidents import OpenIncidents, open_of
from .task_limits import TaskLimits, limits_of

FORKS_NAMED = 20


@dataclass(frozen=True, slots=True)
class Controls:
    """What the task's state allows; whether the person may is a matter of their role."""

    pause: bool
    pause_now: bool
    resume: bool
    say: bool
    cancel: bool
    roll_back: bool
    fork: bool

    @classmethod
    def of(cls, task: Task, *, has_checkpoint: bool) -> Controls:
        status = TaskStatus(task.status)
        pausing_softly = status is TaskStatus.PAUSING and task.pause_mode != PauseMode.NOW.value
        ended = status.is_final
        return cls(
            pause=status in ACTIVE and status is not TaskStatus.PAUSING,
            pause_now=status is TaskStatus.RUNNING or pausing_softly,
            resume=status is TaskStatus.PAUSED,
            say=not ended,
            cancel=not ended and not task.cancelling,
            roll_back=has_checkpoint and is_quiet(status),
            fork=has_checkpoint,
        )


@dataclass(frozen=True, slots=True)
class Head:
    task: Task
    controls: Controls
    forks: list[Task]
    newest_checkpoint: int | None  # its seq
    step_number: int  # on the current branch, as its limit counts them
    incidents: OpenIncidents | None
    limits: TaskLimits


def head_of(task: Task) -> Head:
    """Four queries, besides what `task` still has to load of its relations."""
    newest = (
        Checkpoint.objects.filter(task=task, branch=task.branch).order_by("-seq").values_list("seq", flat=True).first()
    )
    forks = list(Task.objects.filter(forked_from=task).only("pk", "title", "status").order_by("pk")[:FORKS_NAMED])
    return Head(
        task,
        Controls.of(task, has_checkpoint=newest is not None),
        forks,
        newest,
        step_number_of(task),
        open_of([task.pk]).get(task.pk),
        limits_of(task),
    )


def step_number_of(task: Task) -> int:
    """The step that the current branch has come to."""
    step = Step.objects.filter(branch=task.branch).order_by("-number").values_list("number", flat=True).first()
    if step is None:  # a branch that a rollback has just begun
        step = task.branch.first_step - 1 if task.branch else 0
    return step
