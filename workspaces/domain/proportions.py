"""Shares of small numbers: how sure one may be of them, and whether two of them differ. Pure."""

from __future__ import annotations

from math import exp, lgamma, sqrt

Z_95 = 1.959963984540054  # the normal deviate that leaves 2.5 % on each side
_SAME = 1e-7  # tables as likely as the observed one up to rounding, as R's fisher.test counts them


def wilson(hits: int, count: int, z: float = Z_95) -> tuple[float, float]:
    """The score interval of `hits` of `count`, as two shares from 0 to 1; (0, 1) where nothing was counted.

    E. B. Wilson, "Probable inference, the law of succession, and statistical inference", Journal of the American
    Statistical Association 22 (1927), 209–212. Unlike hits/count ± z·sd it stays within 0 and 1 and is not a point
    at 0 or at `count` hits. Raises ValueError when there are more hits than counted.
    """
    _checked(hits, count)
    if count == 0:
        return 0.0, 1.0
    share = hits / count
    square = z * z / count
    middle = (share + square / 2) / (1 + square)
    half = z * sqrt(share * (1 - share) / count + square / (4 * count)) / (1 + square)
    low = 0.0 if hits == 0 else max(0.0, middle - half)
    high = 1.0 if hits == count else min(1.0, middle + half)
    return low, high


def fisher(hits_a: int, count_a: int, hits_b: int, count_b: int) -> float:
    """Fisher's exact test, two-sided: how likely a difference as large as this one is if both shares are equal.

    R. A. Fisher, "The logic of inductive inference", Journal of the Royal Statistical Society 98 (1935), 39–82: given
    the margins, a table's chance is hypergeometric. Two-sided as in R's fisher.test: every table that is no likelier
    than the observed one counts. Exact for any count, so a handful of tasks is not made to say more than it can.
    """
    _checked(hits_a, count_a)
    _checked(hits_b, count_b)
    hits, total = hits_a + hits_b, count_a + count_b
    whole = _log_choose(total, hits)

    def chance(in_a: int) -> float:
        return exp(_log_choose(count_a, in_a) + _log_choose(count_b, hits - in_a) - whole)

    seen = chance(hits_a)
    possible = range(max(0, hits - count_b), min(hits, count_a) + 1)
    return min(1.0, sum(each for in_a in possible if (each := chance(in_a)) <= seen * (1 + _SAME)))


def _log_choose(n: int, k: int) -> float:
    return lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)


def _checked(hits: int, count: int) -> None:
    if not 0 <= hits <= count:
        raise ValueError(f"{hits} of {count} is no share")
