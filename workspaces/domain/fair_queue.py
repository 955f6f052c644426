"""Whose turn it is at a pool: fair between users by their weights, then between the tasks of each. Pure.

Start-time fair queueing (Goyal, Vin, Cheng, SIGCOMM 1996): each user with waiting claims has one place, at
`Share.finish`; the lowest goes next and nothing passes it. A place that is taken moves the user's next one back by
cost / weight. The virtual time, at which newcomers stand, is that of the place taken last and moves on with each grant
by its part for each active user: so newcomers without end overtake nobody for ever. Were it faster, those who always
wait would pass those who come and go.
Which of a user's claims takes its place is chosen when it is granted: interactive ones first, then the task that had
least (the same queueing once more, at `task_finish`), then the oldest.

- What is in flight counts at once, by what such calls usually use, and is corrected when it ends.
- Who is ahead of the others stays so when it comes back, by a minute's worth of the pool at most and half as much for
  each idle minute. What nobody else wanted costs nothing.
- Nobody saves up: a place is never more than a minute's worth behind the virtual time.

`Queue` is what holds the waiting claims: rows of a database or heaps. Whoever calls holds the pool's lock.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from workspaces.domain.quotas import NOTHING, Claim, Limits, PoolState, Share, Use, cost_of, lacks, minute_worth
from workspaces.domain.retry_budget import (
    USUAL,
    Random,
    RetryPolicy,
    can_retry,
    holds_back,
    is_hopeless,
    sending,
    trip,
)

IDLE_HALF_LIFE_S = 60.0
MOST_AT_ONCE = 200  # grants in one go, so that no lock is held long; the next call goes on
RECENT = 0.1  # of a new figure in a running mean


class Queue(Protocol):
    def head(self, now: float, *, retries: bool) -> Claim | None:
        """The waiting claim that goes next, of those whose `not_before` has come, and without `retries` of those that
        are none: of the user with the lowest (share.finish, user) the one with the lowest `turn(claim)`."""

    def share(self, user: int) -> Share: ...

    def granted(self, claim: Claim, share: Share) -> None:
        """The claim waits no longer; both were changed."""


@dataclass(frozen=True, slots=True)
class Rules:
    limits: Limits
    policy: RetryPolicy = USUAL


def turn(claim: Claim) -> tuple[bool, float, float, int]:
    """The order of one user's waiting claims."""
    return (not claim.interactive, claim.task_finish, claim.queued_at, claim.task)


def enqueue(state: PoolState, rules: Rules, share: Share, claim: Claim, now: float, *, only: bool = True) -> None:
    """Opens a claim. `only`: none of the user's others waits here. It is granted by `take` or waits for `pump`."""
    if only:
        share.finish = _start(state, rules.limits, share, now)
    if share.open == 0:
        state.active += 1
        state.active_weight += share.weight
    share.open += 1
    share.used_at = now
    claim.queued_at, claim.granted_at = now, None
    claim.tag = share.finish
    claim.task_finish = max(claim.task_finish, share.clock)
    state.waiting += 1


def take(state: PoolState, rules: Rules, share: Share, claim: Claim, now: float, random: Random) -> str:
    """Grants an enqueued claim if it can go now: "" or why it waits. Only where no other waits (`state.waiting` is 1),
    so without a look at the queue; else it joins the queue, and `pump` says whether it was its turn."""
    if claim.not_before is not None and claim.not_before > now:
        return "not_before"
    if why := obstacle(state, rules, claim.use, now):
        return why
    if claim.retry and not can_retry(state):
        if not is_hopeless(state):
            return "retry"
        trip(state, rules.policy, now, random)
        return "circuit"
    _grant(state, rules, share, claim, now)
    return ""


def pump(
    state: PoolState, rules: Rules, queue: Queue, now: float, random: Random, *, most: int = MOST_AT_ONCE
) -> list[Claim]:
    """Grants what can go, strictly in order. To be called after a settlement and whenever time may have freed room."""
    granted: list[Claim] = []
    while state.waiting and len(granted) < most and not holds_back(state, now):
        claim = queue.head(now, retries=True)
        if claim is not None and claim.retry and not can_retry(state):
            if is_hopeless(state):
                trip(state, rules.policy, now, random)
                break
            claim = queue.head(now, retries=False)
        if claim is None or obstacle(state, rules, claim.use, now):
            break
        share = queue.share(claim.user)
        _grant(state, rules, share, claim, now)
        queue.granted(claim, share)
        granted.append(claim)
    return granted


