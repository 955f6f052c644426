"""The parts of the quota pages as template contexts. The views and the sockets build them here, so both show the same.

`LIVE` names the parts of a pool's page that its socket sends again when they have changed.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from workspaces.domain.quota_words import CIRCUITS, NOTICES
from workspaces.domain.states import Circuit, NoticeKind
from workspaces.models import QuotaPool, QuotaShare, User
from workspaces.queries.alert_page import alerts_of
from workspaces.queries.fleet import Filters
from workspaces.queries.quota_history import PERIODS, history_of
from workspaces.queries.quota_line import TaskWait, queue_of
from workspaces.queries.quota_page import fan_out_of, holders_of, notices_of, users_of
from workspaces.queries.quota_pools import Counts, PoolRow, counts_of, waits_by_pool
from workspaces.queries.quota_state import Situation

LIVE = {
    "head": "quota/_head.html",
    "alerts": "alerts/_of_noun.html",
    "limits": "quota/_limits.html",
    "holders": "quota/_holders.html",
    "queue": "quota/_queue.html",
    "users": "quota/_users.html",
    "history": "quota/_history.html",
    "forks": "quota/_forks.html",
    "notices": "quota/_notices.html",
}
PERIOD_WORDS = {"hour": "Last hour", "day": "Last 24 hours", "week": "Last 7 days"}


def period_of(text: str | None) -> str:
    return text if text in PERIODS else "hour"


def card_context(row: PoolRow, user: User) -> dict[str, Any]:
    return {
        "row": row,
        "pool": row.pool,
        "circuit": CIRCUITS[Circuit(row.pool.circuit)],
        "why": row.situation.holds_back() if row.counts.waiting or row.urgent else "",
        "is_staff": user.is_staff,
    }


def page_context(pool: QuotaPool, user: User, now: datetime, period: str, before: int | None = None) -> dict[str, Any]:
    """Everything on a pool's page: the number of queries does not follow from how many tasks there are in it."""
    situation = Situation.of(pool, now)
    counts = counts_of([pool.pk]).get(pool.pk, Counts())
    queue = queue_of(situation, user, counts.waiting)
    notices = notices_of(pool, user, before)
    history = history_of(pool, period, now)
    return {
        "pool": pool,
        "noun_alerts": alerts_of(user, pool=pool.pk),
        "situation": situation,
        "counts": counts,
        "circuit": CIRCUITS[Circuit(pool.circuit)],
        "why": situation.holds_back(),
        "is_staff": user.is_staff,
        "queue": queue,
        "places": [
            {
                "row": row,
                "expected": expected(row.expected_s),
            }
            for row in queue.rows
        ],
        "holders": holders_of(pool, user),
        "users": users_of(pool, user, now),
        "forks": fan_out_of(pool, user, now),
        "notices": [{"row": row, "look": NOTICES[NoticeKind(row.notice.kind)]} for row in notices],
        "older": notices[-1].notice.pk if notices else None,
        "before": before,
        "history": history,
        "history_hour": history.total if period == "hour" else history_of(pool, "hour", now).total,
        "period": period,
        "periods": list(PERIOD_WORDS.items()),
    }


def weights_context(pool: QuotaPool) -> dict[str, Any]:
    """For the page of settings: whose weight is another than the usual one."""
    changed = QuotaShare.objects.filter(pool=pool).exclude(weight=1.0).select_related("user").order_by("-weight", "pk")
    return {"weights": list(changed[:100])}


def quota_waits(user: User, filters: Filters) -> list[tuple[QuotaPool, int, str]]:
    """How many of the tasks that the user may see wait on which pool, with the address of the fleet of those."""
    return [
        (pool, count, f"/{filters.address(pool=pool.pk, status='', needs=False)}")
        for pool, count in waits_by_pool(user)
    ]


def wait_context(wait: TaskWait | None) -> dict[str, Any]:
    """For the head of a task that waits for quota."""
    if wait is None:
        return {"quota_wait": None}
    return {
        "quota_wait": wait,
        "quota_expected": expected(wait.expected_s),
        "quota_circuit": CIRCUITS[Circuit(wait.pool.circuit)],
    }


def expected(seconds: float | None) -> str:
    """An estimate in words that do not pretend to be exact, and do not change at every look."""
    if seconds is None:
        return "not known"
    if seconds < 2:
        return "at once"
    for size, step, words in ((60, 5, "s"), (3_600, 60, "min"), (86_400, 3_600, "h")):
        if seconds < size:
            count = max(step, round(seconds / step) * step)
            return f"about {count if words == 's' else count // step} {words}"
    return f"about {round(seconds / 86_400)} d"
