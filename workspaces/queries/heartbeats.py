"""Which processes were seen, and how long ago: for /readyz, the alerts page and the watch. One small statement."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import datetime

from django.db import connection

from workspaces.domain.alert_watches import duration
from workspaces.domain.states import ProcessRole

REMEMBERED_S = 900  # a process that was not seen for so long is no longer missed
LIVES_S = 30  # seen within this, it lives: it beats every 5 s


@dataclass(frozen=True, slots=True)
class Seen:
    """A process. `age_s`: since it was last seen, `lived_s`: until then since it started, both by the database's clock.

    `ending`: it was told to end, so that its silence is in order.
    """

    role: ProcessRole
    host: str
    pid: int
    age_s: float
    lived_s: float
    ending: bool
    started_at: datetime
    seen_at: datetime

    @property
    def name(self) -> str:
        return f"{self.host}:{self.pid}"

    @property
    def lives(self) -> bool:
        return self.age_s <= LIVES_S and not self.ending


def seen_lately() -> list[Seen]:
    """Who was seen within the last 15 minutes, the longest silent last."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT role, host, pid, extract(epoch FROM clock_timestamp() - seen_at)::float,"
            "       extract(epoch FROM seen_at - started_at)::float, ending_at IS NOT NULL, started_at, seen_at"
            "  FROM workspaces_heartbeat"
            " WHERE seen_at > clock_timestamp() - make_interval(secs => %s::int)"
            " ORDER BY seen_at DESC, id",
            [REMEMBERED_S],
        )
        return [Seen(ProcessRole(role), *rest) for role, *rest in cursor.fetchall()]


@dataclass(frozen=True, slots=True)
class Pulse:
    """`workers`, `schedulers`: that live and were not told to end.

    `worker_s`, `scheduler_s`: since one was last seen; None: in 15 minutes none.
    """

    workers: int
    schedulers: int
    worker_s: float | None
    scheduler_s: float | None

    @property
    def well(self) -> bool:
        return self.workers > 0 and self.schedulers > 0

    @property
    def words(self) -> str:
        """Who lives, for people who look at alerts."""
        workers = "1 worker" if self.workers == 1 else f"{self.workers:,} workers"
        if self.well:
            return f"{workers} and the scheduler live."
        parts = []
        if not self.workers:
            parts.append(f"No worker lives ({_last(self.worker_s)}): no task goes on.")
        if not self.schedulers:
            parts.append(f"No scheduler lives ({_last(self.scheduler_s)}): waits do not end.")
        if not self.workers and not self.schedulers:
            parts.append("Nothing looks and nobody is told until one of them is started.")
        return " ".join(parts)


def _last(seconds: float | None) -> str:
    return "none was seen lately" if seconds is None else f"last seen {duration(seconds)} ago"


def pulse() -> Pulse:
    seen = seen_lately()
    ages = {role: min((each.age_s for each in seen if each.role is role), default=None) for role in ProcessRole}
    live = Counter(each.role for each in seen if each.lives)
    return Pulse(
        live[ProcessRole.WORKER], live[ProcessRole.SCHEDULER], ages[ProcessRole.WORKER], ages[ProcessRole.SCHEDULER]
    )