def may_be_sent(state: PoolState, claim: Claim, now: float) -> bool:
    """Whether a granted claim's call may still be sent: nobody sends into a refusal that came meanwhile."""
    return state.probe == claim.task or not holds_back(state, now)


def obstacle(state: PoolState, rules: Rules, use: Use, now: float) -> str:
    """Why a call with this need cannot go now: the name of a limit, "blocked", "circuit", "ramp",
    "pace", or ""."""
    if why := holds_back(state, now):
        return why
    if state.ramp is not None and state.in_flight >= int(state.ramp):
        return "ramp"
    state.forget(now)
    return lacks(state, rules.limits, use, now)


def settle(state: PoolState, rules: Rules, share: Share, claim: Claim, actual: Use | None, now: float) -> None:
    """Ends a granted claim by what it really used. None: nobody knows, so all that was held counts as used.

    What became of the call (`succeeded`, `refused`, `failed`, `gave_up`) is told to retry_budget before this.
    A call that was refused used a request and no tokens; one that was never sent used NOTHING.
    """
    expected, granted_at = claim.use, claim.granted_at
    assert granted_at is not None, "settled without a grant"
    used = expected if actual is None else actual
    state.forget(now)
    state.in_flight = max(0, state.in_flight - 1)
    state.held_output = max(0, state.held_output - expected.output_tokens)
    difference = Use(used.requests - expected.requests, used.input_tokens - expected.input_tokens, 0)
    if difference != NOTHING:
        state.correct(difference, granted_at, now)
    if used.output_tokens:
        state.book(Use(0, 0, used.output_tokens), now)
    if actual is not None and actual.output_tokens:
        took = max(0.0, now - granted_at)
        state.typical_s += (took - state.typical_s) * (RECENT if state.typical_s else 1.0)
        made = min(1.0, actual.output_tokens / max(1, expected.output_tokens))
        state.typical_output += (made - state.typical_output) * RECENT
    difference_in_cost = cost_of(used, rules.limits) - claim.cost
    share.finish += difference_in_cost / share.weight
    claim.task_finish += difference_in_cost
    claim.granted_at = None
    share.used_at = now
    _close(state, share)


def withdraw(state: PoolState, share: Share, claim: Claim, now: float) -> None:
    """Ends a claim that still waits. A granted one is settled, with NOTHING where it was never sent."""
    assert claim.granted_at is None, "a granted claim is settled"
    state.waiting = max(0, state.waiting - 1)
    share.used_at = now
    _close(state, share)


def reweigh(state: PoolState, share: Share, weight: float) -> None:
    if share.open:
        state.active_weight = max(0.0, state.active_weight + weight - share.weight)
    share.weight = weight


def _close(state: PoolState, share: Share) -> None:
    share.open = max(0, share.open - 1)
    if share.open == 0:
        state.active = max(0, state.active - 1)
        state.active_weight = max(0.0, state.active_weight - share.weight)
        state.left_weight += share.weight
    if state.in_flight == 0 and state.waiting == 0:
        state.active, state.active_weight = 0, 0.0  # whatever rounding has left


def _start(state: PoolState, limits: Limits, share: Share, now: float) -> float:
    """Where a user's place stands that had none."""
    lead = share.finish - state.virtual
    if lead <= 0:
        return state.virtual
    if share.open == 0:
        lead = min(lead, minute_worth(state, limits) / share.weight)
        lead *= 0.5 ** (max(0.0, now - share.used_at) / IDLE_HALF_LIFE_S)
    return state.virtual + lead


def _grant(state: PoolState, rules: Rules, share: Share, claim: Claim, now: float) -> None:
    use, limits = claim.use, rules.limits
    sending(state, rules.policy, claim.task, claim.retry)
    claim.cost = cost = cost_of(use._replace(output_tokens=round(use.output_tokens * state.typical_output)), limits)
    tag = max(share.finish, state.virtual - minute_worth(state, limits) / share.weight)
    state.typical_cost += (cost - state.typical_cost) * (RECENT if state.typical_cost else 1.0)
    usual = min(cost, state.typical_cost)
    state.virtual = max(state.virtual, tag + usual / max(state.active_weight + state.left_weight, share.weight))
    state.left_weight = 0.0
    share.finish, claim.tag = tag + cost / share.weight, tag
    if not claim.interactive:
        share.clock = max(share.clock, claim.task_finish + usual / (share.open + 1))
    claim.task_finish += cost
    state.waiting = max(0, state.waiting - 1)
    state.in_flight += 1
    state.held_output += use.output_tokens
    state.book(Use(use.requests, use.input_tokens, 0), now)
    claim.granted_at = share.used_at = now
