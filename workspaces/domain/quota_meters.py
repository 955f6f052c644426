"""A pool's live use against each of its limits, as a page shows it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from workspaces.domain.quota_words import LIMITS, LimitWords

HIGH, FULL = 0.8, 1.0


@dataclass(frozen=True, slots=True)
class Meter:
    """One limit. `value` is the one that binds, None when nobody knows any; `held`: of `used`, what may still be given
    back. `by_hand` and `learned` are told apart because the lower of the two holds."""

    limit: str
    used: int
    held: int = 0
    by_hand: int | None = None
    learned: int | None = None
    learned_at: datetime | None = None
    learned_from: str = ""

    @property
    def words(self) -> LimitWords:
        return LIMITS[self.limit]

    @property
    def value(self) -> int | None:
        known = [value for value in (self.by_hand, self.learned) if value is not None]
        return min(known) if known else None

    @property
    def source(self) -> str:
        """Which of the two binds: "by hand", "learned", or nothing when there is none."""
        if self.value is None:
            return ""
        return "by hand" if self.by_hand == self.value else "learned"

    @property
    def share(self) -> float | None:
        return None if not self.value else self.used / self.value

    @property
    def shown(self) -> int:
        """For a bar: never beyond its end (a call larger than the limit is let through alone)."""
        return self.used if self.value is None else min(self.used, self.value)

    @property
    def high(self) -> bool:
        return self.share is not None and self.share >= HIGH

    @property
    def full(self) -> bool:
        return self.share is not None and self.share >= FULL


def meters(
    by_hand: Mapping[str, Any], learned: Mapping[str, Any], used: Mapping[str, int], held: Mapping[str, int]
) -> list[Meter]:
    """In the order of LIMITS. `learned`: {limit: {"value", "at", "from"}}, as a pool's row keeps it."""
    found = []
    for limit in LIMITS:
        known = learned.get(limit) or {}
        found.append(
            Meter(
                limit,
                used.get(limit, 0),
                held.get(limit, 0),
                by_hand=by_hand.get(limit),
                learned=known.get("value"),
                learned_at=datetime.fromisoformat(known["at"]) if known.get("at") else None,
                learned_from=str(known.get("from", "")),
            )
        )
    return found


def tightest(some: list[Meter]) -> Meter | None:
    """The limit that the pool is nearest to; None when none is known."""
    limited = [meter for meter in some if meter.share is not None]
    return max(limited, key=lambda meter: meter.share or 0.0, default=None)
