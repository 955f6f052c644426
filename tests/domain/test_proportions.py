"""Intervals and tests of small counts, against values that were computed elsewhere."""

from __future__ import annotations

import pytest

from workspaces.domain.proportions import fisher, wilson


@pytest.mark.parametrize(
    ("hits", "count", "low", "high"),
    [
        # R 4.4: prop.test(x, n, correct = FALSE)$conf.int, which is the score interval
        (0, 10, 0.0, 0.2775328),
        (10, 10, 0.7224672, 1.0),
        (5, 10, 0.2365931, 0.7634069),
        (1, 29, 0.0061130, 0.1717553),
    ],
)
def test_the_score_interval(hits: int, count: int, low: float, high: float) -> None:
    assert wilson(hits, count) == pytest.approx((low, high), abs=1e-5)


def test_of_nothing_every_share_is_possible() -> None:
    assert wilson(0, 0) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("table", "p"),
    [
        ((8, 10, 1, 6), 0.03496503),  # by hand: 400 of the 11,440 ways are no likelier
        ((3, 4, 1, 4), 0.4857143),  # Fisher's lady tasting tea, two-sided
        ((0, 5, 0, 7), 1.0),
        ((5, 5, 7, 7), 1.0),
    ],
)
def test_the_exact_test(table: tuple[int, int, int, int], p: float) -> None:
    assert fisher(*table) == pytest.approx(p, abs=1e-7)
    a, n, b, m = table
    assert fisher(b, m, a, n) == pytest.approx(p, abs=1e-7), "the sides may be swapped"


def test_many_tasks_neither_overflow_nor_underflow() -> None:
    assert fisher(5_000, 10_000, 5_000, 10_000) == pytest.approx(1.0)
    assert fisher(9_000, 10_000, 1_000, 10_000) == 0.0
    low, high = wilson(5_000, 10_000)
    assert 0.49 < low < 0.5 < high < 0.51


def test_more_hits_than_were_counted_are_no_share() -> None:
    with pytest.raises(ValueError, match="3 of 2"):
        wilson(3, 2)
    with pytest.raises(ValueError, match="-1 of 2"):
        fisher(1, 2, -1, 2)
