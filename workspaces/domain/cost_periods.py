"""Which days a cost page is about, read from its address. All days are UTC. Pure: the caller brings the clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from urllib.parse import urlencode

PERIODS = {
    "today": "Today",
    "7d": "Last 7 days",
    "30d": "Last 30 days",
    "month": "This month",
    "custom": "From … to …",
}
DEFAULT = "30d"
MOST_DAYS = 366
FIRST_DAY = date(2020, 1, 1)  # nothing was recorded before
HOURLY_UP_TO_DAYS = 2
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Period:
    """The days `first` to `last`, both counted. `problem`: why it is not the one that was asked for."""

    name: str
    first: date
    last: date
    now: datetime
    problem: str = ""

    @property
    def start(self) -> datetime:
        return midnight(self.first)

    @property
    def end(self) -> datetime:
        """The midnight after its last day."""
        return midnight(self.last) + DAY

    @property
    def until(self) -> datetime:
        """As far as anything can have been spent: the end of the running hour, or of the period."""
        return min(self.end, hour_of(self.now) + HOUR)

    @property
    def before(self) -> tuple[datetime, datetime]:
        """The period before, as much of it as has passed of this one: what growth is measured against."""
        if self.name == "month":
            start = midnight((self.first - DAY).replace(day=1))
            return start, min(start + (self.until - self.start), self.start)
        length = self.end - self.start
        return self.start - length, self.until - length

    @property
    def days(self) -> int:
        return (self.last - self.first).days + 1

    @property
    def step(self) -> timedelta:
        """How much one bar of the trend stands for."""
        return HOUR if self.days <= HOURLY_UP_TO_DAYS else DAY

    @property
    def runs(self) -> bool:
        """Some of it is still to come."""
        return self.start <= self.now < self.end

    @property
    def words(self) -> str:
        if self.first == self.last:
            return f"{self.first:%Y-%m-%d} (UTC)"
        return f"{self.first:%Y-%m-%d} to {self.last:%Y-%m-%d} (UTC)"

    @property
    def before_words(self) -> str:
        start, until = self.before
        return f"{start:%Y-%m-%d %H:%M} to {until:%Y-%m-%d %H:%M} UTC"

    @property
    def query(self) -> dict[str, str]:
        if self.name != "custom":
            return {"period": self.name}
        return {"period": "custom", "from": self.first.isoformat(), "to": self.last.isoformat()}

    def address(self, **more: str) -> str:
        """The query of a page's address that shows this period."""
        return "?" + urlencode(self.query | {name: value for name, value in more.items() if value})

    def buckets(self) -> list[datetime]:
        """The beginnings of its hours or days, those to come left out."""
        found, at = [], self.start
        while at < self.until:
            found.append(at)
            at += self.step
        return found


def midnight(day: date) -> datetime:
    return datetime.combine(day, time.min, UTC)


def hour_of(moment: datetime) -> datetime:
    return moment.astimezone(UTC).replace(minute=0, second=0, microsecond=0)


def read_period(query: Mapping[str, str], now: datetime) -> Period:
    """What was asked for, or the default with `problem` saying what is wrong with that."""
    name = query.get("period", "") or ("custom" if query.get("from") or query.get("to") else DEFAULT)
    fallback = _named(DEFAULT, now)
    if name == "custom":
        return _custom(query.get("from", ""), query.get("to", ""), now, fallback)
    if name not in PERIODS:
        return replace(fallback, problem=f"There is no period “{name[:40]}”. Choose one of the periods below.")
    return _named(name, now)


def _named(name: str, now: datetime) -> Period:
    today = now.astimezone(UTC).date()
    if name == "month":
        after = (today.replace(day=1) + timedelta(days=32)).replace(day=1)
        return Period(name, today.replace(day=1), after - DAY, now)
    days = {"today": 1, "7d": 7, "30d": 30}[name]
    return Period(name, today - timedelta(days=days - 1), today, now)


def _custom(first_text: str, last_text: str, now: datetime, fallback: Period) -> Period:
    today = now.astimezone(UTC).date()
    try:
        first = _day(first_text)
        last = _day(last_text) if last_text else today
    except ValueError:
        wrong = first_text if not _is_day(first_text) else last_text
        told = f"“{wrong[:40]}” is not a day" if wrong else "The first day is missing"
        return replace(fallback, problem=f"{told}: write days as 2026-11-30.")
    if first > last:
        return replace(fallback, problem=f"The first day ({first}) is after the last ({last}).")
    if first < FIRST_DAY:
        return replace(fallback, problem=f"Nothing was recorded before {FIRST_DAY}: choose a later first day.")
    if first > today:
        return replace(fallback, problem=f"The first day ({first}) is still to come: today is {today} (UTC).")
    if (last - first).days >= MOST_DAYS:
        return replace(
            fallback, problem=f"A page shows at most {MOST_DAYS} days; that were {(last - first).days + 1:,}."
        )
    return Period("custom", first, last, now)


def _day(text: str) -> date:
    """Raises ValueError."""
    if len(text) != len("2026-11-30"):
        raise ValueError(text)
    return date.fromisoformat(text)


def _is_day(text: str) -> bool:
    try:
        _day(text)
    except ValueError:
        return False
    return True
