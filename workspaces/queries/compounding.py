"""Tasks that ended, for domain/compounding.py: failure and cost by length and by agents. Reads only, bounded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.contrib.auth.models import AnonymousUser
from django.db.models import Q, QuerySet
from django.db.models.functions import Coalesce

from workspaces.domain.compounding import Bin, Ended, Span, by_agents, by_steps
from workspaces.domain.states import TaskStatus
from workspaces.models import Task, User

from .access import visible_tasks

MOST_TASKS = 20_000  # the newest; more would only cost time


@dataclass(frozen=True, slots=True)
class Compounding:
    """`tasks`: how many are behind it; `cut`: older ones were left out."""

    steps: Sequence[Bin]
    agents: Sequence[Bin]
    tasks: int
    cut: bool


def compounding_of(
    user: User | AnonymousUser, *, profile: int | None = None, since: datetime | None = None
) -> Compounding:
    """Of tasks that succeeded or failed; one that a person cancelled says nothing about its agent."""
    ended = visible_tasks(user).filter(
        status__in=[TaskStatus.SUCCEEDED.value, TaskStatus.FAILED.value], steps_taken__gt=0, finished_at__isnull=False
    )
    if profile:
        ended = ended.filter(profile_version__profile_id=profile)
    if since:
        ended = ended.filter(finished_at__gte=since)
    found = _ended(ended)
    tasks = found[:MOST_TASKS]
    return Compounding(
        steps=by_steps(tasks),
        agents=by_agents(tasks, _spans(user, tasks)),
        tasks=len(tasks),
        cut=len(found) > MOST_TASKS,
    )


def _ended(tasks: QuerySet[Task]) -> list[Ended]:
    rows = tasks.order_by("-pk").values_list(
        "pk",
        Coalesce("root_id", "pk"),
        "workspace_id",
        "steps_taken",
        "status",
        "cost_usd",
        "unpriced_calls",
        "created_at",
        "finished_at",
    )[: MOST_TASKS + 1]
    return [
        Ended(
            task=pk,
            root=root,
            workspace=workspace,
            steps=steps,
            failed=status == TaskStatus.FAILED.value,
            cost_usd=None if unpriced else cost,
            started=created,
            ended=finished,
        )
        for pk, root, workspace, steps, status, cost, unpriced, created, finished in rows
    ]


def _spans(user: User | AnonymousUser, tasks: Sequence[Ended]) -> list[Span]:
    """Every visible task that was there while one of `tasks` was, whatever its profile and however it ended."""
    if not tasks:
        return []
    first, last = min(task.started for task in tasks), max(task.ended for task in tasks)
    rows = (
        visible_tasks(user)
        .filter(Q(finished_at__gte=first) | Q(finished_at=None), created_at__lte=last)
        .order_by("-pk")
        .values_list(Coalesce("root_id", "pk"), "workspace_id", "created_at", "finished_at")
    )
    return [Span(*row) for row in rows[: MOST_TASKS * 2]]
