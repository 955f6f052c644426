"""The sums behind the cost pages, each one statement over the rollups; only loops are read from the records themselves.

A scope narrows all of them to one user, workspace, task, profile or model. Reads only.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from django.db import connection, transaction

from workspaces.domain.cost_periods import DAY, HOUR, Period, midnight
from workspaces.domain.forecast import LOOKED_BACK_DAYS
from workspaces.domain.incidents import IncidentKind
from workspaces.domain.states import UsagePurpose

CIRCLES = (IncidentKind.LOOP.value, IncidentKind.PARALYSIS.value, IncidentKind.NO_PROGRESS.value)
TASKS_SHOWN = 20
INCIDENTS_SHOWN = 10
MOST_DAYS_BY_HOUR = 92  # longer periods are summed by day in the database
ZERO = Decimal(0)


@dataclass(frozen=True, slots=True)
class Scope:
    """What a page is about. `kind`: site, user, workspace, task, profile or model; `own`: only what this user spent."""

    kind: str
    key: int | str | None = None
    own: int | None = None

    def where(self, table: str) -> tuple[str, dict[str, Any]]:
        """SQL that narrows the rollups or the records, and its parameters."""
        column = {
            "user": "user_id",
            "workspace": "workspace_id",
            "task": "task_id",
            "profile": "profile_id",
            "model": "model",
        }.get(self.kind)
        parts = [f"{table}.{column} = %(key)s"] if column else []
        if self.own is not None:
            parts.append(f"{table}.user_id = %(own)s")
        return " AND ".join(parts) or "TRUE", {"key": self.key, "own": self.own}


@dataclass(slots=True)
class Spent:
    """A sum in USD of what has a price, and how much has none. `before`: in the period before."""

    usd: Decimal = ZERO
    records: int = 0
    unpriced: int = 0
    before: Decimal = ZERO

    def add(self, now: bool, usd: Decimal, records: int, unpriced: int) -> None:
        if now:
            self.usd += usd
            self.records += records
            self.unpriced += unpriced
        else:
            self.before += usd


@dataclass(slots=True)
class Used:
    """A unit that was used for a purpose."""

    purpose: str
    unit: str
    quantity: Decimal = ZERO
    unpriced_quantity: Decimal = ZERO
    spent: Spent = field(default_factory=Spent)


@dataclass(slots=True)
class Sums:
    """Of the period and the one before: whole, and by each of what it can be split by (id or name → sum)."""

    total: Spent = field(default_factory=Spent)
    users: dict[int, Spent] = field(default_factory=lambda: defaultdict(Spent))
    workspaces: dict[int, Spent] = field(default_factory=lambda: defaultdict(Spent))
    profiles: dict[int | None, Spent] = field(default_factory=lambda: defaultdict(Spent))
    models: dict[str, Spent] = field(default_factory=lambda: defaultdict(Spent))
    units: dict[tuple[str, str], Used] = field(default_factory=dict)  # by purpose and unit
    storage: dict[int, Decimal] = field(default_factory=dict)  # of workspaces in which nothing else was used


@contextmanager
def one_state() -> Iterator[None]:
    """All sums of a page are of one moment, so they agree; and its groups fit into memory."""
    alone = not connection.in_atomic_block
    with transaction.atomic(), connection.cursor() as cursor:
        if alone:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        cursor.execute("SET LOCAL work_mem = '32MB'")
        yield


def sums_of(scope: Scope, period: Period) -> Sums:
    """Three statements rather than one with all groupings: each of them runs in parallel, which is faster."""
    found = Sums()
    for profile, model, purpose, unit, *rest in _split(
        scope, period, "profile_id, r.model, r.purpose, r.unit", more=True
    ):
        *counts, quantity, unpriced_quantity = rest
        for spent in (found.total, found.profiles[profile], found.models[model]):
            spent.add(*counts)
        row = found.units.setdefault((purpose, unit), Used(purpose, unit))
        row.spent.add(*counts)
        if counts[0]:
            row.quantity += quantity
            row.unpriced_quantity += unpriced_quantity
    if scope.kind not in ("user", "task") and scope.own is None:
        for user, *counts in _split(scope, period, "user_id"):
            found.users[user].add(*counts)
    if scope.kind != "task":
        active: set[int] = set()
        for workspace, purpose, now, usd, *counts in _split(scope, period, "workspace_id, r.purpose"):
            found.workspaces[workspace].add(now, usd, *counts)
            if now and purpose == UsagePurpose.STORAGE.value:
                found.storage[workspace] = usd
            elif now:
                active.add(workspace)
        for workspace in active:
            found.storage.pop(workspace, None)
    return found


def _split(scope: Scope, period: Period, by: str, *, more: bool = False) -> list[tuple[Any, ...]]:
    """For each group, in this period and in the one before: whether it is this one, USD, records, unpriced, amounts."""
    where, values = scope.where("r")
    places = ", ".join(str(place + 1) for place in range(by.count(",") + 2))
    amounts = ", sum(r.quantity), sum(r.unpriced_quantity)" if more else ""
    sql = f"""
        SELECT r.{by}, r.hour >= %(start)s, sum(r.cost_usd), sum(r.records), sum(r.unpriced){amounts}
          FROM workspaces_usagerollup AS r
         WHERE r.hour >= %(before)s AND r.hour < %(until)s AND (r.hour < %(before_until)s OR r.hour >= %(start)s)
           AND {where}
         GROUP BY {places}
    """  # noqa: S608 - every part of it is ours
    before, before_until = period.before
    return _rows(
        sql,
        values | {"start": period.start, "until": period.until, "before": before, "before_until": before_until},
    )


def ordered_units(sums: Sums) -> list[Used]:
    """Purposes in their order, then the dearest first."""
    order = [purpose.value for purpose in UsagePurpose]
    return sorted(sums.units.values(), key=lambda row: (order.index(row.purpose), -row.spent.usd, row.unit))


@dataclass(frozen=True, slots=True)
class Course:
    """`trend`: purpose → USD for each hour or day of the period so far. `past`: of whole days before today, oldest
    first, USD of each hour; what a forecast is made of."""

    trend: list[tuple[datetime, dict[str, Decimal]]]
    past: list[list[Decimal]]


def course_of(scope: Scope, period: Period) -> Course:
    """One statement for both where hours are few enough to be brought here one by one."""
    today = midnight(period.now.astimezone(UTC).date())
    since = today - LOOKED_BACK_DAYS * DAY
    trend: dict[datetime, dict[str, Decimal]] = {at: {} for at in period.buckets()}
    past = [[ZERO] * 24 for _ in range(LOOKED_BACK_DAYS)]
    foretold = period.runs and scope.kind != "task"
    by_hour = period.days <= MOST_DAYS_BY_HOUR
    if by_hour:
        start = min(period.start, since) if foretold else period.start
        for at, purpose, usd in _by_time(scope, "r.hour", start, period.until):
            if at >= period.start:
                _add(trend[at if period.step == HOUR else at - timedelta(hours=at.hour)], purpose, usd)
            if foretold:
                _past(past, at - since, usd)
        return Course(list(trend.items()), past)
    for at, purpose, usd in _by_time(scope, "date_trunc('day', r.hour, 'UTC')", period.start, period.until):
        _add(trend[at], purpose, usd)
    if foretold:
        for at, _, usd in _by_time(scope, "r.hour", since, today):
            _past(past, at - since, usd)
    return Course(list(trend.items()), past)


def _add(sums: dict[str, Decimal], purpose: str, usd: Decimal) -> None:
    sums[purpose] = sums.get(purpose, ZERO) + usd


def _past(past: list[list[Decimal]], after: timedelta, usd: Decimal) -> None:
    if 0 <= after.days < len(past):
        past[after.days][after.seconds // 3600] += usd


def _by_time(scope: Scope, at: str, start: datetime, until: datetime) -> list[tuple[Any, ...]]:
    where, values = scope.where("r")
    sql = f"""
        SELECT {at}, r.purpose, sum(r.cost_usd) FROM workspaces_usagerollup AS r
         WHERE r.hour >= %(start)s AND r.hour < %(until)s AND {where} GROUP BY 1, 2
    """  # noqa: S608
    rows = _rows(sql, values | {"start": start, "until": until})
    return [(moment.astimezone(UTC), purpose, usd) for moment, purpose, usd in rows]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The tasks that came to this end in the period, and all that they have cost, also before it."""

    status: str
    tasks: int
    usd: Decimal
    median: Decimal
    unpriced: int

    @property
    def mean(self) -> Decimal:
        return self.usd / self.tasks


