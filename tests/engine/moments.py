"""Between two lines of the engine: something is done there, or the worker dies there. For tests of races and kills."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import wraps
from typing import Any

import pytest
from django.utils import timezone

from tests.engine.test_pause import paused_in_a_command
from workspaces.engine import runner
from workspaces.engine.boxes import sandbox_for
from workspaces.models import Latch, Task


class Killed(BaseException):
    """Nothing of ours catches it: the thread ends as if its process had been killed."""


def at(
    patched: pytest.MonkeyPatch,
    place: str,
    what: Callable[[], object],
    *,
    before: bool = True,
    times: int = 1,
) -> list[int]:
    """Do `what` before (or after) `place` ("module:name" or "module:Class.name"), the first `times` times.

    The place itself does what it always does. Returns a list that grows by one each time it was passed.
    """
    module, _, path = place.partition(":")
    owner: Any = importlib.import_module(module)
    *parents, name = path.split(".")
    for parent in parents:
        owner = getattr(owner, parent)
    original = getattr(owner, name)
    passed: list[int] = []

    @wraps(original)
    def between(*args: Any, **kwargs: Any) -> Any:
        passed.append(len(passed))
        due = len(passed) <= times
        if due and before:
            what()
        result = original(*args, **kwargs)
        if due and not before:
            what()
        return result

    patched.setattr(owner, name, between)
    return passed


def die() -> None:
    raise Killed


def killed_at(task: Task, place: str, *, before: bool = True, time: int = 1) -> Task:
    """Advance the task until its worker dies at `place` (the `time`-th time); its lease has then run out."""
    count: list[int] = []

    def die_in_time() -> None:
        count.append(1)
        if len(count) == time:
            raise Killed

    with pytest.MonkeyPatch.context() as patched:
        at(patched, place, die_in_time, before=before, times=time)
        for _ in range(50):
            try:
                runner.advance(task.pk)
            except Killed:
                break
        else:
            raise AssertionError(f"{place} was never reached")
    Task.objects.filter(pk=task.pk).exclude(lease_until=None).update(lease_until=task.created_at)
    task.refresh_from_db()
    return task


def left_in_a_command(*, lease_ran_out: bool = True) -> Task:
    """A task whose worker died while its command ran: the command runs on, with nobody behind it."""
    task = paused_in_a_command()
    Latch.objects.filter(task=task).update(released_at=timezone.now())
    until = task.created_at if lease_ran_out else timezone.now() + timezone.timedelta(seconds=60)
    Task.objects.filter(pk=task.pk).update(
        status="running", pause_mode="", latch=None, lease_owner="the dead one", lease_until=until
    )
    sandbox_for(task.workspace).thaw()
    task.refresh_from_db()
    return task
