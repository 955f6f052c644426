"""Thresholds of watched conditions: what a rule says, within bounds, else the default."""

from __future__ import annotations

import pytest

from workspaces.domain.watched import PACE_S, STUCK_MINUTES, THRESHOLDS, WATCHED_SUBJECTS


@pytest.mark.parametrize(
    ("value", "minutes"),
    [(5, 5), (2.5, 2.5), (0, 1), (-3, 1), (10**9, 10_080), ("7", 30), (None, 30), (True, 30), (float("nan"), 30)],
)
def test_a_threshold_is_a_number_within_bounds_or_the_default(value: object, minutes: float) -> None:
    assert STUCK_MINUTES.of({"stuck_minutes": value}) == minutes
    assert STUCK_MINUTES.of({}) == 30


def test_every_watched_kind_has_a_pace_of_a_minute_at_most_thresholds_and_subjects_of_its_own() -> None:
    assert PACE_S.keys() == THRESHOLDS.keys() == WATCHED_SUBJECTS.keys()
    assert all(1 <= pace <= 60 for pace in PACE_S.values())
    names = [threshold.name for some in THRESHOLDS.values() for threshold in some]
    assert len(names) == len(set(names)), "rules keep them by name"
    subjects = [start for some in WATCHED_SUBJECTS.values() for start in some]
    assert not any(a != b and a.startswith(b) for a in subjects for b in subjects)
