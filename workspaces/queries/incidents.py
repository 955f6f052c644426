"""The incident list's reads: which incidents, in which order, how many of each kind; and which are open on a task.

Two queries make a page, as in queries/fleet.py: one finds the ids in order, one loads only those rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from django.contrib.auth.models import AnonymousUser
from django.db.models import Count, Max, QuerySet

from workspaces.domain.incidents import (
    Cluster,
    FailureMode,
    IncidentKind,
    IncidentState,
    Severity,
    clusters_of,
    kinds_of,
)
from workspaces.models import AgentProfile, Incident, Task, User, Workspace

from .access import visible_incidents, visible_tasks, visible_workspaces
from .database import database_now

PAGE_SIZE = 50
COUNTED_TO = 1_000  # in the frame of every page; more are "999+"
OPEN_BELOW = len(Severity)  # of `attention`: what is smaller is open
PERIODS: dict[str, timedelta] = {
    "hour": timedelta(hours=1),
    "day": timedelta(days=1),
    "week": timedelta(days=7),
    "month": timedelta(days=30),
}


@dataclass(frozen=True, slots=True)
class Filters:
    """What the page's address says. Unknown values are dropped, so that an old link still opens.

    `state` "unresolved" is open and acknowledged together. `period` is of the newest growth.
    """

    state: str = ""
    kind: str = ""
    mode: str = ""
    cluster: str = ""
    severity: str = ""
    workspace: int | None = None
    profile: int | None = None
    task: int | None = None
    period: str = ""
    cause: str = ""
    page: int = 1

    @classmethod
    def from_query(cls, query: Any) -> Filters:
        def one_of(name: str, allowed: Iterable[str]) -> str:
            value = query.get(name, "")
            return value if value in set(allowed) else ""

        return cls(
            state=one_of("state", (*(state.value for state in IncidentState), "unresolved")),
            kind=one_of("kind", (kind.value for kind in IncidentKind)),
            mode=one_of("mode", (mode.value for mode in FailureMode)),
            cluster=one_of("cluster", (cluster.value for cluster in Cluster)),
            severity=one_of("severity", (severity.value for severity in Severity)),
            workspace=number(query.get("workspace")),
            profile=number(query.get("profile")),
            task=number(query.get("task")),
            period=one_of("period", PERIODS),
            cause=str(query.get("cause", "")).replace("\x00", "")[:240],
            page=max(1, number(query.get("page")) or 1),
        )

    def address(self, **changes: Any) -> str:
        """The query string of these filters with some changed; back to page 1 unless the page is given."""
        changed = replace(self, **({"page": 1} | changes))
        values = {name: getattr(changed, name) for name in self.__dataclass_fields__}
        values["page"] = changed.page if changed.page > 1 else ""
        return "?" + urlencode({name: value for name, value in values.items() if value})

    @property
    def narrows(self) -> bool:
        return replace(self, page=1) != Filters()


@dataclass(frozen=True, slots=True)
class Page:
    incidents: Sequence[Incident]
    number: int
    pages: int
    total: int

    @property
    def first(self) -> int:
        return (self.number - 1) * PAGE_SIZE + 1

    @property
    def last(self) -> int:
        return min(self.number * PAGE_SIZE, self.total)


def since(period: str, now: datetime) -> datetime | None:
    return now - PERIODS[period] if period in PERIODS else None


def filtered(user: User | AnonymousUser, filters: Filters, now: datetime) -> QuerySet[Incident]:
    found = visible_incidents(user)
    if filters.state == "unresolved":
        found = found.filter(attention__lt=OPEN_BELOW * 2)
    elif filters.state:
        at = list(IncidentState).index(IncidentState(filters.state)) * OPEN_BELOW
        found = found.filter(attention__gte=at, attention__lt=at + OPEN_BELOW)
    kinds = set(IncidentKind)
    if filters.kind:
        kinds &= {IncidentKind(filters.kind)}
    if filters.mode:
        kinds &= set(kinds_of(FailureMode(filters.mode)))
    if filters.cluster:
        kinds &= {kind for kind in IncidentKind if Cluster(filters.cluster) in clusters_of(kind)}
    if len(kinds) < len(IncidentKind):
        found = found.filter(kind__in=sorted(kind.value for kind in kinds))
    if filters.severity:
        found = found.filter(severity=filters.severity)
    if filters.workspace:
        found = found.filter(task__workspace_id=filters.workspace)
    if filters.profile:
        found = found.filter(task__profile_version__profile_id=filters.profile)
    if filters.task:
        found = found.filter(task_id=filters.task)
    if filters.cause:
        found = found.filter(cause=filters.cause)
    start = since(filters.period, now)
    return found.filter(grew_at__gte=start) if start else found


def page_of(user: User | AnonymousUser, filters: Filters) -> Page:
    found = filtered(user, filters, database_now())
    total = found.count()
    pages = max(1, -(-total // PAGE_SIZE))
    at = min(filters.page, pages)
    start = (at - 1) * PAGE_SIZE
    ordered = found.order_by("attention", "-grew_at", "-pk")
    ids = list(ordered.values_list("pk", flat=True)[start : start + PAGE_SIZE])
    loaded = {incident.pk: incident for incident in rows(user, ids)}
    return Page([loaded[pk] for pk in ids if pk in loaded], at, pages, total)


def rows(user: User | AnonymousUser, ids: Iterable[int]) -> list[Incident]:
    """Those of the incidents that the user may see, with all that a row shows. Order is the caller's."""
    related = ("task__workspace", "task__profile_version__profile", "acknowledged_by", "resolved_by")
    return list(visible_incidents(user).filter(pk__in=list(ids)).select_related(*related))


