"""Whose turn it is: fair by weight between users and between each one's tasks, and nobody waits for ever."""

from __future__ import annotations

import itertools
from collections import Counter, deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.domain.pool import Pool, pool
from workspaces.domain.fair_queue import reweigh
from workspaces.domain.quotas import NOTHING, Use

MANY = settings(max_examples=40, deadline=None, derandomize=True)
NOON = 1_800_000_000.0
SIZE = (900, 100)


def one_at_a_time() -> Pool:
    """A pool with one call in flight, which is user 0's: whoever asks now waits."""
    here = pool(concurrent_calls=1)
    here.ask(0, 0, SIZE, NOON)
    return here


def next_turn(here: Pool, now: float, used: Use | None = None):
    """Ends the call in flight as expected (or as told) and returns the claim that goes next."""
    (flying,) = [claim for claim in here.claims.values() if claim.granted_at is not None]
    here.end(flying.task, now, used or flying.use)
    granted = here.pump(now)
    return granted[0] if granted else None


def served(here: Pool, turns: int, tokens=lambda claim: SIZE, ends_with=lambda claim: None) -> Counter:
    """Tokens by (user, task) over so many turns; each task asks again as soon as its call has ended."""
    got: Counter = Counter()
    now, last = NOON, None
    for _ in range(turns):
        now += 1
        claim = next_turn(here, now, ends_with(last) if last is not None else None)
        if last is not None:
            here.ask(last.user, last.task, tokens(last), now)
        used = ends_with(claim) or claim.use
        got[claim.user, claim.task] += used.input_tokens + used.output_tokens
        last = claim
    return got


def by_user(got: Counter) -> Counter:
    users: Counter = Counter()
    for (user, _), tokens in got.items():
        users[user] += tokens
    return users


def test_one_task_is_not_starved_by_forty_of_another_user():
    here = one_at_a_time()
    for task in range(1, 41):
        here.ask(1, task, SIZE, NOON)
    here.ask(2, 99, SIZE, NOON + 1)
    order = [next_turn(here, NOON + 2 + number).user for number in range(3)]
    assert 2 in order[:2], "it does not wait for the forty"


def test_users_with_unequal_numbers_of_tasks_get_equal_parts():
    here = one_at_a_time()
    for user, tasks in ((1, 1), (2, 3), (3, 12)):
        for task in range(tasks):
            here.ask(user, 100 * user + task, SIZE, NOON)
    got = by_user(served(here, 300))
    # a user with one task asks again only when its call has ended, and misses a turn now and then
    assert got[2] == pytest.approx(got[3], rel=0.05)
    assert got[1] == pytest.approx(got[3], rel=0.05)


def test_users_with_calls_of_unequal_size_get_equal_parts():
    here = one_at_a_time()
    sizes = {1: (90, 10), 2: (2_700, 300), 3: (18_000, 2_000)}
    for user, task in itertools.product(sizes, range(4)):
        here.ask(user, 100 * user + task, sizes[user], NOON)
    got = by_user(served(here, 3_000, tokens=lambda claim: sizes[claim.user]))
    assert min(got[1], got[2], got[3]) > 0.9 * max(got[1], got[2], got[3])


@pytest.mark.parametrize("weight", [0.25, 3.0])
def test_a_weight_is_a_part(weight):
    here = one_at_a_time()
    here.share(1).weight = weight
    for user, task in itertools.product((1, 2), range(5)):
        here.ask(user, 10 * user + task, SIZE, NOON)
    got = by_user(served(here, 400))
    assert got[1] / got[2] == pytest.approx(weight, rel=0.1)


def test_estimates_far_above_what_is_used_leave_the_parts_equal():
    """The virtual time must not run ahead: who always waits would pass those who come and go."""
    here = one_at_a_time()
    for task in range(10):
        here.ask(1, task + 1, (900, 60_000), NOON)
    for user in range(2, 12):
        here.ask(user, 100 + user, (900, 60_000), NOON)
    got = by_user(served(here, 600, tokens=lambda _: (900, 60_000), ends_with=lambda _: Use(1, 900, 100)))
    others = [got[user] for user in range(2, 12)]
    assert got[1] < 1.25 * max(others)
    assert min(others) > 0.8 * got[1]


def test_newcomers_without_end_overtake_nobody_for_ever():
    here = one_at_a_time()
    for task in range(1, 30):
        here.ask(1, task, SIZE, NOON)  # used a lot and wants more
    for number in range(10):
        next_turn(here, NOON + number)
    users = itertools.count(1_000)
    seen = Counter()
    for turn in range(200):
        newcomer = next(users)
        here.ask(newcomer, newcomer, SIZE, NOON + 20 + turn)
        seen[next_turn(here, NOON + 20 + turn).user == 1] += 1
    assert seen[True] >= 5, "as many as any of those who wait beside it"


@MANY
@given(st.lists(st.tuples(st.integers(1, 5), st.integers(1, 5_000)), min_size=2, max_size=40))
def test_whoever_waits_comes_to_its_turn(asked):
    """Of n claims that wait, each is granted within n turns and what those before it may fetch meanwhile."""
    here = one_at_a_time()
    for task, (user, tokens) in enumerate(asked, start=1):
        here.ask(user, task, (tokens, 0), NOON)
    waited = set(here.waiting)
    fresh = itertools.count(1_000)
    for turn in range(40 * len(asked) + 400):
        if not waited:
            return
        user = turn % 3 + 10
        here.ask(user, next(fresh), (2_500, 0), NOON + turn)
        waited.discard(next_turn(here, NOON + turn).task)
    raise AssertionError(f"{len(waited)} never came to their turn")


