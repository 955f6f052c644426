"""The sums behind the cost pages: by the day, by the hour where unit or hour count; loops are read from the records.

A scope narrows all of them to one user, workspace, task, profile or model. Reads only.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
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
    days: dict[date, dict[str, Decimal]] = field(default_factory=lambda: defaultdict(dict))  # by purpose, also before


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
    """Two statements: all but the units from the sums by the day, which are fewer and narrower."""
    found = Sums()
    _add_days(found, scope, period)
    for purpose, unit, now, quantity, unpriced_quantity, *counts in _units(scope, period):
        row = found.units.setdefault((purpose, unit), Used(purpose, unit))
        row.spent.add(now, *counts)
        if now:
            row.quantity += quantity
            row.unpriced_quantity += unpriced_quantity
    return found


# The last day of the period before counts as far as its hours have passed of this one's.
_BOTH_PERIODS = """
    SELECT d.day, d.day >= %(first)s AS now, d.user_id, d.workspace_id, d.profile_id, d.model, d.purpose, d.cost_usd,
           d.records, d.unpriced
      FROM workspaces_usageday AS d
     WHERE d.day >= %(before_first)s AND d.day <= %(last)s AND (d.day < %(before_last)s OR d.day >= %(first)s)
       AND {days}
    UNION ALL
    SELECT (r.hour AT TIME ZONE 'UTC')::date, FALSE, r.user_id, r.workspace_id, r.profile_id, r.model, r.purpose,
           r.cost_usd, r.records, r.unpriced
      FROM workspaces_usagerollup AS r
     WHERE r.hour >= %(before_midnight)s AND r.hour < %(before_until)s AND {hours}
