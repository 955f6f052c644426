"""What a pool's limits promise: no minute above them, whole refunds, a day's end, and a state that fits a row."""

from __future__ import annotations

import heapq
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.domain.pool import pool
from workspaces.domain.quotas import NOTHING, WINDOW_S, Limits, PoolState, Use, cost_of

MANY = settings(max_examples=60, deadline=None, derandomize=True)
NOON = 1_800_000_000.0

CALLS = st.lists(
    st.tuples(
        st.floats(0, 12),  # after the one before
        st.integers(1, 4),  # user
        st.integers(1, 900),  # input expected
        st.integers(1, 400),  # output at most
        st.floats(0.1, 90),  # duration
        st.floats(0.4, 1.5),  # input really, of what was expected
        st.floats(0, 1),  # output really, of the most
    ),
    min_size=5,
    max_size=60,
)


@MANY
@given(CALLS)
def test_no_minute_is_above_a_limit_by_more_than_the_estimates_missed(calls):
    limits = Limits(requests_per_minute=9, input_tokens_per_minute=2_500, output_tokens_per_minute=1_000)
    here = pool(**limits.as_json())
    wishes, ends, now = [], [], NOON
    for number, (gap, *call) in enumerate(calls):
        now += gap
        wishes.append((now, number, call))
    now, begun = NOON, {}
    spans = []  # granted, ended, input expected, input really, output really

    def note(now):
        for task, claim in here.claims.items():
            if claim.granted_at is not None and task not in begun:
                begun[task] = now
                _, expected, _, duration, missed, made = calls[task][1:]
                heapq.heappush(ends, (now + duration, task, int(expected * missed), int(claim.output_tokens * made)))

    while wishes or ends or here.waiting:
        now = min([item[0][0] for item in (wishes, ends) if item] + [now + 1] * bool(here.waiting))
        if wishes and wishes[0][0] <= now:
            _, number, (user, expected, most, *_) = wishes.pop(0)
            here.ask(user, number, (expected, most), now)
        while ends and ends[0][0] <= now:
            _, task, used, made = heapq.heappop(ends)
            spans.append((begun[task], now, here.claims[task].input_tokens, used, made))
            here.end(task, now, Use(1, used, made))
        here.pump(now)
        note(now)
    assert len(spans) == len(calls), "each call came to its turn"
    for start, *_ in spans:
        inside = [span for span in spans if start <= span[0] < start + WINDOW_S]
        assert len(inside) <= 9
        missed = sum(max(0, used - expected) for _, _, expected, used, _ in inside)
        assert sum(used for _, _, _, used, _ in inside) <= 2_500 + missed
    for _, end, *_ in spans:
        inside = [span for span in spans if end - WINDOW_S < span[1] <= end]
        assert sum(made for *_, made in inside) <= 1_000
    assert (here.state.in_flight, here.state.held_output, here.state.waiting) == (0, 0, 0)


def test_what_was_held_and_not_used_is_free_at_once():
    here = pool(input_tokens_per_minute=1_000, output_tokens_per_minute=1_000)
    here.ask(1, 1, (900, 900), NOON)
    waits = here.ask(2, 2, (500, 500), NOON + 1)
    assert waits.granted_at is None
    here.end(1, NOON + 7, Use(1, 400, 20))
    assert here.pump(NOON + 7) == [waits]


def test_a_call_that_was_never_sent_leaves_nothing():
    here = pool(requests_per_minute=1, tokens_per_day=1_000)
    here.ask(1, 1, (900, 100), NOON)
    here.end(1, NOON + 5, NOTHING)
    here.state.forget(NOON + 5)
    state = here.state
    assert (state.requests, state.input_tokens, state.output_tokens, state.day_tokens) == (0, 0, 0, 0)
    assert here.ask(2, 2, (900, 100), NOON + 5).granted_at == NOON + 5


def test_of_a_call_whose_end_nobody_knows_all_counts_that_was_held():
    here = pool(output_tokens_per_minute=1_000)
    here.ask(1, 1, (10, 800), NOON)
    here.end(1, NOON + 200, None)
    assert here.state.output_tokens == 800
    assert here.ask(2, 2, (10, 300), NOON + 201).granted_at is None


