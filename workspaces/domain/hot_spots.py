"""Who costs much more than before, and who much more than the others: two rules, each said in words. Pure.

Money is spread over people as a few large sums and many small ones, so "more than the mean" would name somebody on
every page. The rule for the others compares logarithms with their median, and measures the distance in median absolute
deviations: both stay what they are when one of the sums becomes ten times larger.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from math import exp, log
from statistics import median

GROWN_AT_LEAST = Decimal("1.5")  # times the period before
GROWTH_SHARE = Decimal("0.05")  # of the whole of both periods: less is not worth a look
FEWEST_OTHERS = 5  # sums, to tell what is usual among them
DEVIATIONS = 3.5  # B. Iglewicz and D. Hoaglin, "How to Detect and Handle Outliers" (1993): the modified z-score
TO_SIGMA = 1.4826  # a median absolute deviation in standard deviations of normal values
LEAST_SPREAD = log(1.25)  # where all cost nearly the same, a little more is still not much more
SHOWN = 5


@dataclass(frozen=True, slots=True)
class Sum:
    """What one of them cost, USD: in this period, and in as much of the one before."""

    key: str
    name: str
    usd: Decimal
    before: Decimal


@dataclass(frozen=True, slots=True)
class HotSpot:
    """`rule`: "grown" or "above"."""

    rule: str
    sum: Sum
    words: str


def hot_spots(sums: Sequence[Sum], what: str) -> list[HotSpot]:
    """Those that grew most, then those above the others, at most `SHOWN` of each. `what`: "users", "models" …"""
    return grown(sums)[:SHOWN] + above(sums, what)[:SHOWN]


def grown(sums: Sequence[Sum]) -> list[HotSpot]:
    """Half as much again as before or more, and by a sum that matters in the whole; the largest growth first."""
    whole = max(sum((each.usd for each in sums), Decimal(0)), sum((each.before for each in sums), Decimal(0)))
    found = [
        each
        for each in sums
        if each.usd - each.before >= GROWTH_SHARE * whole > 0 and each.usd >= GROWN_AT_LEAST * each.before
    ]
    found.sort(key=lambda each: (each.before - each.usd, each.name))
    return [HotSpot("grown", each, _grown_words(each)) for each in found]


def above(sums: Sequence[Sum], what: str) -> list[HotSpot]:
    """Those beyond the limit that the usual spread of the others sets; the largest first."""
    limit = usual_limit([each.usd for each in sums])
    if limit is None:
        return []
    usual, most = limit
    found = sorted((each for each in sums if each.usd > most), key=lambda each: (-each.usd, each.name))
    count = sum(1 for each in sums if each.usd > 0)
    tail = (
        f"half of the {count} {what} with costs spent {_money(usual)} or less, and more than {_money(most)} stands out"
    )
    return [HotSpot("above", each, f"spent {_money(each.usd)}: {tail}.") for each in found]


def usual_limit(amounts: Sequence[Decimal]) -> tuple[Decimal, Decimal] | None:
    """(the median, the most that is still usual) of those above zero; None where they are too few."""
    logs = [log(float(amount)) for amount in amounts if amount > 0]
    if len(logs) < FEWEST_OTHERS:
        return None
    middle = median(logs)
    spread = max(TO_SIGMA * median(abs(each - middle) for each in logs), LEAST_SPREAD)
    return Decimal(exp(middle)), Decimal(exp(middle + DEVIATIONS * spread))


def _grown_words(each: Sum) -> str:
    if not each.before:
        return f"spent {_money(each.usd)}, nothing in the period before."
    times = each.usd / each.before
    return (
        f"spent {_money(each.usd)}, {times:.1f} times the {_money(each.before)} of the period before"
        f" (+{_money(each.usd - each.before)})."
    )


def _money(amount: Decimal) -> str:
    return f"${amount:,.2f}" if amount >= 1 else f"${amount:.4f}"
