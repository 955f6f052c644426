"""A task's limits for people: what holds now, who says so, and what else could be chosen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from workspaces.domain.events import EventKind
from workspaces.models import Event, ProfileVersion, Task, User

from .access import usable_profiles
from .tuning import asked_with

SUGGESTED = 30


@dataclass(frozen=True, slots=True)
class LastChange:
    """When a person last changed a limit of this task, and why."""

    old: Any
    new: Any
    actor: User | None
    at: datetime
    reason: str


@dataclass(frozen=True, slots=True)
class TaskLimits:
    """`asked`: what the model is asked with now; `profile`: what would hold without the task's own limits."""

    task: Task
    asked: ProfileVersion
    profile: ProfileVersion
    changed: Mapping[str, LastChange]

    @property
    def own(self) -> list[tuple[str, Any]]:
        """What this task has of its own, for a line that names it."""
        task, profile = self.task, self.profile
        found: list[tuple[str, Any]] = []
        if task.max_steps != profile.max_steps:
            found.append(("steps", f"{task.max_steps:,}"))
        if task.max_output_tokens_override is not None:
            found.append(("output limit", f"{task.max_output_tokens_override:,} tokens"))
        if task.model_override:
            found.append(("model", task.model_override))
        if task.deadline is not None:
            found.append(("deadline", f"{task.deadline:%Y-%m-%d %H:%M} UTC"))
        if task.interactive:
            found.append(("interactive", "yes"))
        return found


def limits_of(task: Task) -> TaskLimits:
    """Without the history of changes: costs no query."""
    return TaskLimits(task, asked_with(task), task.profile_version, {})


def limits_with_history(task: Task) -> TaskLimits:
    """One more query, over the task's own trace."""
    told = Event.objects.filter(task=task, kind=EventKind.TASK_RETUNED.value).select_related("actor").order_by("seq")
    changed = {
        each["what"]: LastChange(each["old"], each["new"], event.actor, event.at, event.data.get("reason", ""))
        for event in told
        for each in event.data["changes"]
    }
    return TaskLimits(task, asked_with(task), task.profile_version, changed)


def models_beside(task: Task, user: User) -> list[str]:
    """Names that profiles which the user may use ask for at the same provider, with the same key."""
    version = task.profile_version
    same = ProfileVersion.objects.filter(
        profile__in=usable_profiles(user), provider=version.provider, base_url=version.base_url, key=version.key_id
    )
    names = same.exclude(model=version.model).order_by("model").values_list("model", flat=True).distinct()
    return list(names[:SUGGESTED])