def tasks_of(scope: Scope, period: Period) -> tuple[list[tuple[int, Spent]], list[Outcome]]:
    """The dearest tasks of the period, and what became of those that ended in it."""
    where, values = scope.where("r")
    sql = f"""
        WITH spent AS MATERIALIZED (
            SELECT r.task_id, sum(r.cost_usd) AS usd, sum(r.records) AS records, sum(r.unpriced) AS unpriced
              FROM workspaces_usagerollup AS r
             WHERE r.hour >= %(start)s AND r.hour < %(until)s AND r.task_id IS NOT NULL AND {where}
             GROUP BY 1),
        earlier AS MATERIALIZED (
            SELECT r.task_id, sum(r.cost_usd) AS usd, sum(r.unpriced) AS unpriced
              FROM workspaces_task AS t JOIN workspaces_usagerollup AS r ON r.task_id = t.id
             WHERE t.finished_at >= %(start)s AND t.finished_at < %(until)s AND t.created_at < %(start)s
               AND r.hour < %(start)s AND {where}
             GROUP BY 1),
        ended AS (
            SELECT t.status, coalesce(s.usd, 0) + coalesce(e.usd, 0) AS usd,
                   coalesce(s.unpriced, 0) + coalesce(e.unpriced, 0) AS unpriced
              FROM workspaces_task AS t
              LEFT JOIN spent AS s ON s.task_id = t.id
              LEFT JOIN earlier AS e ON e.task_id = t.id
             WHERE t.finished_at >= %(start)s AND t.finished_at < %(until)s
               AND (s.task_id IS NOT NULL OR e.task_id IS NOT NULL))
        SELECT NULL, status, count(*), sum(usd), percentile_disc(0.5) WITHIN GROUP (ORDER BY usd), sum(unpriced)
          FROM ended GROUP BY status
        UNION ALL
        (SELECT task_id, '', records, usd, 0, unpriced FROM spent ORDER BY usd DESC, task_id DESC LIMIT {TASKS_SHOWN})
    """  # noqa: S608
    tasks: list[tuple[int, Spent]] = []
    outcomes: list[Outcome] = []
    for task, status, count, usd, median, unpriced in _rows(
        sql, values | {"start": period.start, "until": period.until}
    ):
        if task is None:
            outcomes.append(Outcome(status, int(count), usd, median, int(unpriced)))
        else:
            tasks.append((task, Spent(usd, int(count), int(unpriced))))
    order = ("succeeded", "failed", "cancelled")
    return tasks, sorted(outcomes, key=lambda each: order.index(each.status))


