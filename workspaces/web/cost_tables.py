"""A cost report as tables: the page, the CSV, the JSON and the charts are all made of these rows. Pure.

So an export cannot differ from its page. What does not fit into a table is one row at its end, so every table adds up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any
from urllib.parse import quote

from workspaces.domain.cost_periods import HOUR, Period
from workspaces.domain.forecast import Forecast
from workspaces.domain.states import UsagePurpose
from workspaces.queries.cost_sums import Spent
from workspaces.queries.costs import Part, Report, unit_words

ROWS_SHOWN = 25
PURPOSES = {
    UsagePurpose.STEP.value: "steps",
    UsagePurpose.RETRY.value: "retries",
    UsagePurpose.SUMMARY.value: "compaction",
    UsagePurpose.CLAIM_CHECK.value: "claim checks",
    UsagePurpose.SANDBOX.value: "sandbox",
    UsagePurpose.STORAGE.value: "storage",
}
TITLES = {
    "users": "By user",
    "workspaces": "By workspace",
    "profiles": "By profile",
    "models": "By model",
    "tasks": "Dearest tasks",
}
MADE_OF_PRICES = ("usd", "mean_usd", "median_usd")  # unknown where nothing of a row had a price
OUTCOMES = {"succeeded": "finished", "failed": "failed", "cancelled": "cancelled"}


@dataclass(frozen=True, slots=True)
class Column:
    """`kind`: text, day, usd, price, count, gap (of counts), number, share or change (of a sum in USD)."""

    name: str
    title: str
    kind: str = "text"

    @property
    def numeric(self) -> bool:
        return self.kind not in ("text", "day")


@dataclass(frozen=True, slots=True)
class Cell:
    column: Column
    value: Any
    href: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    cells: Sequence[Cell]
    rest: bool = False  # the sum of what is not shown by itself


@dataclass(frozen=True, slots=True)
class Table:
    name: str
    title: str
    columns: Sequence[Column]
    rows: Sequence[Row]
    note: str = ""

    def as_json(self) -> dict[str, Any]:
        return {
            "title": self.title,
            "rows": [{cell.column.name: cell.value for cell in row.cells} for row in self.rows],
        }

    def column(self, name: str) -> list[Any]:
        place = [column.name for column in self.columns].index(name)
        return [row.cells[place].value for row in self.rows]


@dataclass(frozen=True, slots=True)
class Links:
    """Where a row leads, as far as the reader may go there. `staff` may go anywhere."""

    staff: bool
    mine: bool  # the page is about the reader's own spending
    workspaces: frozenset[int]

    def to(self, what: str, key: Any, period: Period) -> str:
        if key in (None, ""):
            return ""
        query = period.address()
        if what == "models":
            return f"/costs/models/{period.address(name=str(key))}" if self.staff or self.mine else ""
        if what == "tasks":
            return f"/costs/tasks/{key}/"
        if what == "incidents":
            return f"/incidents/{key}/"
        allowed = self.staff or (what == "profiles" and self.mine) or (what == "workspaces" and key in self.workspaces)
        return f"/costs/{quote(what)}/{key}/{query}" if allowed else ""


def table(name: str, title: str, columns: Sequence[Column], rows: Sequence[Sequence[Any]], note: str = "") -> Table:
    """Rows of values; a value may be (value, href)."""
    return Table(name, title, columns, [_row(columns, row) for row in rows], note)


def _row(columns: Sequence[Column], values: Sequence[Any], *, rest: bool = False) -> Row:
    cells = []
    named = dict(zip((column.name for column in columns), values, strict=True))
    unknown = bool(named.get("unpriced")) and not named.get("usd")  # nothing of it had a price, which is not zero
    for column, value in zip(columns, values, strict=True):
        plain, href = value if isinstance(value, tuple) else (value, "")
        cells.append(Cell(column, None if unknown and column.name in MADE_OF_PRICES else plain, href))
    return Row(cells, rest)


def tables_of(report: Report, links: Links) -> list[Table]:
    """In the order of the page. Those with nothing in them are left out, but for the summary and the trend."""
    found = [summary_table(report), trend_table(report)]
    found += [_hot(report, links)]
    found += [_parts(report, name, links) for name in TITLES if name in report.parts]
    found += [_units(report), _outcomes(report), _beside(report), _incidents(report, links), _idle(report, links)]
    return [each for each in found if each.rows or each.name in ("summary", "trend")]


def summary_table(report: Report) -> Table:
    foretold = report.forecast if isinstance(report.forecast, Forecast) else None
    columns = [
        Column("total_usd", "Total", "usd"),
        Column("unpriced", "Without a price"),
        Column("before_usd", "The period before", "usd"),
        Column("forecast_usd", "Forecast to the end", "usd"),
        Column("forecast_low_usd", "At least", "usd"),
        Column("forecast_high_usd", "At most", "usd"),
        Column("records", "Records", "count"),
    ]
    values = [
        report.total.usd,
        report.unknown,
        report.total.before,
        foretold.usd if foretold else None,
        foretold.low if foretold else None,
        foretold.high if foretold else None,
        report.total.records,
    ]
    return table("summary", "Summary", columns, [values])


def trend_table(report: Report) -> Table:
    used = {purpose for _, sums in report.trend for purpose in sums}
    purposes = [purpose for purpose in PURPOSES if purpose in used]
    hourly = report.period.step == HOUR
    columns = [
        Column("at", "Hour (UTC)" if hourly else "Day (UTC)", "day"),
        *(Column(f"{purpose}_usd", PURPOSES[purpose], "usd") for purpose in purposes),
        Column("total_usd", "Total", "usd"),
    ]
    rows = [
        [
            _at(at, hourly),
            *(sums.get(purpose, Decimal(0)) for purpose in purposes),
            sum(sums.values(), Decimal(0)),
        ]
        for at, sums in report.trend
    ]
    return table("trend", "Trend", columns, rows)


def _at(at: datetime, hourly: bool) -> str:
    return f"{at:%Y-%m-%d %H:00}" if hourly else f"{at:%Y-%m-%d}"


def _parts(report: Report, name: str, links: Links) -> Table:
    """The dearest by themselves, the others in one row."""
    parts = report.parts[name]
    columns = [
        Column("name", TITLES[name].removeprefix("By ").capitalize() if name != "tasks" else "Task"),
        Column("usd", "USD", "usd"),
        Column("share", "Share", "share"),
        *([] if name == "tasks" else [Column("before_usd", "Before", "usd"), Column("change", "Change", "change")]),
        Column("unpriced", "Unpriced records", "count"),
    ]

    def values(part: Part) -> list[Any]:
        label = f"#{part.key} {part.name}" if name == "tasks" else part.name
        return [
            (label, links.to(name, part.key, report.period)),
            part.spent.usd,
            _share(part.spent.usd, report.total.usd),
            *([] if name == "tasks" else [part.spent.before, part.spent.usd - part.spent.before]),
            part.spent.unpriced,
        ]

    rows = [_row(columns, values(part)) for part in parts[:ROWS_SHOWN]]
    if name != "tasks" and parts[ROWS_SHOWN:]:
        others = Spent()
        for part in parts[ROWS_SHOWN:]:
            others.add(True, part.spent.usd, part.spent.records, part.spent.unpriced)
            others.before += part.spent.before
        rows.append(_row(columns, values(Part(None, f"{len(parts) - ROWS_SHOWN:,} others", others)), rest=True))
    return Table(name, TITLES[name], columns, rows)


def _units(report: Report) -> Table:
    columns = [
        Column("purpose", "Purpose"),
        Column("unit", "Unit"),
        Column("quantity", "Quantity", "number"),
        Column("usd", "USD", "usd"),
        Column("share", "Share", "share"),
        Column("before_usd", "Before", "usd"),
        Column("unpriced", "Unpriced records", "count"),
        Column("unpriced_quantity", "Unpriced quantity", "number"),
    ]
    rows = [
        [
            PURPOSES[row.purpose],
            unit_words(row.unit),
            row.quantity.normalize(),
            row.spent.usd,
            _share(row.spent.usd, report.total.usd),
            row.spent.before,
            row.spent.unpriced,
            row.unpriced_quantity.normalize(),
        ]
        for row in report.units
    ]
    return table("units", "By purpose and unit", columns, rows)


def _outcomes(report: Report) -> Table:
    columns = [
        Column("outcome", "Tasks that"),
        Column("tasks", "Tasks", "count"),
        Column("mean_usd", "USD a task", "usd"),
        Column("median_usd", "Median", "usd"),
        Column("usd", "Together", "usd"),
        Column("unpriced", "Unpriced records", "count"),
    ]
    rows = [
        [OUTCOMES[each.status], each.tasks, each.mean, each.median, each.usd, each.unpriced] for each in report.outcomes
    ]
    note = "Tasks that ended in the period, with everything that they have cost since they began."
    return table("outcomes", "What a task costs", columns, rows, note)


def _beside(report: Report) -> Table:
    """What was paid beside the work itself."""
    columns = [
        Column("what", "What"),
        Column("usd", "USD", "usd"),
        Column("share", "Share", "share"),
        Column("unpriced", "Unpriced records", "count"),
        Column("words", "Counted"),
    ]
    purpose = UsagePurpose
    rows: list[list[Any]] = []

    def add(what: str, spent: Spent, words: str) -> None:
        rows.append([what, spent.usd, _share(spent.usd, report.total.usd), spent.unpriced, words])

    add("retries", report.purpose(purpose.RETRY), "calls of a step after one that failed")
    loops = report.loops
    add(
        "loops",
        Spent(loops.usd, 0, loops.unpriced) if loops else Spent(),
        f"{loops.steps:,} steps inside incidents (loop, paralysis, no progress), each once" if loops else "no step",
    )
    add("compaction", report.purpose(purpose.SUMMARY), "calls that summarised the oldest turns")
    add("claim checks", report.purpose(purpose.CLAIM_CHECK), "calls that checked what a reply states")
    if report.scope.kind != "task":
        idle = sum((part.spent.usd for part in report.idle), Decimal(0))
        places = len(report.idle)
        add("idle storage", Spent(idle), f"{places:,} workspaces in which nothing ran in the period")
    return table("beside", "Beside the work", columns, rows)


def _incidents(report: Report, links: Links) -> Table:
    columns = [
        Column("incident", "Incident"),
        Column("task", "Task"),
        Column("steps", "Steps", "count"),
        Column("usd", "USD", "usd"),
        Column("unpriced", "Unpriced records", "count"),
    ]
    rows = [
        [
            (f"#{each.incident.pk} {each.incident.kind.replace('_', ' ')}", f"/incidents/{each.incident.pk}/"),
            (
                f"#{each.incident.task_id} {each.incident.task.title}",
                links.to("tasks", each.incident.task_id, report.period),
            ),
            each.circle.steps,
            each.circle.usd,
            each.circle.unpriced,
        ]
        for each in report.incidents
    ]
    note = "A step inside two incidents counts in both, so this table may add up to more than the loops above."
    return table("incidents", "Dearest loops", columns, rows, note)


def _idle(report: Report, links: Links) -> Table:
    columns = [Column("name", "Workspace"), Column("usd", "USD", "usd")]
    rows = [
        [(part.name, links.to("workspaces", part.key, report.period)), part.spent.usd]
        for part in report.idle[:ROWS_SHOWN]
    ]
    rest = report.idle[ROWS_SHOWN:]
    if rest:
        rows.append([f"{len(rest):,} others", sum((part.spent.usd for part in rest), Decimal(0))])
    return table("idle", "Idle storage", columns, rows)


def _hot(report: Report, links: Links) -> Table:
    columns = [
        Column("what", "What"),
        Column("name", "Who"),
        Column("rule", "Why it is named"),
        Column("words", "In words"),
        Column("usd", "USD", "usd"),
        Column("before_usd", "Before", "usd"),
    ]
    why = {"grown": "grew most", "above": "above the others"}
    rows = [
        [
            what.removesuffix("s"),
            (spot.sum.name, links.to(what, spot.sum.key, report.period)),
            why[spot.rule],
            spot.words,
            spot.sum.usd,
            spot.sum.before,
        ]
        for what, spots in report.hot.items()
        for spot in spots
    ]
    return table("hot_spots", "Hot spots", columns, rows)


def _share(part: Decimal, whole: Decimal) -> float | None:
    return round(float(part / whole), 4) if whole else None