def test_who_asks_again_and_again_is_not_passed_by_who_always_waits():
    """Nine users with one task each beside one with forty: a tenth each, though the nine have nothing waiting while
    their call is in flight."""
    here = pool(concurrent_calls=4)
    for task in range(40):
        here.ask(1, task, SIZE, NOON)
    for user in range(2, 11):
        here.ask(user, 100 * user, SIZE, NOON)
    got, now = Counter(), NOON
    flying = deque(claim for claim in here.claims.values() if claim.granted_at is not None)
    for _ in range(600):
        now += 1
        ended = flying.popleft()
        here.end(ended.task, now, ended.use)
        flying.extend(here.pump(now))
        flying.extend([ended] if here.ask(ended.user, ended.task, SIZE, now).granted_at else [])
        got[ended.user] += 1
    assert max(got.values()) < 1.3 * min(got.values())


def test_interactive_goes_first_among_its_own_users_only():
    here = one_at_a_time()
    for task in (1, 2, 3):
        here.ask(1, task, SIZE, NOON + task)
    here.ask(2, 20, SIZE, NOON + 4)
    here.ask(1, 5, SIZE, NOON + 5, interactive=True)
    order = [next_turn(here, NOON + 6 + number).task for number in range(4)]
    assert order.index(5) < min(order.index(task) for task in (1, 2, 3) if task in order)
    assert 20 in order[:2], "the other user's turn is not moved by it"


def test_a_users_tasks_share_by_tokens_and_new_ones_do_not_starve_old_ones():
    here = one_at_a_time()
    here.ask(1, 1, (9_000, 1_000), NOON)
    here.ask(1, 2, SIZE, NOON)
    here.ask(1, 3, SIZE, NOON)
    sizes = {1: (9_000, 1_000)}
    got = served(here, 400, tokens=lambda claim: sizes.get(claim.task, SIZE))
    parts = [got[1, task] for task in (1, 2, 3)]
    assert min(parts) > 0.75 * max(parts)
    fresh = itertools.count(100)
    waits = set(here.waiting)
    for turn in range(200):
        here.ask(1, next(fresh), SIZE, NOON + 1_000 + turn)
        waits.discard(next_turn(here, NOON + 1_000 + turn).task)
        if not waits:
            return
    raise AssertionError("an old task never came to its turn")


def test_nothing_passes_the_head_of_the_queue():
    here = pool(input_tokens_per_minute=1_000)
    here.ask(1, 1, (600, 0), NOON)
    large = here.ask(2, 2, (800, 0), NOON + 1)
    small = here.ask(3, 3, (10, 0), NOON + 2)
    assert (large.granted_at, small.granted_at) == (None, None), "there would be room for the small one"
    assert here.pump(NOON + 63) == [large]
    assert here.pump(NOON + 70) == [small]


def test_a_claim_whose_time_has_not_come_holds_nobody_up():
    here = one_at_a_time()
    later = here.ask(1, 1, SIZE, NOON, not_before=NOON + 50)
    soon = here.ask(2, 2, SIZE, NOON + 1)
    assert next_turn(here, NOON + 2) is soon
    assert next_turn(here, NOON + 3) is None
    assert here.pump(NOON + 51) == [later]


def test_cancelled_claims_cost_their_user_nothing_and_win_it_nothing():
    here = one_at_a_time()
    for task in range(1, 50):
        here.ask(1, task, SIZE, NOON)
    before = here.share(1).finish
    for task in range(1, 50):
        here.cancel(task, NOON + 1)
    assert (here.share(1).finish, here.share(1).open, here.state.waiting) == (before, 0, 0)
    here.ask(2, 200, SIZE, NOON + 2)
    here.ask(1, 300, SIZE, NOON + 3)
    assert {next_turn(here, NOON + 4).user, next_turn(here, NOON + 5).user} == {1, 2}


def test_what_nobody_else_wanted_costs_nothing():
    here = one_at_a_time()
    for task in range(1, 60):
        here.ask(1, task, SIZE, NOON)
    for turn in range(30):
        next_turn(here, NOON + 1 + turn)
    for task in range(100, 140):
        here.ask(2, task, SIZE, NOON + 40)
    order = [next_turn(here, NOON + 41).user for _ in range(20)]
    assert order.count(1) == pytest.approx(10, abs=1)
    assert 2 in order[:2]


def test_who_is_ahead_of_others_waits_for_it_and_idle_minutes_forgive():
    def lead_after(idle_s: float) -> float:
        here = pool(input_tokens_per_minute=100_000)
        here.ask(2, 10, (1, 0), NOON)
        here.ask(1, 1, (80_000, 0), NOON + 7)
        here.end(1, NOON + 8, here.claims[1].use)
        virtual = here.state.virtual
        here.ask(1, 2, (1, 0), NOON + 8 + idle_s)
        return here.claims[2].tag - virtual

    assert lead_after(0) > 70_000
    assert lead_after(60) == pytest.approx(lead_after(0) / 2)
    assert lead_after(3_600) < 1


def test_a_weight_changed_while_claims_are_open_leaves_no_weight_behind():
    here = pool()
    here.ask(1, 1, SIZE, NOON)
    here.ask(2, 2, SIZE, NOON)
    reweigh(here.state, here.share(1), 5.0)
    assert here.state.active_weight == 6.0
    here.end(1, NOON + 1, NOTHING)
    assert here.state.active_weight == 1.0


def test_an_unsent_call_is_given_back_to_user_and_task():
    here = one_at_a_time()
    claim = here.ask(1, 1, SIZE, NOON)
    next_turn(here, NOON + 1)
    was = claim.tag
    assert here.share(1).finish > was
    here.end(1, NOON + 2, NOTHING)
    assert (here.share(1).finish, claim.task_finish) == (was, 0)