@dataclass(frozen=True, slots=True)
class Circle:
    """What the steps inside an incident cost. `incident` None: of all incidents, each step counted once."""

    incident: int | None
    steps: int
    usd: Decimal
    unpriced: int


def circles_of(scope: Scope, period: Period) -> list[Circle]:
    """All together first, then the dearest incidents. Empty: nothing was spent inside any."""
    where, values = scope.where("u")
    narrowed = "i.task_id = %(key)s" if scope.kind == "task" else "TRUE"
    sql = f"""
        WITH inside AS MATERIALIZED (
            SELECT i.id AS incident_id, s.id AS step_id
              FROM workspaces_incident AS i
              JOIN workspaces_step AS s ON s.branch_id = i.branch_id AND s.number BETWEEN i.first_step AND i.last_step
             WHERE i.kind = ANY(%(kinds)s) AND i.grew_at >= %(start)s AND s.started_at < %(until)s AND {narrowed}),
        spent AS MATERIALIZED (
            SELECT u.step_id, coalesce(sum(u.cost_usd), 0) AS usd,
                   count(*) FILTER (WHERE u.cost_usd IS NULL) AS unpriced
              FROM workspaces_usagerecord AS u
             WHERE u.step_id = ANY(ARRAY(SELECT DISTINCT step_id FROM inside))
               AND u.created_at >= %(start)s AND u.created_at < %(until)s AND {where}
             GROUP BY 1)
        SELECT NULL, count(*), sum(usd), sum(unpriced) FROM spent HAVING count(*) > 0
        UNION ALL
        (SELECT incident_id, count(*), sum(usd), sum(unpriced) FROM inside JOIN spent USING (step_id)
          GROUP BY 1 ORDER BY 3 DESC, 1 LIMIT {INCIDENTS_SHOWN})
    """  # noqa: S608
    rows = _rows(sql, values | {"start": period.start, "until": period.until, "kinds": list(CIRCLES)})
    return [Circle(incident, steps, usd, int(unpriced)) for incident, steps, usd, unpriced in rows]


def _rows(sql: str, values: dict[str, Any]) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql, values)
        rows: list[tuple[Any, ...]] = cursor.fetchall()
    return rows
