"""What people are told while a claim waits: its place, how long it takes, and why."""

from __future__ import annotations

import pytest

from tests.domain.pool import Pool, pool
from workspaces.domain import retry_budget
from workspaces.domain.quotas import Use
from workspaces.domain.waits import expected_wait_s, held_back_s, in_order, place_of, why

NOON = 1_800_000_000.0
SIZE = (900, 100)


def lines(here: Pool):
    users = {here.claims[task].user for task in here.waiting}
    return [
        (here.share(user), [here.claims[task] for task in here.waiting if here.claims[task].user == user])
        for user in users
    ]


def waiting_pool() -> Pool:
    here = pool(concurrent_calls=1)
    here.ask(0, 0, SIZE, NOON)
    for task in range(1, 6):
        here.ask(1, task, SIZE, NOON + task)
    here.ask(2, 20, SIZE, NOON + 6)
    here.ask(2, 21, SIZE, NOON + 7, interactive=True)
    here.ask(3, 30, (9_000, 100), NOON + 8)
    return here


def test_the_order_that_is_told_is_the_order_in_which_they_go():
    here = waiting_pool()
    told = [claim.task for claim in in_order(lines(here), here.rules.limits)]
    here.state.typical_output = 1.0  # so that each uses what it expects
    gone, flying = [], 0
    while here.waiting:
        here.end(flying, NOON + 10, here.claims[flying].use)
        (claim,) = here.pump(NOON + 10)
        flying = claim.task
        gone.append(flying)
    assert told == gone


def test_a_place_counts_what_goes_before_it_and_itself():
    here = waiting_pool()
    order = [claim.task for claim in in_order(lines(here), here.rules.limits)]
    place = place_of(order[2], lines(here), here.rules.limits)
    assert place is not None
    assert place.number == 3
    assert place.ahead == Use(
        3, *(sum(getattr(here.claims[task], name) for task in order[:3]) for name in ("input_tokens", "output_tokens"))
    )
    assert place_of(4_711, lines(here), here.rules.limits) is None


@pytest.mark.parametrize("ahead", [1, 4, 30])
def test_the_expected_wait_for_requests_is_what_it_then_takes(ahead):
    here = pool(requests_per_minute=10)
    for number in range(10):
        here.ask(1, number, (10, 0), NOON + 3 * number)
        here.end(number, NOON + 3 * number, Use(1, 10, 0))
    now = NOON + 30
    expected = expected_wait_s(here.state, here.rules.limits, Use(ahead, 10 * ahead, 0), now)
    for task in range(100, 100 + ahead):
        here.ask(2, task, (10, 0), now)
    while here.waiting:
        now += 1
        for claim in here.pump(now):
            here.end(claim.task, now, Use(1, 10, 0))
    assert expected == pytest.approx(now - (NOON + 30), rel=0.1, abs=4)


def test_the_expected_wait_for_a_place_in_flight_follows_how_long_calls_take():
    here = pool(concurrent_calls=2)
    for task in range(40):
        here.ask(1, task, SIZE, NOON + 20 * task)
        here.end(task, NOON + 20 * task + 12, Use(1, *SIZE))
    here.ask(1, 100, SIZE, NOON + 1_000)
    here.ask(1, 101, SIZE, NOON + 1_000)
    assert expected_wait_s(here.state, here.rules.limits, Use(1, *SIZE), NOON + 1_000) == pytest.approx(6, rel=0.1)
    assert expected_wait_s(here.state, here.rules.limits, Use(6, 1, 1), NOON + 1_000) == pytest.approx(36, rel=0.1)


def test_with_room_nothing_is_waited_for():
    here = pool(requests_per_minute=10, input_tokens_per_minute=1_000, output_tokens_per_minute=10, tokens_per_day=9)
    assert expected_wait_s(here.state, here.rules.limits, Use(1, 5_000, 5_000), NOON) == 0.0, "it goes alone"


