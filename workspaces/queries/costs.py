"""What a cost page shows, put together: sums with their names, forecast, outcomes, loops, hot spots. Reads only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from workspaces.domain.cost_periods import DAY, MOST_DAYS, Period, midnight
from workspaces.domain.forecast import Forecast, forecast
from workspaces.domain.hot_spots import HotSpot, Sum, hot_spots
from workspaces.domain.states import UsagePurpose
from workspaces.models import AgentProfile, Incident, Task, User, Workspace

from .cost_sums import (
    Circle,
    Outcome,
    Scope,
    Spent,
    Sums,
    Used,
    circles_of,
    course_of,
    one_state,
    ordered_units,
    sums_of,
    tasks_of,
)

NO_MODEL = "sandbox and storage"
NO_PROFILE = "no profile (storage)"
COMPARED = ("users", "workspaces", "profiles", "models")
TOKEN_UNITS = ("input_tokens", "cached_input_tokens", "cache_write_tokens", "output_tokens", "reasoning_tokens")


@dataclass(frozen=True, slots=True)
class Part:
    """One user, workspace, profile, model or task with what it cost."""

    key: int | str | None
    name: str
    spent: Spent


@dataclass(frozen=True, slots=True)
class CircledIncident:
    incident: Incident
    circle: Circle


@dataclass(frozen=True, slots=True)
class Report:
    """`parts`: users, workspaces, profiles, models, tasks, the dearest first; those that the scope has one of are not.

    `forecast`: or, in words, why there is none; None where the period is over.
    """

    scope: Scope
    period: Period
    total: Spent
    units: Sequence[Used]
    parts: Mapping[str, Sequence[Part]]
    trend: Sequence[tuple[datetime, Mapping[str, Decimal]]]
    forecast: Forecast | str | None
    outcomes: Sequence[Outcome]
    loops: Circle | None
    incidents: Sequence[CircledIncident]
    idle: Sequence[Part]
    hot: Mapping[str, Sequence[HotSpot]]

    def purpose(self, *purposes: UsagePurpose) -> Spent:
        """The sum of these purposes in the period."""
        found = Spent()
        for row in self.units:
            if row.purpose in purposes:
                found.add(True, row.spent.usd, row.spent.records, row.spent.unpriced)
        return found

    @property
    def unknown(self) -> str:
        """ "812,000 tokens at unknown price", or nothing."""
        return unknown_words(self.units)

    @property
    def nothing_priced(self) -> bool:
        """Then the total is unknown, and not zero."""
        return not self.total.usd and self.total.unpriced > 0


def report_of(scope: Scope, period: Period) -> Report:
    with one_state():
        return _report(scope, period)


def _report(scope: Scope, period: Period) -> Report:
    sums = sums_of(scope, period)
    parts = _parts(scope, sums)
    circles = circles_of(scope, period)
    course = course_of(scope, period, sums.days)
    tasks, outcomes = ([], []) if scope.kind == "task" else tasks_of(scope, period)
    parts["tasks"] = _tasks(tasks)
    return Report(
        scope=scope,
        period=period,
        total=sums.total,
        units=ordered_units(sums),
        parts={name: found for name, found in parts.items() if found},
        trend=course.trend,
        forecast=_forecast(scope, period, sums.total, course.past),
        outcomes=outcomes,
        loops=circles[0] if circles else None,
        incidents=_incidents(circles[1:]),
        idle=_idle(sums, parts["workspaces"]),
        hot={
            name: found
            for name in (COMPARED if scope.kind != "task" else ())
            if (found := hot_spots([_sum(part) for part in parts[name] if part.key not in (None, "")], name))
        },
    )


def whole_life(task: Task, now: datetime) -> Period:
    """From the day on which it was made to the day on which it ended (or today), as a period."""
    last = min(((task.finished_at or now) + DAY / 24).astimezone(UTC).date(), now.astimezone(UTC).date())
    first = max(task.created_at.astimezone(UTC).date(), (midnight(last) - (MOST_DAYS - 1) * DAY).date())
    return Period("custom", first, max(first, last), now)


def unknown_words(units: Iterable[Used]) -> str:
    """What has no price, in its own units."""
    tokens = Decimal(0)
    others: dict[str, Decimal] = {}
    for row in units:
        if not row.unpriced_quantity:
            continue
        if row.unit in TOKEN_UNITS:
            tokens += row.unpriced_quantity
        else:
            others[row.unit] = others.get(row.unit, Decimal(0)) + row.unpriced_quantity
    told = [f"{tokens:,.0f} token{'' if tokens == 1 else 's'}"] if tokens else []
    told += [f"{_one_place(quantity)} {unit_words(unit)}" for unit, quantity in others.items()]
    return f"{', '.join(told)} at unknown price" if told else ""


def _one_place(quantity: Decimal) -> str:
    return f"{quantity:,.1f}" if quantity >= Decimal("0.05") else "less than 0.1"


def unit_words(unit: str) -> str:
    """cpu_seconds → CPU seconds, storage_gib_hours → GiB hours of storage."""
    known = {
        "cpu_seconds": "CPU seconds",
        "memory_gib_seconds": "GiB seconds of memory",
        "storage_gib_hours": "GiB hours of storage",
    }
    return known.get(unit, unit.replace("_", " "))


def _parts(scope: Scope, sums: Sums) -> dict[str, list[Part]]:
    """Only what the scope can be split by."""
    found: dict[str, list[Part]] = {name: [] for name in COMPARED}
    if scope.kind != "task":
        if scope.kind != "user" and scope.own is None:
            found["users"] = _named(sums.users, _user_names(sums.users), "somebody")
        if scope.kind != "workspace":
            found["workspaces"] = _named(sums.workspaces, _names(Workspace, sums.workspaces), "a workspace")
        if scope.kind != "profile":
            found["profiles"] = _named(sums.profiles, _names(AgentProfile, sums.profiles), NO_PROFILE)
    if scope.kind != "model":
        found["models"] = _named(sums.models, {name: name for name in sums.models if name}, NO_MODEL)
    return found


def _named(sums: Mapping[Any, Spent], names: Mapping[Any, str], otherwise: str) -> list[Part]:
    parts = [Part(key, names.get(key) or otherwise, spent) for key, spent in sums.items()]
    return sorted(parts, key=lambda part: (-part.spent.usd, -part.spent.before, part.name))


def _names(model: type[Workspace | AgentProfile], keys: Iterable[int | None]) -> dict[int, str]:
    rows = model._default_manager.filter(pk__in=[key for key in keys if key]).values_list("pk", "name")
    return dict(rows)


def _user_names(keys: Iterable[int]) -> dict[int, str]:
    users = User.objects.filter(pk__in=list(keys)).only("username", "first_name", "last_name")
    return {user.pk: user.get_full_name() or user.get_username() for user in users}


def _tasks(rows: Sequence[tuple[int, Spent]]) -> list[Part]:
    titles = dict(Task.objects.filter(pk__in=[task for task, _ in rows]).values_list("pk", "title"))
    return [Part(task, titles[task], spent) for task, spent in rows]


def _incidents(circles: Sequence[Circle]) -> list[CircledIncident]:
    known = Incident.objects.select_related("task").in_bulk([circle.incident for circle in circles if circle.incident])
    return [CircledIncident(known[circle.incident], circle) for circle in circles if circle.incident in known]


def _idle(sums: Sums, workspaces: Sequence[Part]) -> list[Part]:
    """What the disks of workspaces cost in which nothing ran in the period."""
    names = {part.key: part.name for part in workspaces} or _names(Workspace, sums.storage)
    found = [Part(place, names[place], Spent(usd)) for place, usd in sums.storage.items()]
    return sorted(found, key=lambda part: (-part.spent.usd, part.name))


def _forecast(scope: Scope, period: Period, total: Spent, past: Sequence[Sequence[Decimal]]) -> Forecast | str | None:
    if not period.runs or scope.kind == "task":
        return None
    now = period.now.astimezone(UTC)
    today = midnight(now.date())
    passed = (now - today).total_seconds() / 3600
    left = (period.end - today).days - 1
    return forecast(total.usd, past, passed_hours=passed, days_left=left)


def _sum(part: Part) -> Sum:
    return Sum(str(part.key), part.name, part.spent.usd, part.spent.before)