def counts_by_kind(user: User | AnonymousUser, filters: Filters) -> dict[str, int]:
    """How many of each kind there are under all filters but kind, mode and cluster."""
    wide = replace(filters, kind="", mode="", cluster="")
    found = filtered(user, wide, database_now()).order_by().values_list("kind").annotate(Count("pk"))
    return dict(found)


def open_count(user: User | AnonymousUser) -> int:
    """How many that the user can see are open, counted to COUNTED_TO at most."""
    found = visible_incidents(user).filter(attention__lt=OPEN_BELOW).order_by("attention", "-grew_at", "-pk")
    return found.values("pk")[:COUNTED_TO].count()


def newest_id(user: User | AnonymousUser) -> int:
    return visible_incidents(user).aggregate(newest=Max("pk"))["newest"] or 0


def new_since(user: User | AnonymousUser, filters: Filters, incident_id: int) -> int:
    """How many incidents that match were opened after that one."""
    return filtered(user, filters, database_now()).filter(pk__gt=incident_id).count()


def of_tasks(tasks: Iterable[int]) -> list[tuple[int, int]]:
    """(incident, task) of the newest incidents of these tasks. Access is the caller's."""
    found = Incident.objects.filter(task__in=list(tasks)).order_by("-pk").values_list("pk", "task_id")
    return list(found[:COUNTED_TO])


def of_task(task: Task, limit: int = PAGE_SIZE) -> list[Incident]:
    """A task's own, what needs a person first."""
    found = Incident.objects.filter(task=task).select_related("acknowledged_by", "resolved_by")
    return list(found.order_by("attention", "-grew_at", "-pk")[:limit])


@dataclass(frozen=True, slots=True)
class OpenIncidents:
    """What a badge says: how many are open on a task, and the one that needs a person most."""

    count: int
    worst: int
    severity: str
    kind: str


def open_of(tasks: Iterable[int]) -> dict[int, OpenIncidents]:
    """By task, for those that have some. One query."""
    found = (
        Incident.objects.filter(task__in=list(tasks), attention__lt=OPEN_BELOW)
        .order_by("attention", "-grew_at", "-pk")
        .values_list("task_id", "pk", "severity", "kind")[:COUNTED_TO]
    )
    by_task: dict[int, OpenIncidents] = {}
    for task, pk, severity, kind in found:
        known = by_task.get(task)
        by_task[task] = replace(known, count=known.count + 1) if known else OpenIncidents(1, pk, severity, kind)
    return by_task


@dataclass(frozen=True, slots=True)
class Choices:
    workspaces: Sequence[Workspace]
    profiles: Sequence[AgentProfile]


def choices(user: User | AnonymousUser) -> Choices:
    """What the filters can be set to: the workspaces and the profiles of tasks that the user can see."""
    tasks = visible_tasks(user)
    return Choices(
        workspaces=list(visible_workspaces(user).order_by("name")),
        profiles=list(AgentProfile.objects.filter(pk__in=tasks.values("profile_version__profile")).order_by("name")),
    )


def number(text: str | None) -> int | None:
    if text and text.isascii() and text.isdigit() and len(text) < 18:
        return int(text)
    return None
