"""Limits read from the headers of answers: each vendor's form, and what a stranger may send instead."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workspaces.domain.rate_headers import LONGEST_WAIT_S, RateHint, read

NOW = datetime(2026, 12, 1, 12, 0, 0, tzinfo=UTC)


def test_openai_s_headers() -> None:
    hint = read(
        {
            "X-RateLimit-Limit-Requests": "5000",
            "x-ratelimit-remaining-requests": "4999",
            "x-ratelimit-reset-requests": "12ms",
            "x-ratelimit-limit-tokens": "160000",
            "x-ratelimit-remaining-tokens": "159976",
            "x-ratelimit-reset-tokens": "6m0s",
        },
        NOW,
    )
    assert hint is not None
    assert hint.limits == {"requests": 5000, "tokens": 160_000}
    assert hint.remaining == {"requests": 4999, "tokens": 159_976}
    assert hint.resets_s == {"requests": pytest.approx(0.012), "tokens": 360.0}
    assert hint.retry_after_s is None
    assert hint.pool_limits() == {
        "requests_per_minute": (5000, "x-ratelimit-limit-requests"),
        "input_tokens_per_minute": (160_000, "x-ratelimit-limit-tokens"),
        "output_tokens_per_minute": (160_000, "x-ratelimit-limit-tokens"),
    }


def test_anthropic_s_headers() -> None:
    hint = read(
        {
            "anthropic-ratelimit-requests-limit": "1000",
            "anthropic-ratelimit-requests-remaining": "0",
            "anthropic-ratelimit-requests-reset": "2026-12-01T12:00:30Z",
            "anthropic-ratelimit-tokens-limit": "480000",
            "anthropic-ratelimit-input-tokens-limit": "400000",
            "anthropic-ratelimit-input-tokens-remaining": "399000",
            "anthropic-ratelimit-input-tokens-reset": "2026-12-01T13:00:01+01:00",
            "anthropic-ratelimit-output-tokens-limit": "80000",
            "anthropic-ratelimit-output-tokens-reset": "2026-12-01T11:59:59Z",
            "retry-after": "30",
        },
        NOW,
    )
    assert hint is not None
    assert hint.limits == {"requests": 1000, "tokens": 480_000, "input_tokens": 400_000, "output_tokens": 80_000}
    assert hint.remaining == {"requests": 0, "input_tokens": 399_000}
    assert hint.resets_s == {"requests": 30.0, "input_tokens": 1.0, "output_tokens": 0.0}
    assert hint.retry_after_s == 30.0
    assert {name: value for name, (value, _) in hint.pool_limits().items()} == {
        "requests_per_minute": 1000,
        "input_tokens_per_minute": 400_000,
        "output_tokens_per_minute": 80_000,
    }


def test_a_limit_that_refills_in_a_day_is_one_of_a_day() -> None:
    """Requests of a day and tokens of a minute under names that do not tell."""
    hint = read(
        {
            "x-ratelimit-limit-requests": "14400",
            "x-ratelimit-remaining-requests": "14370",
            "x-ratelimit-reset-requests": "2m59.56s",
            "x-ratelimit-limit-tokens": "18000",
            "x-ratelimit-remaining-tokens": "17997",
            "x-ratelimit-reset-tokens": "7.66ms",
        },
        NOW,
    )
    assert hint is not None
    assert hint.limits == {"requests_per_day": 14_400, "tokens": 18_000}
    assert "requests_per_minute" not in hint.pool_limits()


def test_named_periods_stand_side_by_side() -> None:
    hint = read(
        {
            "x-ratelimit-limit-tokens-minute": "60000",
            "x-ratelimit-limit-tokens-day": "1000000",
            "x-ratelimit-reset-tokens-day": "33011.382867",
        },
        NOW,
    )
    assert hint is not None
    assert hint.limits == {"tokens": 60_000, "tokens_per_day": 1_000_000}
    assert hint.resets_s == {"tokens_per_day": pytest.approx(33011.382867)}
    assert hint.pool_limits()["tokens_per_day"] == (1_000_000, "x-ratelimit-limit-tokens-day")


@pytest.mark.parametrize(
    ("reset", "seconds"),
    [
        ("1s", 1.0),
        ("120ms", 0.12),
        ("6m0s", 360.0),
        ("1h2m3.5s", 3723.5),
        ("0", 0.0),
        ("17", 17.0),
        ("59.5", 59.5),
        ("1d", 86400.0),
        ("2d", None),
        ("", None),
        ("-5s", None),
        ("-5", None),
        ("1 s", None),
        ("s", None),
        ("1e3s", None),
        ("nan", None),
        ("inf", None),
        ("1e400", None),
        ("9" * 5000, None),
        ("1s" * 5000, None),
        ("2026-12-01T12:00:05", None),
        ("1735689600", None),
        ("٣s", None),
    ],
)
def test_a_reset_is_a_duration_or_nothing(reset: str, seconds: float | None) -> None:
    hint = read({"x-ratelimit-reset-tokens": reset, "x-ratelimit-limit-requests": "7"}, NOW)
    assert hint is not None
    assert hint.resets_s.get("tokens") == (None if seconds is None else pytest.approx(seconds))
    assert hint.limits == {"requests": 7}


@pytest.mark.parametrize(
    "value",
    ["0", "-1", "nan", "inf", "1e9", "1.5", "", "5, 7", "9" * 30, "9" * 5000, "٣", "²", "0x10", "1_000", "unlimited"],
)
def test_a_limit_is_a_plain_figure_or_nothing(value: str) -> None:
    assert read({"x-ratelimit-limit-requests": value}, NOW) is None
    assert read({"anthropic-ratelimit-tokens-limit": value}, NOW) is None


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after-ms": "nan", "retry-after": "9"}, 9.0),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after": "1e12"}, LONGEST_WAIT_S),
        ({"retry-after": "9" * 5000}, None),
        ({"retry-after": "Tue, 01 Dec 2026 12:00:08 GMT"}, 8.0),
        ({"retry-after": "soon"}, None),
        ({}, None),
    ],
)
def test_how_long_to_wait(headers: dict[str, str], seconds: float | None) -> None:
    hint = read(headers, NOW)
    assert (hint.retry_after_s if hint else None) == seconds


@given(
    st.dictionaries(
        st.sampled_from(
            [f"x-ratelimit-{what}-{of}" for what in ("limit", "remaining", "reset") for of in ("requests", "tokens")]
            + [f"anthropic-ratelimit-input-tokens-{what}" for what in ("limit", "remaining", "reset")]
            + ["retry-after", "retry-after-ms"]
        ),
        st.text(max_size=80) | st.floats().map(str) | st.integers().map(str),
    )
)
@settings(max_examples=150, derandomize=True, deadline=None)
def test_no_header_breaks_it_or_gets_a_wild_figure_through(headers: dict[str, str]) -> None:
    hint = read(headers, NOW) or RateHint()
    assert all(0 < value <= 10**12 for value in hint.limits.values())
    assert all(0 <= value <= 10**12 for value in hint.remaining.values())
    assert all(0.0 <= value <= LONGEST_WAIT_S for value in hint.resets_s.values())
    assert hint.retry_after_s is None or 0.0 <= hint.retry_after_s <= LONGEST_WAIT_S