def test_a_day_that_is_used_up_is_waited_for_until_midnight():
    here = pool(tokens_per_day=1_000)
    here.ask(1, 1, SIZE, NOON)
    expected = expected_wait_s(here.state, here.rules.limits, Use(1, *SIZE), NOON)
    assert (NOON + expected) % 86_400 == 0


def test_a_refusal_and_an_open_circuit_are_waited_for():
    here = pool()
    here.ask(1, 1, SIZE, NOON)
    retry_budget.refused(here.state, here.rules.policy, 1, NOON, NOON, 40.0, here.random.random)
    assert held_back_s(here.state, NOON) == 40.0
    assert expected_wait_s(here.state, here.rules.limits, Use(1, *SIZE), NOON) >= 40.0
    retry_budget.trip(here.state, here.rules.policy, NOON, here.random.random)
    assert held_back_s(here.state, NOON + 41) >= 0.0


def told(here: Pool, task: int, now: float, **more: int) -> tuple[str, str]:
    wait = why(here.state, here.rules, here.claims[task], now, **more)
    return wait.reason, wait.words


def test_why_names_the_limit_and_when_it_frees():
    here = pool(requests_per_minute=2)
    for task in (1, 2, 3):
        here.ask(1, task, SIZE, NOON)
    assert told(here, 3, NOON + 10) == ("requests_per_minute", "2 of 2 requests a minute are used; room in 52 s")
    here = pool(input_tokens_per_minute=1_500)
    here.ask(1, 1, SIZE, NOON)
    here.ask(1, 2, SIZE, NOON)
    reason, words = told(here, 2, NOON)
    assert reason == "input_tokens_per_minute"
    assert words == "900 of 1,500 input tokens a minute are used and it needs 900; room in 62 s"
    here = pool(output_tokens_per_minute=150)
    here.ask(1, 1, SIZE, NOON)
    here.ask(1, 2, SIZE, NOON)
    assert told(here, 2, NOON) == (
        "output_tokens_per_minute",
        "0 of 150 output tokens a minute are used and 100 held by calls in flight; it may need 100",
    )
    here = pool(concurrent_calls=1)
    here.ask(1, 1, SIZE, NOON)
    here.ask(1, 2, SIZE, NOON)
    assert told(here, 2, NOON) == ("concurrent_calls", "the one call at a time is in flight")
    assert told(here, 2, NOON, number=3)[1] == "2 before it; the one call at a time is in flight"
    here = pool(tokens_per_day=1_500)
    here.ask(1, 1, SIZE, NOON)
    here.ask(1, 2, SIZE, NOON)
    reason, words = told(here, 2, NOON)
    assert reason == "tokens_per_day"
    assert words.startswith("1,000 of 1,500 tokens a day are used or held; the next day begins in ")


def test_why_tells_of_refusals_the_circuit_and_failed_calls():
    here = pool()
    here.ask(1, 1, SIZE, NOON)
    retry_budget.refused(here.state, here.rules.policy, 1, NOON, NOON, 40.0, here.random.random)
    here.ask(2, 2, SIZE, NOON)
    assert told(here, 2, NOON) == ("blocked", "the provider turned calls away; nothing is sent to it for 40 s")
    assert told(here, 2, NOON + 41) == ("ramp", "after refusals at most 1 at once, more with each answer")
    here.state.ramp, here.state.blocked_until = None, 0.0
    here.state.retry_tokens = 0.0
    here.claims[2].retry = True
    assert told(here, 2, NOON)[0] == "retry"
    retry_budget.trip(here.state, here.rules.policy, NOON, lambda: 1.0)
    assert told(here, 2, NOON) == ("circuit", "too many calls failed; one call tries again in 5 s")
    here.state.probe = 1
    assert "one call is trying" in told(here, 2, NOON + 6)[1]
    here.claims[2].not_before = NOON + 90
    assert told(here, 2, NOON + 6) == ("not_before", "its last call failed; next try in 84 s")
