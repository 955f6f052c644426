"""What a pool did over the last hour, day or week, from its minutes: the rows behind charts and table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.db import connection

from workspaces.models import QuotaPool

# how long, and how long one row of it is, in seconds
PERIODS = {"hour": (3_600, 60), "day": (86_400, 600), "week": (7 * 86_400, 3_600)}


@dataclass(frozen=True, slots=True)
class Bin:
    """`most_*`: of its busiest minute, which a limit per minute bounds. `waits` began, `waited_s` ended in it."""

    at: datetime
    calls: int = 0
    most_calls: int = 0
    input_tokens: int = 0
    most_input: int = 0
    output_tokens: int = 0
    most_output: int = 0
    refusals: int = 0
    retries: int = 0
    waits: int = 0
    waited_s: float = 0.0
    longest_queue: int = 0

    @property
    def empty(self) -> bool:
        return not (self.calls or self.refusals or self.retries or self.waits or self.waited_s or self.longest_queue)


@dataclass(frozen=True, slots=True)
class History:
    period: str
    bin_s: int
    bins: list[Bin]  # oldest first, none left out

    @property
    def filled(self) -> list[Bin]:
        """Newest first, those in which something happened."""
        return [each for each in reversed(self.bins) if not each.empty]

    @property
    def total(self) -> Bin:
        last = self.bins[-1].at
        return Bin(
            last,
            calls=sum(each.calls for each in self.bins),
            most_calls=max(each.most_calls for each in self.bins),
            input_tokens=sum(each.input_tokens for each in self.bins),
            most_input=max(each.most_input for each in self.bins),
            output_tokens=sum(each.output_tokens for each in self.bins),
            most_output=max(each.most_output for each in self.bins),
            refusals=sum(each.refusals for each in self.bins),
            retries=sum(each.retries for each in self.bins),
            waits=sum(each.waits for each in self.bins),
            waited_s=sum(each.waited_s for each in self.bins),
            longest_queue=max(each.longest_queue for each in self.bins),
        )


def history_of(pool: QuotaPool, period: str, now: datetime) -> History:
    """One query; at most 168 rows, whatever the pool has done."""
    length_s, bin_s = PERIODS[period]
    last = int(now.timestamp()) // bin_s * bin_s
    first = last - length_s + bin_s
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT floor(extract(epoch FROM minute) / %(bin)s)::bigint * %(bin)s AS at,
                   sum(calls), max(calls), sum(input_tokens), max(input_tokens), sum(output_tokens),
                   max(output_tokens), sum(refusals), sum(retries), sum(waits), sum(waited_s), max(longest_queue)
            FROM workspaces_quotaminute
            WHERE pool_id = %(pool)s AND minute >= to_timestamp(%(first)s)
            GROUP BY 1
            """,
            {"bin": bin_s, "pool": pool.pk, "first": first},
        )
        known = {int(row[0]): _bin(row) for row in cursor.fetchall()}
    return History(period, bin_s, [known.get(at) or Bin(_time(at)) for at in range(first, last + 1, bin_s)])


def _bin(row: Sequence[Any]) -> Bin:
    at, *sums, waited_s, longest_queue = row
    calls, most_calls, read, most_read, written, most_written, refusals, retries, waits = map(int, sums)
    return Bin(
        _time(at),
        calls,
        most_calls,
        read,
        most_read,
        written,
        most_written,
        refusals,
        retries,
        waits,
        float(waited_s),
        longest_queue,
    )


def _time(epoch: int) -> datetime:
    return datetime.fromtimestamp(epoch, UTC)
