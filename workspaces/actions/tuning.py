"""Sets a task's own limits, inside a locked task. Asks nobody and wakes nobody: see retune.py and escalations.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workspaces.domain.events import EXCERPT_CHARS, EventKind
from workspaces.domain.retuning import COLUMNS, Change, problems_with
from workspaces.domain.text import clip
from workspaces.models import Task
from workspaces.queries.tuning import asked_with, tuned

from .errors import Refused
from .pen import Pen


def tune(pen: Pen, changes: Mapping[str, Any], *, reason: str) -> list[Change]:
    """What differed and is changed now; one event. Raises Refused. `changes`: by the names of domain/retuning.py.

    A model of "" and an output limit of None are the profile's, a deadline of None is none. The next model call is
    made with them; one that is under way keeps what it began with.
    """
    task = pen.task
    wanted = _as_columns(task, changes)
    after = tuned(
        task.profile_version,
        model=wanted.get("model_override", task.model_override),
        max_output_tokens=wanted.get("max_output_tokens_override", task.max_output_tokens_override),
    )
    window = after.context_window_tokens
    checked = {"max_output_tokens": after.max_output_tokens} if "model" in changes else {}
    problems = problems_with(checked | dict(changes), window_tokens=window, now=pen.now)
    if problems:
        raise Refused(" ".join(problems.values()))
    before = holding(task)
    pen.set(**wanted)
    made = differences(before, holding(task), task)
    record(pen, made, reason=reason)
    return made


def record(pen: Pen, made: list[Change], *, reason: str) -> None:
    """In the trace and in the audit log: who, why, old and new."""
    if made:
        told = [change.as_json() for change in made]
        pen.event(EventKind.TASK_RETUNED, changes=told, reason=clip(reason, EXCERPT_CHARS))
        pen.audit("task.retune", reason=reason, changes=told)


def holding(task: Task) -> dict[str, Any]:
    """What holds for the task now, whoever says so."""
    version = asked_with(task)
    return {
        "max_steps": task.max_steps,
        "max_output_tokens": version.max_output_tokens,
        "model": version.model,
        "deadline": task.deadline,
        "interactive": task.interactive,
    }


def differences(before: Mapping[str, Any], after: Mapping[str, Any], task: Task) -> list[Change]:
    profile = task.profile_version
    own = {
        "max_steps": task.max_steps != profile.max_steps,
        "max_output_tokens": task.max_output_tokens_override is not None,
        "model": bool(task.model_override),
    }
    return [
        Change(what, before[what], after[what], own.get(what, True)) for what in COLUMNS if before[what] != after[what]
    ]


def _as_columns(task: Task, changes: Mapping[str, Any]) -> dict[str, Any]:
    """What the profile says itself is not set on the task."""
    wanted = {COLUMNS[what]: value for what, value in changes.items()}
    profile = task.profile_version
    if wanted.get("model_override") == profile.model:
        wanted["model_override"] = ""
    if wanted.get("max_output_tokens_override") == profile.max_output_tokens:
        wanted["max_output_tokens_override"] = None
    return wanted
