"""Where a budget's period will end if it goes on as it did so far. Pure; a straight line and no more than that."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal

EARLY = 0.05  # of a period: before that a line through one point says nothing
EARLY_S = 600.0


@dataclass(frozen=True, slots=True)
class Pace:
    """`percent`: of the limit at the period's end, None where it has none. `used_up_at`: None: not in this period."""

    percent: int | None
    used_up_at: datetime | None


def pace(percent: Decimal, starts_at: datetime, ends_at: datetime | None, now: datetime) -> Pace | None:
    """`percent`: of the limit, by now. None: too early to say, or nothing is spent, or all of it."""
    elapsed_s = (now - starts_at).total_seconds()
    length_s = (ends_at - starts_at).total_seconds() if ends_at is not None else None
    early_s = max(EARLY_S, EARLY * length_s) if length_s else EARLY_S
    if elapsed_s < early_s or not 0 < percent < 100:
        return None
    rate = float(percent) / elapsed_s
    at_end = round(rate * length_s) if length_s else None
    left_s = (100 - float(percent)) / rate
    used_up_at = now + timedelta(seconds=left_s) if left_s < 400 * 86_400 else None
    if ends_at is not None and used_up_at is not None and used_up_at >= ends_at:
        used_up_at = None
    return Pace(at_end, used_up_at)
