"""Which checkpoints stay: few however many there are, and never one that was dropped before."""

from __future__ import annotations

import itertools

import pytest

from workspaces.domain.retention import CEILING, kept, spacing

PLANS = [(50, 10, 100), (1, 1, 5), (3, 2, 4), (1, 0, 100), (5, 7, 1), (2, 3, 3), (0, 2, 10)]


@pytest.mark.parametrize(("last", "every", "ceiling"), PLANS)
def test_as_a_task_grows_nothing_is_wanted_again_that_was_dropped(last: int, every: int, ceiling: int) -> None:
    alive: set[int] = set()
    for count in range(1, 700):
        alive.add(count)
        wanted = kept(range(1, count + 1), count=count, last=last, every=every, ceiling=ceiling)
        assert wanted <= alive, f"at {count}"
        alive = wanted
        assert len(alive) <= 1 + max(1, last) + ceiling
        assert {1, count} <= alive
        assert set(range(max(1, count - last + 1), count + 1)) <= alive


@pytest.mark.parametrize(("last", "every", "ceiling"), PLANS)
def test_it_does_not_matter_when_or_how_often_one_looks(last: int, every: int, ceiling: int) -> None:
    for looks in ([500], range(1, 501), range(7, 501, 13), [3, 4, 400, 500]):
        alive: set[int] = set()
        for before, count in itertools.pairwise([0, *looks, 500]):
            alive |= set(range(before + 1, count + 1))
            alive = kept(alive, count=count, last=last, every=every, ceiling=ceiling)
        assert alive == kept(range(1, 501), count=500, last=last, every=every, ceiling=ceiling)


def test_between_the_first_and_the_newest_they_lie_evenly() -> None:
    assert sorted(kept(range(1, 101), count=100, last=5, every=20)) == [1, 20, 40, 60, 80, 96, 97, 98, 99, 100]


def test_the_distance_doubles_when_there_are_too_many() -> None:
    assert [spacing(count, 10) for count in (0, 500, 1009, 1010, 2019, 2020, 4040)] == [10, 10, 10, 20, 20, 40, 80]
    assert spacing(10**6, 0) == 0
    for count in (1_000, 50_000, 10**6):
        assert count // spacing(count, 10) <= CEILING