def test_a_call_larger_than_a_whole_limit_goes_alone():
    here = pool(input_tokens_per_minute=1_000, output_tokens_per_minute=500)
    here.ask(1, 1, (10, 10), NOON)
    giant = here.ask(2, 2, (5_000, 9_000), NOON + 1)
    assert giant.granted_at is None
    here.end(1, NOON + 2, Use(1, 10, 10))
    assert here.pump(NOON + 30) == []
    assert here.pump(NOON + 64) == [giant]
    assert here.ask(3, 3, (1, 1), NOON + 65).granted_at is None, "nothing goes beside it"


def test_calls_at_once_are_counted_from_grant_to_end():
    here = pool(concurrent_calls=2)
    first, second, third = (here.ask(user, user, (10, 10), NOON) for user in (1, 2, 3))
    assert [claim.granted_at for claim in (first, second, third)] == [NOON, NOON, None]
    here.end(1, NOON + 9, Use(1, 10, 10))
    assert here.pump(NOON + 9) == [third]


def test_half_of_a_minute_goes_at_once_and_the_rest_evenly_where_others_are_active():
    here = pool(requests_per_minute=60)
    here.ask(1, 0, (1, 0), NOON)
    for task in range(1, 90):
        here.ask(2, task, (1, 0), NOON)
    granted = [1 + len(here.pump(NOON + second)) for second in range(0, 120, 2)]
    at_once = sum(claim.granted_at == NOON for claim in here.claims.values())
    assert at_once == 30
    assert max(granted[1:]) <= 9
    late = here.ask(3, 900, (1, 0), NOON + 121)
    here.pump(NOON + 124)
    assert late.granted_at is not None


def test_who_is_alone_may_use_a_whole_minute_at_once():
    here = pool(requests_per_minute=60)
    for task in range(61):
        here.ask(1, task, (1, 0), NOON)
    assert sum(claim.granted_at == NOON for claim in here.claims.values()) == 60


def test_a_day_ends_at_midnight_utc():
    here = pool(tokens_per_day=1_000)
    evening = NOON - NOON % 86_400 + 86_000
    here.ask(1, 1, (500, 100), evening)
    here.end(1, evening + 1, Use(1, 500, 100))
    waits = here.ask(1, 2, (300, 200), evening + 2)
    assert waits.granted_at is None
    assert here.pump(evening + 399) == []
    assert here.pump(evening + 401) == [waits]


def test_without_limits_nothing_waits():
    here = pool()
    for number in range(500):
        assert here.ask(number % 7, number, (100_000, 100_000), NOON).granted_at == NOON


def test_the_state_is_small_and_comes_back_as_it_was():
    here = pool(requests_per_minute=100_000)
    for number in range(600):
        here.ask(number, number, (123_456, 65_536), NOON + number * 0.1)
        if number % 2:
            here.end(number, NOON + number * 0.1, Use(1, 123_000, 54_321))
    state = here.state
    state.circuit, state.probe, state.ramp = "half_open", 123_456_789, 12.3456789
    text = json.dumps(state.as_json())
    assert len(text) < 2_000
    again = PoolState.from_json(json.loads(text))
    assert again.as_json() == state.as_json()
    assert (again.requests, again.input_tokens, again.output_tokens) == (600, 600 * 123_456 - 300 * 456, 300 * 54_321)
    assert PoolState.from_json({}) == PoolState()


def test_what_people_set_never_goes_above_what_the_provider_says():
    by_hand = Limits.from_json({"requests_per_minute": 100, "concurrent_calls": 4, "nonsense": 7, "tokens_per_day": 0})
    learned = Limits(requests_per_minute=60, input_tokens_per_minute=1_000)
    both = by_hand.within(learned)
    assert both == Limits(requests_per_minute=60, concurrent_calls=4, input_tokens_per_minute=1_000)
    assert both
    assert not Limits()


@pytest.mark.parametrize(
    ("limits", "use", "cost"),
    [
        (Limits(), Use(1, 70, 30), 100),
        (Limits(requests_per_minute=10), Use(1, 70, 30), 1_000),
        (Limits(input_tokens_per_minute=1_000, output_tokens_per_minute=100), Use(1, 500, 10), 550),
        (Limits(input_tokens_per_minute=1_000, output_tokens_per_minute=100), Use(1, 100, 50), 550),
        (Limits(requests_per_minute=2, input_tokens_per_minute=1_000), Use(1, 1, 1), 500),
    ],
)
def test_a_call_costs_its_part_of_the_scarcest(limits, use, cost):
    assert cost_of(use, limits) == pytest.approx(cost)