"""


def _add_days(found: Sums, scope: Scope, period: Period) -> None:
    """One pass for everything that the scope can be split by; the bits of GROUPING tell what a row is of."""
    before, before_until = period.before
    before_last = before_until.astimezone(UTC).date()
    days, values = scope.where("d")
    hours, _ = scope.where("r")
    sql = f"""
        SELECT GROUPING(model, user_id, workspace_id, day), now, profile_id, model, user_id, workspace_id, day, purpose,
               sum(cost_usd), sum(records), sum(unpriced)
          FROM ({_BOTH_PERIODS.format(days=days, hours=hours)}) AS spent
         GROUP BY GROUPING SETS ((now, profile_id, model), (now, user_id), (now, workspace_id, purpose),
                                 (now, day, purpose))
    """  # noqa: S608 - every part of it is ours
    values |= {
        "first": period.first,
        "last": period.last,
        "before_first": before.astimezone(UTC).date(),
        "before_last": before_last,
        "before_midnight": midnight(before_last),
        "before_until": before_until,
    }
    active: set[int] = set()
    for of, now, profile, model, user, workspace, day, purpose, *counts in _rows(sql, values):
        if of == _BY_MODEL:
            for spent in (found.total, found.profiles[profile], found.models[model]):
                spent.add(now, *counts)
        elif of == _BY_USER:
            found.users[user].add(now, *counts)
        elif of == _BY_DAY:
            found.days[day][purpose] = found.days[day].get(purpose, ZERO) + counts[0]
        else:
            found.workspaces[workspace].add(now, *counts)
            if now and purpose == UsagePurpose.STORAGE.value:
                found.storage[workspace] = counts[0]
            elif now:
                active.add(workspace)
    for workspace in active:
        found.storage.pop(workspace, None)


_BY_MODEL, _BY_USER, _BY_DAY = 0b0111, 0b1011, 0b1110  # a bit is 0 where the rows are split by it


def _units(scope: Scope, period: Period) -> list[tuple[Any, ...]]:
    """By purpose and unit, in this period and in the one before."""
    where, values = scope.where("r")
    sql = f"""
        SELECT r.purpose, r.unit, r.hour >= %(start)s, sum(r.quantity), sum(r.unpriced_quantity), sum(r.cost_usd),
               sum(r.records), sum(r.unpriced)
          FROM workspaces_usagerollup AS r
         WHERE r.hour >= %(before)s AND r.hour < %(end)s AND (r.hour < %(before_until)s OR r.hour >= %(start)s)
           AND {where}
         GROUP BY 1, 2, 3
    """  # noqa: S608
    before, before_until = period.before
    return _rows(
        sql, values | {"start": period.start, "end": period.end, "before": before, "before_until": before_until}
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


def course_of(scope: Scope, period: Period, days: Mapping[date, Mapping[str, Decimal]]) -> Course:
    """`days`: the sums by the day. Hours are read for short periods, and for what a forecast is made of."""
    trend: dict[datetime, dict[str, Decimal]] = {at: {} for at in period.buckets()}
    if period.step == HOUR:
        for at, purpose, usd in _by_hour(scope, "r.purpose", period.start, period.end):
            trend.setdefault(at, {})[purpose] = usd
    else:
        for at, sums in trend.items():
            sums.update(days.get(at.date(), {}))
    past = [[ZERO] * 24 for _ in range(LOOKED_BACK_DAYS)]
    if period.runs and scope.kind != "task":
        today = midnight(period.now.astimezone(UTC).date())
        since = today - LOOKED_BACK_DAYS * DAY
        for at, _, usd in _by_hour(scope, "NULL", since, today):
            past[(at - since).days][at.hour] += usd
    return Course(list(trend.items()), past)


def _by_hour(scope: Scope, by: str, start: datetime, until: datetime) -> list[tuple[Any, ...]]:
    where, values = scope.where("r")
    sql = f"""
        SELECT r.hour, {by}, sum(r.cost_usd) FROM workspaces_usagerollup AS r
         WHERE r.hour >= %(start)s AND r.hour < %(until)s AND {where} GROUP BY 1, 2 ORDER BY 1
    """  # noqa: S608
    rows = _rows(sql, values | {"start": start, "until": until})
    return [(moment.astimezone(UTC), key, usd) for moment, key, usd in rows]


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
              FROM workspaces_usageday AS r
             WHERE r.day >= %(first)s AND r.day <= %(last)s AND r.task_id IS NOT NULL AND {where}
             GROUP BY 1),
        earlier AS MATERIALIZED (
            SELECT r.task_id, sum(r.cost_usd) AS usd, sum(r.unpriced) AS unpriced
              FROM workspaces_task AS t JOIN workspaces_usageday AS r ON r.task_id = t.id
             WHERE t.finished_at >= %(start)s AND t.finished_at < %(end)s AND t.created_at < %(start)s
               AND r.day < %(first)s AND {where}
             GROUP BY 1),
        ended AS (
            SELECT t.status, coalesce(s.usd, 0) + coalesce(e.usd, 0) AS usd,
                   coalesce(s.unpriced, 0) + coalesce(e.unpriced, 0) AS unpriced
              FROM workspaces_task AS t
              LEFT JOIN spent AS s ON s.task_id = t.id
              LEFT JOIN earlier AS e ON e.task_id = t.id
             WHERE t.finished_at >= %(start)s AND t.finished_at < %(end)s
               AND (s.task_id IS NOT NULL OR e.task_id IS NOT NULL))
        SELECT NULL, status, count(*), sum(usd), percentile_disc(0.5) WITHIN GROUP (ORDER BY usd), sum(unpriced)
          FROM ended GROUP BY status
        UNION ALL
        (SELECT task_id, '', records, usd, 0, unpriced FROM spent ORDER BY usd DESC, task_id DESC LIMIT {TASKS_SHOWN})
    """  # noqa: S608
    tasks: list[tuple[int, Spent]] = []
    outcomes: list[Outcome] = []
    for task, status, count, usd, median, unpriced in _rows(
        sql, values | {"start": period.start, "end": period.end, "first": period.first, "last": period.last}
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
