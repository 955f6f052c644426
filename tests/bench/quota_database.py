"""The database half of `make bench-quota`: what admission at one pool costs, and whether its limit holds.

Every figure is of the real writes of a model call: the intent with its reservation, the reply with its settlement,
in a real Postgres, by threads that do nothing else. Beside it, in the same run, the same writes without a pool.

Bars: a limit is passed by no token beyond what the estimates of the calls that were under way last had missed, and
every call that was admitted is settled once.
"""

from __future__ import annotations

import os
import random
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from agentdesk.embedded.stack import Stack

THREADS = (1, 8, 64)
SECONDS = 5.0
INTO, OUT = 3_000, 1_000
LIMITED_INTO, LIMITED_OUT = 400_000, 200_000


def database() -> dict[str, Any]:
    """Prints a table and returns the figures."""
    with tempfile.TemporaryDirectory(prefix="agentdesk-bench-") as home:
        stack = Stack(Path(home), {"postgres", "valkey"})
        stack.open()
        try:
            stack.start_servers()
            os.environ.update(stack.environment)
            os.environ["DJANGO_SETTINGS_MODULE"] = "agentdesk.settings"
            os.environ["AGENTDESK_STATIC_FROM_SOURCE"] = "1"
            _set_up()
            return _measured()
        finally:
            stack.close()


def _set_up() -> None:
    import django
    from django.conf import settings
    from django.core.management import call_command
    from django.db import connection

    django.setup()
    settings.DATABASES["default"]["OPTIONS"].pop("pool", None)  # a connection a thread, as many as there are threads
    connection.settings_dict["OPTIONS"].pop("pool", None)
    call_command("migrate", verbosity=0, interactive=False)


def _measured() -> dict[str, Any]:
    rows = {}
    for threads in THREADS:
        with _without_pools():
            without = _busy(threads)
        rows[str(threads)] = {"pool": _busy(threads), "without": without}
    print(
        "| threads | calls a second | without a pool | intent and reply p50, ms | p99, ms | without p50, ms | p99, ms |"
    )
    print("|---:|---:|---:|---:|---:|---:|---:|")
    for threads, row in rows.items():
        ours, bare = row["pool"], row["without"]
        print(
            f"| {threads} | {ours['calls_s']:,.0f} | {bare['calls_s']:,.0f} | {ours['p50_ms']} | {ours['p99_ms']}"
            f" | {bare['p50_ms']} | {bare['p99_ms']} |"
        )
    added = _added()
    over = _overshoot()
    print(
        f"\nOne call alone, in turn with the same without a pool: {added['p50_ms']} ms more (p50), "
        f"{added['p99_ms']} ms (p99). At a limit of "
        f"{LIMITED_INTO:,} tokens in and {LIMITED_OUT:,} out, with estimates that were wrong by up to a half, "
        f"{over['calls']} calls took {over['input_tokens']:,} and {over['output_tokens']:,}: {over['beyond']} tokens "
        f"more than the last estimates had missed ({over['missed']:,}).\n"
    )
    return {"threads": rows, "added": added, "overshoot": over, "holds": over["beyond"] == 0 and over["even"]}


@contextmanager
def _without_pools() -> Iterator[None]:
    """The writes of a call as they are, but nobody is asked."""
    from workspaces.actions import quotas

    kept = quotas.lease, quotas.settle
    quotas.lease = lambda pen, call, wish: True
    quotas.settle = lambda pen, call, usage, rate=None: None
    try:
        yield
    finally:
        quotas.lease, quotas.settle = kept


def _callers(threads: int, users_at_most: int = 8, **limits: int) -> list[Any]:
    from tests import harness
    from tests.quota_calls import caller

    users = [harness.make_user() for _ in range(min(threads, users_at_most))]
    version = harness.scripted_profile(users[0], "replies: [{text: x}]")
    harness.quota_pool(version, **(limits or {"requests_per_minute": 10_000_000, "input_tokens_per_minute": 10**12}))
    return [caller(version, users[at % len(users)]) for at in range(threads)]


def _together(callers: list[Any], work: Callable[[Any], None]) -> None:
    from django.db import connection

    def one(each: Any) -> None:
        try:
            work(each)
        finally:
            connection.close()

    threads = [threading.Thread(target=one, args=(each,)) for each in callers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _busy(threads: int) -> dict[str, Any]:
    """Intent and reply in turn, for a while."""
    callers = _callers(threads)
    taken: list[float] = []
    until = time.monotonic() + SECONDS

    def work(each: Any) -> None:
        while time.monotonic() < until:
            began = time.monotonic()
            call = each.intend(INTO, OUT)
            each.reply(call, INTO, OUT // 2)
            taken.append(time.monotonic() - began)

    _together(callers, work)
    return {
        "calls_s": round(len(taken) / SECONDS, 1),
        "p50_ms": round(median(taken) * 1000, 2),
        "p99_ms": round(quantiles(taken, n=100)[98] * 1000, 2),
    }


def _added() -> dict[str, float]:
    """What a pool adds to one call, in turn with calls that have none: the machine is the same for both."""
    (each,) = _callers(1)
    taken: dict[bool, list[float]] = {True: [], False: []}
    until = time.monotonic() + 2 * SECONDS
    while time.monotonic() < until:
        for pool in taken:
            with nullcontext() if pool else _without_pools():
                began = time.monotonic()
                each.reply(each.intend(INTO, OUT), INTO, OUT // 2)
                taken[pool].append(time.monotonic() - began)
    ours, bare = (quantiles(taken[pool], n=100) for pool in (True, False))
    return {
        "calls": len(taken[True]),
        "p50_ms": round((ours[49] - bare[49]) * 1000, 2),
        "p99_ms": round((ours[98] - bare[98]) * 1000, 2),
    }


def _overshoot() -> dict[str, Any]:
    """Eight workers ask until the pool lets none through, with estimates that are wrong by up to a half."""
    from django.db.models import Max, Sum

    from workspaces.models import ModelCall
    from workspaces.queries.integrity import verify

    # of one user: between several, a minute is given out evenly, and none would come to its end
    callers = _callers(8, 1, input_tokens_per_minute=LIMITED_INTO, output_tokens_per_minute=LIMITED_OUT)
    before = ModelCall.objects.aggregate(newest=Max("pk"))["newest"] or 0

    def work(each: Any) -> None:
        own = random.Random(each.task.pk)
        while True:
            into, out = own.randrange(500, 6_000), own.randrange(200, 3_000)
            call = each.intend(into, out)
            if call is None:
                return
            time.sleep(0.002)
            each.reply(call, int(into * own.uniform(0.5, 1.5)), int(out * own.uniform(0, 1)))

    _together(callers, work)
    calls = ModelCall.objects.filter(pk__gt=before)
    last = calls.latest("pk")
    missed = sum(
        max(0, (call.input_tokens or 0) - (call.reserved_input_tokens or 0))
        for call in calls.filter(finished_at__gte=last.started_at)
    )
    used = calls.aggregate(into=Sum("input_tokens"), out=Sum("output_tokens"))
    beyond = max(0, used["into"] - LIMITED_INTO - missed) + max(0, used["out"] - LIMITED_OUT)
    broken = sum(result.broken for result in verify() if result.rule.name.startswith("quota-"))
    return {
        "calls": calls.count(),
        "input_tokens": used["into"],
        "output_tokens": used["out"],
        "missed": missed,
        "beyond": beyond,
        "even": broken == 0,
    }
