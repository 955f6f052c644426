"""When a pool tries again, and when it stops trying. Pure; clock and random are handed in.

No task retries on its own. Retries are a share of successes: each success adds a tenth of a token up to a cap, each
retry takes one. With none left a retry waits for the successes of others. Where those do not come, most calls having
failed lately or none being in flight, the circuit opens: nothing is sent until one call, the probe, has shown that the
provider answers again. A refusal (429, 529) holds back everybody: as long as the provider said, else for a time drawn
at random up to a bound that doubles with each refusal in a row (full jitter, Brooker, AWS Architecture Blog 2015).
After a refusal fewer calls are in flight than before, and more again with each success: limits may be unknown, or
shared with others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from math import inf
from typing import Any

from workspaces.domain.quotas import PoolState

Random = Callable[[], float]  # in [0, 1)

CLOSED, OPEN, HALF_OPEN = "closed", "open", "half_open"
REFUSALS = frozenset({"rate_limit", "overloaded"})  # kinds of ProviderError that are about the pool, not the call
LONGEST_RETRY_AFTER_S = 86_400.0
LEAST_WAIT_S = 0.05
NEARLY = 0.85  # of the calls at once that led to a refusal
MOSTLY, LATELY = 0.5, 0.1  # of the calls that ended; how much a new one tells of them


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """What a pool may set otherwise."""

    retry_ratio: float = 0.1  # tokens that a success adds
    retry_cap: float = 10.0
    first_backoff_s: float = 1.0
    longest_backoff_s: float = 60.0
    first_open_s: float = 5.0
    longest_open_s: float = 300.0

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> RetryPolicy:
        return cls(**{item.name: float(data[item.name]) for item in fields(cls) if data.get(item.name)})

    def as_json(self) -> dict[str, float]:
        """Only what differs from the defaults."""
        usual = asdict(USUAL)
        return {name: value for name, value in asdict(self).items() if value != usual[name]}


USUAL = RetryPolicy()


def full_jitter_s(attempt: int, policy: RetryPolicy, random: Random) -> float:
    """How long a call waits after its `attempt`-th failure in a row, from 1."""
    bound = min(policy.longest_backoff_s, policy.first_backoff_s * 2.0 ** min(max(attempt, 1) - 1, 30))
    return max(LEAST_WAIT_S, bound * random())


def holds_back(state: PoolState, now: float) -> str:
    """Why nothing at all may be sent now: "blocked", "circuit", or ""."""
    if now < state.blocked_until:
        return "blocked"
    if state.circuit == OPEN and now < state.open_until:
        return "circuit"
    if state.circuit != CLOSED and state.probe is not None:
        return "circuit"
    return ""


def can_retry(state: PoolState) -> bool:
    """Whether a retry is left, or the next call is the probe, which costs none: there is one for each opening."""
    return state.circuit != CLOSED or state.retry_tokens is None or state.retry_tokens > 0.999


def is_hopeless(state: PoolState) -> bool:
    """Whether the successes that retries wait for will not come."""
    return state.in_flight == 0 or state.failing > MOSTLY


def sending(state: PoolState, policy: RetryPolicy, task: int, retry: bool) -> None:
    """A call is sent, holds_back() and can_retry() having nothing against it."""
    if state.circuit != CLOSED:
        state.circuit, state.probe = HALF_OPEN, task
    elif retry:
        state.retry_tokens = (policy.retry_cap if state.retry_tokens is None else state.retry_tokens) - 1


def trip(state: PoolState, policy: RetryPolicy, now: float, random: Random) -> None:
    """Opens the circuit, each time in a row for up to twice as long; at least half of it, so that it is a rest."""
    bound = min(policy.longest_open_s, policy.first_open_s * 2.0 ** min(state.trips, 30))
    state.circuit, state.probe = OPEN, None
    state.trips += 1
    state.open_until = now + bound * (0.5 + 0.5 * random())
    _slow_down(state)


def succeeded(state: PoolState, policy: RetryPolicy, task: int, granted_at: float = inf) -> None:
    """A call was answered. The probe's answer closes the circuit and gives back half of the retries."""
    tokens = policy.retry_cap if state.retry_tokens is None else state.retry_tokens
    if state.circuit == HALF_OPEN and state.probe == task:
        state.circuit, state.probe = CLOSED, None
        tokens = max(tokens, policy.retry_cap / 2)
    tokens = min(policy.retry_cap, tokens + policy.retry_ratio)
    state.retry_tokens = None if tokens >= policy.retry_cap else tokens
    if state.retry_tokens is None:
        state.trips = 0
    state.refusals = 0
    state.failing -= state.failing * LATELY
    if state.ramp is not None and granted_at >= state.refused_at:
        state.ramp += 2.0 if state.ramp < state.ramp_goal else max(1.0 / state.ramp, 0.1)
        if state.ramp > state.in_flight + state.waiting + 1:
            state.ramp = None


def refused(
    state: PoolState,
    policy: RetryPolicy,
    task: int,
    granted_at: float,
    now: float,
    retry_after_s: float | None,
    random: Random,
) -> None:
    """The provider turned a call away for the pool's sake: nobody sends until then.

    Calls that were sent before the last refusal was known say nothing new, save when to come back.
    """
    if granted_at >= state.refused_at:
        state.refusals += 1
        state.refused_at = now
        _slow_down(state)
        if retry_after_s is None:
            retry_after_s = full_jitter_s(state.refusals, policy, random)
    if retry_after_s is not None:
        until = now + min(max(retry_after_s, LEAST_WAIT_S), LONGEST_RETRY_AFTER_S)
        state.blocked_until = max(state.blocked_until, until)
    _ended_badly(state, policy, task, now, random)


def failed(state: PoolState, policy: RetryPolicy, task: int, attempt: int, now: float, random: Random) -> float:
    """A call failed for its own sake (server, timeout, connection, malformed). Returns its `not_before`."""
    _ended_badly(state, policy, task, now, random)
    return now + full_jitter_s(attempt, policy, random)


def gave_up(state: PoolState, task: int) -> None:
    """A call ended without telling anything of the provider: cancelled, never sent, its worker gone."""
    if state.probe == task:
        state.probe = None


def unblock(state: PoolState) -> None:
    """By hand: sends again at once. Refusals that follow block again."""
    state.blocked_until, state.refusals, state.trips = 0.0, 0, 0
    if state.circuit != CLOSED:
        state.circuit, state.probe = CLOSED, None
        state.retry_tokens = None


def probe_now(state: PoolState, now: float) -> None:
    """By hand: an open circuit lets one call try at once. Its outcome counts as that of any probe."""
    state.blocked_until, state.refusals = 0.0, 0
    state.open_until = min(state.open_until, now)


def _ended_badly(state: PoolState, policy: RetryPolicy, task: int, now: float, random: Random) -> None:
    state.failing += (1 - state.failing) * LATELY
    if state.circuit == HALF_OPEN and state.probe == task:
        trip(state, policy, now, random)


def _slow_down(state: PoolState) -> None:
    """Half as many at once; from there three times as many with each round of answers up to nearly what was, then
    little by little. A refusal with far fewer in flight than that has hardly to do with how many they are."""
    before = state.in_flight if state.ramp is None else min(state.ramp, state.in_flight)
    state.ramp = max(1.0, before / 2)
    state.ramp_goal = before * NEARLY if before > state.ramp_goal * 0.6 else state.ramp_goal * 0.9
