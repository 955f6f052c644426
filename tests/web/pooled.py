"""A quota pool with holders, a queue and a past, as rows: for the tests of the pages that show it.

Whether the engine writes such rows is tests/engine's matter.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from workspaces.domain.quotas import PoolState, Use
from workspaces.domain.states import TaskStatus, WaitingFor
from workspaces.models import QuotaClaim, QuotaMinute, QuotaNotice, QuotaPool, QuotaShare, Task
from workspaces.queries.database import database_now


def make_pool(**fields: Any) -> QuotaPool:
    now = database_now()
    state = PoolState()
    state.forget(now.timestamp())
    state.book(Use(3, 1_200, 300), now.timestamp())
    state.in_flight, state.held_output = 1, 400
    settings = {
        "name": "gpt at example",
        "provider": "openai",
        "base_url": "https://example.test/v1",
        "group": "gpt",
        "limits": {"requests_per_minute": 3, "concurrent_calls": 2},
        "learned": {
            "requests_per_minute": {"value": 60, "at": now.isoformat(), "from": "x-ratelimit-limit-requests"},
            "input_tokens_per_minute": {"value": 40_000, "at": now.isoformat(), "from": "x-ratelimit-limit-tokens"},
        },
        "state": state.as_json(),
        "created_at": now,
    }
    return QuotaPool.objects.create(**(settings | fields))


def wait_in(pool: QuotaPool, task: Task, *, finish: float = 0.0, minutes: int = 0, **fields: Any) -> QuotaClaim:
    """The task waits for quota, in the queue of the pool."""
    since = database_now() - timedelta(minutes=minutes)
    Task.objects.filter(pk=task.pk).update(
        status=TaskStatus.WAITING.value,
        waiting_for=WaitingFor.QUOTA.value,
        waiting_reason="all 3 requests a minute are used",
        waiting_since=since,
        waiting_until=database_now() + timedelta(minutes=5),
        latch=None,
        pause_mode="",
    )
    share, _ = QuotaShare.objects.get_or_create(pool=pool, user=task.created_by)
    QuotaShare.objects.filter(pk=share.pk).update(open=share.open + 1, finish=finish or share.finish)
    settings = {"user": task.created_by, "state": "waiting", "input_tokens": 500, "output_tokens": 100}
    return QuotaClaim.objects.create(pool=pool, task=task, queued_at=since, **(settings | fields))


def hold(pool: QuotaPool, task: Task) -> QuotaClaim:
    now = database_now()
    return QuotaClaim.objects.create(
        pool=pool,
        task=task,
        user=task.created_by,
        state="leased",
        input_tokens=700,
        output_tokens=400,
        queued_at=now,
        granted_at=now,
        expires_at=now + timedelta(minutes=5),
    )


def past(pool: QuotaPool, *, minutes_ago: int = 3, **sums: Any) -> QuotaMinute:
    minute = (database_now() - timedelta(minutes=minutes_ago)).replace(second=0, microsecond=0)
    settings = {"calls": 3, "input_tokens": 1_200, "output_tokens": 300, "refusals": 2, "retries": 1}
    return QuotaMinute.objects.create(
        pool=pool, minute=minute, **(settings | {"waits": 2, "waited_s": 9.0, "longest_queue": 4} | sums)
    )


def noticed(pool: QuotaPool, words: str, kind: str = "refused", **fields: Any) -> QuotaNotice:
    return QuotaNotice.objects.create(pool=pool, kind=kind, at=database_now(), words=words, **fields)
