"""Budgets as pure rules: periods, room, reservations in any order, thresholds, words."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workspaces.domain.budget_words import no_room_words, usd_words
from workspaces.domain.budgets import (
    GIVEN_BACK,
    NOTHING,
    Amount,
    Figures,
    Need,
    first_with_room,
    need_of_call,
    never_told,
    passed,
    replied,
    span_of,
)
from workspaces.domain.states import BudgetPeriod

SET = datetime(2026, 11, 20, 9, 30, tzinfo=UTC)
ORIGIN = (17, datetime(2026, 11, 1, tzinfo=UTC))


def at_usd_a_token(tokens_in: int, tokens_out: int) -> Decimal:
    return Decimal(tokens_in + tokens_out) / 100


@pytest.mark.parametrize(
    ("period", "at", "key", "starts", "ends"),
    [
        (BudgetPeriod.DAY, "2026-12-31T23:59:59+00:00", "2026-12-31", "2026-12-31", "2027-01-01"),
        (BudgetPeriod.DAY, "2027-01-01T01:00:00+02:00", "2026-12-31", "2026-12-31", "2027-01-01"),
        (BudgetPeriod.MONTH, "2026-12-31T23:59:59+00:00", "2026-12", "2026-12-01", "2027-01-01"),
        (BudgetPeriod.MONTH, "2028-02-29T12:00:00+00:00", "2028-02", "2028-02-01", "2028-03-01"),
        (BudgetPeriod.TOTAL, "2028-02-29T12:00:00+00:00", "total", "2026-11-20T09:30", None),
        (BudgetPeriod.TASK, "2028-02-29T12:00:00+00:00", "task:17", "2026-11-01", None),
    ],
)
def test_periods_are_of_utc_and_follow_one_another(
    period: BudgetPeriod, at: str, key: str, starts: str, ends: str | None
) -> None:
    span = span_of(period, datetime.fromisoformat(at), since=SET, origin=ORIGIN)
    assert span is not None
    assert (span.key, span.starts_at) == (key, datetime.fromisoformat(starts).replace(tzinfo=UTC))
    assert span.ends_at == (datetime.fromisoformat(ends).replace(tzinfo=UTC) if ends else None)
    assert span.holds(datetime.fromisoformat(at))
    assert span.ends_at is None or not span.holds(span.ends_at)


def test_a_budget_of_each_task_by_itself_does_not_bind_what_is_of_no_task() -> None:
    assert span_of(BudgetPeriod.TASK, SET, since=SET, origin=None) is None


@settings(max_examples=100, derandomize=True, deadline=None)
@given(
    limit=st.integers(100, 600),
    moves=st.lists(
        st.tuples(st.integers(0, 7), st.integers(40, 90), st.integers(0, 20), st.integers(0, 50)), max_size=40
    ),
)
def test_whatever_the_order_a_limit_is_passed_by_what_one_estimate_missed_at_most(
    limit: int, moves: list[tuple[int, int, int, int]]
) -> None:
    """Each move lets a call in, answers one of those that run, or gives one up. No prompt is beyond its margin."""
    figures = Figures(at_usd_a_token(limit, 0), limit)
    running: list[tuple[Need, int, int, int]] = []  # its need, and what it was expected to take
    missed: dict[int, int] = {}  # by call: tokens beyond the estimate
    number = 0
    for kind, tokens_in, tokens_out, more in moves:
        if kind <= 3:
            need = need_of_call(tokens_in, tokens_out, at_usd_a_token)
            if figures.has_room(need.expected):
                figures = figures.reserve(need.held)
                running.append((need, number, tokens_in, tokens_out))
                number += 1
        elif running:
            need, which, expected_in, expected_out = running.pop(more % len(running))
            if kind == 4:
                outcome = GIVEN_BACK
            elif kind == 5:
                outcome = never_told(need.held)
                missed[which] = need.held.tokens - need.expected.tokens
            else:
                took = min(expected_in + more, expected_in * 3 // 2) + expected_out
                missed[which] = max(0, took - expected_in - expected_out)
                outcome = replied(need.held, usd=at_usd_a_token(took, 0), tokens=took, price_known=True)
            figures = figures.settle(need.held, outcome)
        over = figures.spent.tokens + figures.assumed.tokens - limit
        assert over <= max(missed.values(), default=0)
        assert figures.reserved.tokens == sum(need.held.tokens for need, *_ in running)
        assert figures.reserved.usd == at_usd_a_token(figures.reserved.tokens, 0)
    for need, *_ in running:
        figures = figures.settle(need.held, GIVEN_BACK)
    assert figures.reserved == NOTHING


def test_an_unknown_price_has_no_room_where_usd_are_limited_and_is_nothing_to_a_limit_of_tokens() -> None:
    unknown = Amount(None, 10)
    assert not Figures(Decimal(100), None).has_room(unknown)
    assert Figures(None, 10).has_room(unknown)
    assert not Figures(None, 9).has_room(unknown)


@pytest.mark.parametrize(
    ("usd", "tokens", "known", "assumed"),
    [
        ("0.30", 200, True, Amount(Decimal(0), 0)),
        ("0.30", None, True, Amount(Decimal(0), 250)),
        ("0.30", 200, False, Amount(Decimal("0.20"), 0)),
        ("0.90", 200, False, Amount(Decimal(0), 0)),
    ],
)
def test_what_a_reply_leaves_open_is_assumed_as_it_was_reserved(
    usd: str, tokens: int | None, known: bool, assumed: Amount
) -> None:
    outcome = replied(Amount(Decimal("0.50"), 250), usd=Decimal(usd), tokens=tokens, price_known=known)
    assert outcome.spent == Amount(Decimal(usd), tokens or 0)
    assert outcome.assumed == assumed


def test_thresholds_are_told_once_each() -> None:
    assert passed([80, 50, 95], Decimal("80"), []) == [50, 80]
    assert passed([80, 50, 95], Decimal("99"), [50, 80]) == [95]
    assert passed([80], Decimal("79.9"), []) == []


def test_no_more_are_woken_than_there_is_room_for() -> None:
    need = Need(Amount(Decimal(4), 0), Amount(Decimal(6), 0))
    accounts = {1: Figures(Decimal(11), None), 2: Figures(Decimal(100), None)}
    assert first_with_room([(7, need, [1, 2]), (8, need, [1]), (9, need, [1]), (10, need, [2])], accounts) == [7, 8, 10]


def test_words_say_what_is_spent_what_is_asked_for_and_what_helps() -> None:
    figures = Figures(Decimal(10), None, Amount(Decimal("9.62"), 0), NOTHING, Amount(Decimal("0.31"), 0))
    need = Amount(Decimal("0.25"), 500)
    ends = datetime(2027, 1, 1, tzinfo=UTC)
    said = no_room_words("the budget of workspace Papers for 2026-12", figures, need, ends, told=True)
    assert "$9.62 of $10.00 spent, $0.31 reserved for what runs now, and it may need up to $0.25" in said
    assert "gives back enough" in said
    hidden = no_room_words("the site's budget for 2026-12", figures, need, ends, told=False)
    assert "9.62" not in hidden
    assert "10.00" not in hidden
    assert "whole limit" in no_room_words("x", figures, Amount(Decimal(11), 0), ends, told=True)
    spent = Figures(Decimal(10), None, Amount(Decimal(10), 0))
    assert "from 2027-01-01 00:00 UTC" in no_room_words("x", spent, need, ends, told=True)


@pytest.mark.parametrize(
    ("usd", "said"),
    [("0", "$0"), ("12.5", "$12.50"), ("1234.5", "$1,234.50"), ("0.03421", "$0.0342"), ("0.000003", "$0.000003")],
)
def test_small_sums_keep_enough_places(usd: str, said: str) -> None:
    assert usd_words(Decimal(usd)) == said
