"""`make bench-costs`: every cost page over five million usage records, timed through Django's test client.

Each is asked for three times for its own period and for all 90 days, after one that does not count; what it shows as
its total must be the sum of the records themselves, added up by another statement. Bar: the median of every page is
under a second, every total is right, and the rollups are the sums of the records.
"""

from __future__ import annotations

import argparse
import re
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from tests.bench.costs_data import DAYS, Made, make_usage, size_for
from tests.bench.ground import installation, tell

UNDER_S = 1.0
TIMES = 3
ONE_STEP = "replies: [{text: ok, calls: [{name: finish, arguments: {summary: done}}]}]"
TOTAL = re.compile(r'id="(?:cost|step)-total"[^>]*>\s*<span title="(-?[\d.]+) USD"')


@dataclass(frozen=True, slots=True)
class Seen:
    page: str
    days: int
    median_s: float
    kilobytes: int
    shown: Decimal
    summed: Decimal

    @property
    def right(self) -> bool:
        return self.shown == self.summed


def addresses(made: Made) -> dict[str, tuple[str, str, Any]]:
    """Name → (address, column of the records, its value)."""
    return {
        "site": ("/costs/?", "TRUE OR %s IS NULL", ""),
        "user": (f"/costs/users/{made.user}/?", "user_id = %s", made.user),
        "workspace": (f"/costs/workspaces/{made.workspace}/?", "workspace_id = %s", made.workspace),
        "profile": (f"/costs/profiles/{made.profile}/?", "profile_id = %s", made.profile),
        "model": (f"/costs/models/?name={made.model}&", "model = %s", made.model),
        "task": (f"/costs/tasks/{made.task}/?", "task_id = %s", made.task),
    }


def look(client: Any, made: Made, *, now: datetime, times: int = TIMES) -> list[Seen]:
    """Every page in every period."""
    today = now.date()
    found = []
    for name, (address, where, value) in addresses(made).items():
        for days in (30, DAYS + 1):
            first = today - timedelta(days=days - 1)
            path = f"{address}from={first}&to={today}"
            client.get(path)
            took = []
            for _ in range(times):
                began = time.monotonic()
                response = client.get(path)
                took.append(time.monotonic() - began)
            assert response.status_code == 200, (path, response.status_code)
            shown = TOTAL.search(response.content.decode())
            assert shown, path
            summed = _sum(
                f"({where}) AND created_at >= %s AND created_at < %s", value, first, today + timedelta(days=1)
            )
            kilobytes = len(response.content) // 1024
            found.append(Seen(name, days, statistics.median(took), kilobytes, Decimal(shown[1]), summed))
    return found


def _sum(where: str, *values: Any) -> Decimal:
    """Of the records, which no page reads for its total."""
    from django.db import connection, transaction

    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL timezone = 'UTC'")
        cursor.execute("SET LOCAL statement_timeout = 0")
        cursor.execute(f"SELECT coalesce(sum(cost_usd), 0) FROM workspaces_usagerecord WHERE {where}", list(values))
        total: Decimal = cursor.fetchone()[0]
    return total


def rollups_differ() -> int:
    """How many groups of the sums by the hour and by the day are not those of the records."""
    from django.db import connection, transaction

    from workspaces.queries.integrity import usage

    found = 0
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL statement_timeout = 0")
        for rule in usage.RULES:
            if rule.name in ("rollup", "days"):
                cursor.execute(f"SELECT count(*) FROM ({rule.query(None)}) AS broken")
                found += int(cursor.fetchone()[0])
    return found


def table(seen: Sequence[Seen]) -> str:
    lines = [f"{'page':<10} {'days':>4} {'median':>9} {'size':>7}  {'its total':>16}  {'sum of records':>16}"]
    lines += [
        f"{each.page:<10} {each.days:>4} {each.median_s * 1000:>6.0f} ms {each.kilobytes:>4} KB"
        f"  {each.shown:>16.9f}  {each.summed:>16.9f}{'' if each.right else '  DIFFERS'}"
        for each in seen
    ]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=5_000_000)
    chosen = parser.parse_args()
    with installation(parts=("postgres", "valkey")):
        from django.test import Client
        from django.utils import timezone

        from tests.harness import make_user, scripted_task, work

        now = timezone.now()
        template = work(scripted_task(ONE_STEP))
        began = time.monotonic()
        made = make_usage(size_for(chosen.records), now=now, template=template)
        took = time.monotonic() - began
        print(f"{made.records:,} records in {made.rollups:,} rollups, made in {took:.0f} s", flush=True)
        client = Client(headers={"host": "localhost"})
        client.force_login(make_user(is_staff=True))
        seen = look(client, made, now=now)
        differ = rollups_differ()
    print(table(seen))
    slowest = max(each.median_s for each in seen)
    right = all(each.right for each in seen)
    return tell(
        {
            "asked_through": "django.test.Client, in this process",
            **{name: value for name, value in asdict(made).items() if name in ("records", "rollups", "calls", "tasks")},
            "made_s": round(took),
            "slowest_page_ms": round(slowest * 1000),
            "totals_right": right,
            "rollups_that_differ": differ,
            "pages": [{"page": each.page, "days": each.days, "ms": round(each.median_s * 1000)} for each in seen],
            "holds": slowest < UNDER_S and right and not differ and made.records >= chosen.records * 0.95,
        }
    )


if __name__ == "__main__":
    sys.exit(main())
