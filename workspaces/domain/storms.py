"""Finds storms: retries on an exhausted pool, and a fan-out of forks, from what happened when. Pure.

Both are rates: many in one minute. What waits as long as the provider said is no storm.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from workspaces.domain.found import finding
from workspaces.domain.incidents import Evidence, Finding, IncidentKind
from workspaces.domain.thresholds import Thresholds

WINDOW_S = 60.0
# kinds of providers.base.ProviderError that may pass
RETRY_KINDS = frozenset({"rate_limit", "overloaded", "server", "timeout", "connection"})
FORK = "fork"


@dataclass(frozen=True, slots=True)
class Happening:
    """One failed try at a provider, or one fork begun. `at_s`: seconds on any clock that only rises."""

    at_s: float
    kind: str
    seq: int
    step: int | None = None
    source: str = ""  # the pool, or the task that was forked


def storms(happenings: Sequence[Happening], limits: Thresholds) -> list[Finding]:
    """A finding for each source in whose newest minute too much happened."""
    found = []
    for kinds, limit, pattern, what in (
        (RETRY_KINDS, limits.retries_per_minute, "retry_storm", "failed tries"),
        ({FORK}, limits.forks_per_minute, "fan_out", "forks"),
    ):
        sources = dict.fromkeys(item.source for item in happenings if item.kind in kinds)
        for source in sources:
            mine = [item for item in happenings if item.kind in kinds and item.source == source]
            minute = newest_minute(mine)
            if limit and len(minute) >= limit:
                found.append(_finding(minute, pattern, what, limit, source))
    return found


def newest_minute(items: Sequence[Happening]) -> list[Happening]:
    """Those of the minute that ends with the newest, in order of time."""
    ordered = sorted(items, key=lambda item: (item.at_s, item.seq))
    return [item for item in ordered if item.at_s > ordered[-1].at_s - WINDOW_S]


def _finding(minute: list[Happening], pattern: str, what: str, limit: int, source: str) -> Finding:
    spent = max(minute[-1].at_s - minute[0].at_s, 1.0)
    kinds = ", ".join(dict.fromkeys(item.kind for item in minute))
    of = f" of {source}" if source else ""
    return finding(
        IncidentKind.STORM,
        pattern,
        [Evidence(item.seq, item.step, f"{item.kind}{of}") for item in minute],
        f"{len(minute)} {what}{of} within {spent:.0f} s ({kinds}); more than {limit - 1} in a minute is a storm.",
        about=kinds.replace(", ", "+"),
        subject=f"{pattern}\n{source}",
        count=len(minute),
        threshold=limit,
    )
