"""When another profile's model answers in the place of a task's own."""

from __future__ import annotations

from typing import Any

import pytest

from workspaces.domain.fallbacks import Fallback, read_fallback


@pytest.mark.parametrize(
    ("policy", "wait_s", "circuit_open", "words"),
    [
        (Fallback(1, None, True), 900.0, False, ""),
        (Fallback(1, None, True), 0.0, True, "the pool's circuit is open"),
        (Fallback(1, 60, False), 60.0, True, ""),
        (Fallback(1, 60, False), 61.0, False, "the expected wait of 61 s is longer than 60 s"),
        (Fallback(1, 60, False), None, False, "nobody can tell how long the wait is, and it may take 60 s"),
    ],
)
def test_it_answers_when_the_policy_says_and_says_why(
    policy: Fallback, wait_s: float | None, circuit_open: bool, words: str
) -> None:
    assert policy.why(expected_wait_s=wait_s, circuit_open=circuit_open) == words


@pytest.mark.parametrize(
    ("stored", "words"),
    [
        ({"version": 3}, "no setting version"),
        ({"when_wait_over_s": 3}, "names the profile version"),
        ({"profile_version": True}, "names the profile version"),
        ({"profile_version": 3, "when_wait_over_s": -1}, "a whole number of seconds"),
        ({"profile_version": 3, "on_circuit_open": "yes"}, "true or false"),
        ({"profile_version": 3, "on_circuit_open": False}, "never used"),
    ],
)
def test_a_policy_that_cannot_be_meant_is_refused_with_the_reason(stored: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        read_fallback(stored)


def test_what_is_stored_is_read_again() -> None:
    policy = Fallback(7, 30, False)
    assert read_fallback(policy.as_json()) == policy
    assert read_fallback({}) is None
