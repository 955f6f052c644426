"""What a period will have cost when it ends, from what days like those to come have cost. Pure.

The rest of today is foretold from the same hours of the past days, each day after it from whole past days: every past
day weighs the same. The range is the prediction interval of a sum of `h` days after `n` days that were seen,
mean·h ± t·s·√(h + h²/n), where t is Student's with n − 1 degrees of freedom: the fewer days, the wider.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from math import sqrt
from statistics import fmean, stdev

LOOKED_BACK_DAYS = 28
FEWEST_DAYS = 5
FEWEST_WITH_COST = 3
Z_90 = 1.2815515655446004  # leaves 10 % on each side: a range that holds in 8 of 10 cases
_CENT = Decimal("0.000001")


@dataclass(frozen=True, slots=True)
class Forecast:
    """USD at the end of the period; `low` to `high` should hold it in 8 of 10 cases. `days`: what it was made from."""

    usd: Decimal
    low: Decimal
    high: Decimal
    days: int

    @property
    def words(self) -> str:
        return (
            f"What was spent so far, and for each hour and day to come the mean of the last {self.days} days;"
            " the range holds in 8 of 10 cases if the days to come are like them."
        )


def forecast(
    spent: Decimal, past: Sequence[Sequence[Decimal]], *, passed_hours: float, days_left: int
) -> Forecast | str:
    """Or, in words, why there is none.

    `spent`: USD in the period so far. `past`: whole days before today, oldest first, 24 sums in USD each.
    `passed_hours`: of today, 0 to 24. `days_left`: whole days of the period after today.
    """
    first = next((place for place, day in enumerate(past) if any(day)), len(past))
    days = past[first:][-LOOKED_BACK_DAYS:]
    if len(days) < FEWEST_DAYS or sum(1 for day in days if any(day)) < FEWEST_WITH_COST:
        return f"No forecast: it needs {FEWEST_DAYS} past days, {FEWEST_WITH_COST} of them with costs."
    rests = [_rest(day, passed_hours) for day in days]
    wholes = [float(sum(day)) for day in days]
    count = len(days)
    middle = fmean(rests) + days_left * fmean(wholes)
    spread = sqrt(
        stdev(rests) ** 2 * (1 + 1 / count) + stdev(wholes) ** 2 * (days_left + days_left**2 / count)
    ) * _student_90(count - 1)
    return Forecast(spent + _usd(middle), spent + _usd(max(0.0, middle - spread)), spent + _usd(middle + spread), count)


def _rest(day: Sequence[Decimal], passed_hours: float) -> float:
    """What that day cost after the same time of day; the running hour counts by its part."""
    hour = min(int(passed_hours), 23)
    part = max(0.0, hour + 1 - passed_hours)
    return float(day[hour]) * part + float(sum(day[hour + 1 :]))


def _student_90(freedom: int) -> float:
    """Student's t that leaves 10 % above it: the expansion in 1/freedom of M. Abramowitz and I. Stegun, 26.7.5."""
    z = Z_90
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)


def _usd(amount: float) -> Decimal:
    return Decimal(amount).quantize(_CENT)
