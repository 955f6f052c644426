"""When a message that did not arrive is tried again, and what an answer means."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime

import pytest

from workspaces.domain.endpoints import AttemptOutcome as Out
from workspaces.domain.sending import PAUSES_S, WINDOW_S, hold_s, outcome_of, pause_s, retry_after_s

NOW = datetime(2026, 12, 1, 10, 0, 0, tzinfo=UTC)


def days_tries(chance: float) -> list[float]:
    """When the tries of one message are made, in seconds since it was queued."""
    at, tries = 0.0, [0.0]
    while (pause := pause_s(len(tries), left_s=WINDOW_S - at, chance=chance)) is not None:
        at += pause
        tries.append(at)
    return tries


@pytest.mark.parametrize("chance", [0.0, 0.3, 0.999])
def test_a_day_of_tries_grows_exponentially_and_ends_with_the_day(chance: float) -> None:
    tries = days_tries(chance)
    assert 10 <= len(tries) <= 13
    assert tries[-1] == pytest.approx(WINDOW_S, abs=31)
    pauses = [later - earlier for earlier, later in itertools.pairwise(tries)]
    assert all(later > earlier for earlier, later in itertools.pairwise(pauses[:8]))
    for pause, wanted in zip(pauses, PAUSES_S, strict=False):
        assert 0.8 * wanted <= pause <= 1.2 * wanted or pause == pytest.approx(pauses[-1])


def test_many_messages_do_not_come_back_together() -> None:
    assert pause_s(1, left_s=WINDOW_S, chance=0.0) != pause_s(1, left_s=WINDOW_S, chance=0.5)


def test_what_a_receiver_asks_for_is_kept_but_never_shortens_a_pause_nor_passes_the_window() -> None:
    assert (pause_s(1, left_s=WINDOW_S, chance=0.5, asked_s=120) or 0) >= 120
    assert pause_s(5, left_s=WINDOW_S, chance=0.5, asked_s=1) == 1200
    assert pause_s(1, left_s=600, chance=0.5, asked_s=10**9) == 600
    assert pause_s(3, left_s=10, chance=0.5) is None


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("120", 120),
        (" 7 ", 7),
        ("Tue, 01 Dec 2026 10:01:30 GMT", 90),
        ("Tue, 01 Dec 2026 09:00:00 GMT", 0),
        ("Tue, 01 Dec 2099 09:00:00 GMT", WINDOW_S),
        ("9" * 60, WINDOW_S),
        ("", None),
        ("-5", None),
        ("soon", None),
        ("١٢", None),
        ("Tue, 99 Dec 2026 10:01:30 GMT", None),
        ("Mon, 01 Jan 999999999999 00:00:00 GMT", None),
        ("1.5", None),
    ],
)
def test_retry_after_is_read_as_seconds_or_a_date(text: str, seconds: float | None) -> None:
    assert retry_after_s(text, NOW) == seconds


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (200, Out.DELIVERED),
        (204, Out.DELIVERED),
        (299, Out.DELIVERED),
        (301, Out.REFUSED),
        (304, Out.REFUSED),
        (400, Out.REFUSED),
        (404, Out.REFUSED),
        (410, Out.GONE),
        (429, Out.REFUSED),
        (500, Out.REFUSED),
        (199, Out.REFUSED),
    ],
)
def test_only_2xx_is_a_success(status: int, outcome: Out) -> None:
    assert outcome_of(status) is outcome


def test_a_receiver_that_has_too_much_is_left_alone_for_a_while() -> None:
    assert hold_s(429, 30) == 30
    assert hold_s(503, None) == 5
    assert hold_s(429, 10**9) == WINDOW_S
    assert hold_s(500, 30) == hold_s(None, None) == 0
