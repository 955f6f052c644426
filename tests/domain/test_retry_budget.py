"""Retries are a share of successes, a refusal holds everybody, and one probe closes an open circuit."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.domain.pool import Pool, pool
from workspaces.domain import retry_budget
from workspaces.domain.fair_queue import may_be_sent, settle
from workspaces.domain.quotas import NOTHING, PoolState, Use
from workspaces.domain.retry_budget import USUAL, RetryPolicy, full_jitter_s

NOON = 1_800_000_000.0
SIZE = (900, 100)


def refuse(here: Pool, task: int, now: float, retry_after_s: float | None = None) -> None:
    claim = here.claims[task]
    retry_budget.refused(here.state, here.rules.policy, task, claim.granted_at, now, retry_after_s, here.random.random)
    settle(here.state, here.rules, here.share(claim.user), claim, Use(1, 0, 0), now)


def fail(here: Pool, task: int, now: float, attempt: int = 1) -> float:
    claim = here.claims[task]
    until = retry_budget.failed(here.state, here.rules.policy, task, attempt, now, here.random.random)
    settle(here.state, here.rules, here.share(claim.user), claim, Use(1, 900, 0), now)
    return until


def without_retries(here: Pool) -> Pool:
    here.state.retry_tokens = 0.0
    return here


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(st.booleans(), min_size=50, max_size=400), st.integers(0, 1_000))
def test_retries_are_bounded_by_successes(answers, seed):
    """Each call that fails is tried again until it is answered."""
    here, now = pool(), NOON
    here.random.seed(seed)
    successes = retries = openings = 0
    again = False
    for answered in answers:
        opened = here.state.circuit
        claim = here.ask(1, 1, SIZE, now, retry=again)
        while claim.granted_at is None:
            openings += opened != "open" and here.state.circuit == "open"
            opened = here.state.circuit
            now += 1
            here.pump(now)
        retries += again
        was = here.state.circuit
        if answered:
            successes += 1
            here.end(1, now, Use(1, *SIZE))
        else:
            fail(here, 1, now)
        openings += was != "open" and here.state.circuit == "open"
        again = not answered
        now += 1
    policy = here.rules.policy
    # a probe for each opening, and what its answer gives back
    assert retries <= policy.retry_cap + policy.retry_ratio * successes + openings * (1 + policy.retry_cap / 2)


def test_with_no_retry_left_the_circuit_opens_and_all_that_waits_stays():
    here = without_retries(pool())
    retry = here.ask(1, 1, SIZE, NOON, retry=True)
    first = here.ask(2, 2, SIZE, NOON)
    assert (here.state.circuit, retry.granted_at, first.granted_at) == ("open", None, None)
    assert here.pump(NOON + 1) == []


def test_a_retry_without_budget_waits_for_the_answers_of_others():
    here = without_retries(pool())
    for task in range(1, 16):
        here.ask(1, task, SIZE, NOON)
    retry = here.ask(2, 99, SIZE, NOON, retry=True)
    assert here.ask(3, 98, SIZE, NOON).granted_at == NOON, "others go on"
    assert (retry.granted_at, here.state.circuit) == (None, "closed")
    for task in range(1, 11):
        here.end(task, NOON + 1, Use(1, *SIZE))
    assert here.pump(NOON + 1) == [retry]


def test_where_most_calls_fail_the_circuit_opens_though_some_are_in_flight():
    here = without_retries(pool())
    for task in range(1, 16):
        here.ask(1, task, SIZE, NOON)
    for task in range(1, 11):
        fail(here, task, NOON + 1)
    retry = here.ask(1, 1, SIZE, NOON + 1, retry=True)
    assert (retry.granted_at, here.state.circuit) == (None, "open")


def test_an_open_circuit_lets_exactly_one_probe_through():
    here = without_retries(pool())
    for task in range(1, 6):
        here.ask(task, task, SIZE, NOON, retry=True)
    opens_at = here.state.open_until
    assert here.pump(opens_at - 0.01) == []
    (probe,) = here.pump(opens_at)
    assert (here.state.circuit, here.state.probe) == ("half_open", probe.task)
    assert here.pump(opens_at + 100) == []
    here.end(probe.task, opens_at + 101, Use(1, *SIZE))
    assert here.state.circuit == "closed"
    assert here.pump(opens_at + 101), "and the others go on"


def test_a_failed_probe_opens_it_for_longer():
    here = without_retries(pool())
    here.ask(1, 1, SIZE, NOON, retry=True)
    now, rests = NOON, []
    for _ in range(5):
        rests.append(here.state.open_until - now)
        now = here.state.open_until
        (probe,) = here.pump(now)
        now += 1
        fail(here, probe.task, now)
        assert here.state.circuit == "open"
        here.ask(1, 1, SIZE, now, retry=True)
    for number, rest in enumerate(rests):
        assert 0.5 * USUAL.first_open_s * 2**number <= rest <= USUAL.first_open_s * 2**number


def test_a_probe_that_was_never_sent_makes_room_for_another():
    here = without_retries(pool())
    here.ask(1, 1, SIZE, NOON, retry=True)
    other = here.ask(2, 2, SIZE, NOON)
    now = here.state.open_until
    (probe,) = here.pump(now)
    retry_budget.gave_up(here.state, probe.task)
    settle(here.state, here.rules, here.share(1), probe, NOTHING, now)
    assert here.pump(now) == [other]


def test_an_answer_to_a_call_from_before_does_not_close_the_circuit():
    here = without_retries(pool())
    here.ask(1, 1, SIZE, NOON)
    here.state.failing = 0.9
    here.ask(2, 2, SIZE, NOON, retry=True)
    assert here.state.circuit == "open"
    here.end(1, NOON + 1, Use(1, *SIZE))
    assert here.state.circuit == "open"


def test_retry_after_holds_all_users_until_then():
    here = pool()
    here.ask(1, 1, SIZE, NOON)
    refuse(here, 1, NOON + 1, retry_after_s=30.0)
    others = [here.ask(user, user, SIZE, NOON + 2) for user in (2, 3)]
    assert here.pump(NOON + 30.9) == []
    assert sorted(claim.task for claim in here.pump(NOON + 31)) == [2] or here.pump(NOON + 31)
    assert others[0].granted_at is not None


def test_the_longest_retry_after_holds():
    here = pool()
    for task in (1, 2):
        here.ask(task, task, SIZE, NOON)
    refuse(here, 1, NOON + 1, retry_after_s=30.0)
    refuse(here, 2, NOON + 2, retry_after_s=5.0)
    assert here.state.blocked_until == NOON + 31
    assert here.state.refusals == 1, "both were sent before either answer"


def test_a_retry_after_beyond_all_reason_holds_for_a_day():
    state = PoolState()
    retry_budget.refused(state, USUAL, 1, NOON, NOON, 1e12, random.Random(1).random)
    assert state.blocked_until == NOON + 86_400


def test_without_retry_after_the_bound_doubles_with_each_refusal_in_a_row():
    state, now = PoolState(), NOON
    for number in range(8):
        retry_budget.refused(state, USUAL, 1, now, now, None, lambda: 1.0)
        assert state.blocked_until - now == min(60.0, 2.0**number)
        now = state.blocked_until
    retry_budget.succeeded(state, USUAL, 1)
    retry_budget.refused(state, USUAL, 1, now, now, None, lambda: 1.0)
    assert state.blocked_until - now == 1.0


def test_a_failure_of_its_own_holds_only_that_call():
    here = pool()
    here.ask(1, 1, SIZE, NOON)
    until = fail(here, 1, NOON, attempt=3)
    assert NOON < until <= NOON + 4
    here.ask(1, 1, SIZE, NOON, retry=True, not_before=until)
    assert here.ask(2, 2, SIZE, NOON).granted_at == NOON
    assert [claim.task for claim in here.pump(until)] == [1]
    assert here.state.retry_tokens == 9.0


def test_jitter_is_full():
    drawn = [full_jitter_s(4, USUAL, random.Random(seed).random) for seed in range(300)]
    assert min(drawn) < 1 < 7 < max(drawn) < 8


def test_after_a_refusal_fewer_go_at_once_and_more_with_each_answer():
    here = pool()
    for task in range(1, 17):
        here.ask(task, task, SIZE, NOON)
    for task in range(1, 17):
        refuse(here, task, NOON + 1, retry_after_s=1.0)
    for task in range(1, 17):
        here.ask(task, task, SIZE, NOON + 1)
    now = NOON + 2
    rounds = []
    while here.waiting:
        granted = here.pump(now)
        rounds.append(len(granted))
        now += 1
        for claim in granted:
            here.end(claim.task, now, Use(1, *SIZE))
    assert rounds[0] == 8
    assert rounds[1] == 8
    assert here.state.ramp is None, "nothing waits for it any more"


def test_by_hand_a_pool_sends_again_at_once():
    here = without_retries(pool())
    here.ask(1, 1, SIZE, NOON, retry=True)
    assert here.pump(NOON) == []
    retry_budget.unblock(here.state)
    assert [claim.task for claim in here.pump(NOON)] == [1]


def test_a_policy_keeps_only_what_differs():
    policy = RetryPolicy.from_json({"retry_ratio": 0.3, "nonsense": 1, "retry_cap": 10})
    assert policy == RetryPolicy(retry_ratio=0.3)
    assert policy.as_json() == {"retry_ratio": 0.3}
    assert RetryPolicy.from_json({}) == USUAL


@pytest.mark.parametrize("retry_after_s", [0.0, -5.0])
def test_a_retry_after_of_nothing_still_waits_a_moment(retry_after_s):
    state = PoolState()
    retry_budget.refused(state, USUAL, 1, NOON, NOON, retry_after_s, random.Random(1).random)
    assert state.blocked_until > NOON


def test_what_was_granted_and_not_sent_yet_waits_for_a_refusal_too():
    here = pool()
    granted = here.ask(2, 2, SIZE, NOON)
    here.ask(1, 1, SIZE, NOON)
    assert may_be_sent(here.state, granted, NOON)
    refuse(here, 1, NOON + 1, retry_after_s=30.0)
    assert not may_be_sent(here.state, granted, NOON + 2)
    assert may_be_sent(here.state, granted, NOON + 31)


def test_the_probe_may_be_sent_though_nobody_else_may():
    here = without_retries(pool())
    here.ask(1, 1, SIZE, NOON, retry=True)
    (probe,) = here.pump(here.state.open_until)
    assert may_be_sent(here.state, probe, here.state.open_until + 1)


def test_answers_to_calls_from_before_a_refusal_let_no_more_through():
    here = pool()
    for task in range(1, 5):
        here.ask(task, task, SIZE, NOON)
    refuse(here, 1, NOON + 1, retry_after_s=1.0)
    before = here.state.ramp
    retry_budget.succeeded(here.state, here.rules.policy, 2, NOON)
    assert here.state.ramp == before
    retry_budget.succeeded(here.state, here.rules.policy, 2, NOON + 2)
    assert here.state.ramp > before
