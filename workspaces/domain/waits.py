"""Why a claim waits, for how long, and behind whom: what people are told. Pure; decides nothing.

The times are estimates from what frees when: slices of the window have their minute, calls in flight their usual
duration, and what waits before a claim needs its part of the pool first.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil

from workspaces.domain.fair_queue import Rules, obstacle, turn
from workspaces.domain.quotas import (
    AT_ONCE,
    DAY_S,
    PACE,
    PACE_SLICES,
    SLICE_S,
    WINDOW_S,
    Claim,
    Limits,
    PoolState,
    Share,
    Use,
    cost_of,
)
from workspaces.domain.retry_budget import CLOSED, OPEN, can_retry

USUAL_CALL_S = 10.0  # until a pool has answered one


@dataclass(frozen=True, slots=True)
class Wait:
    """`reason`: a limit's name, "blocked", "circuit", "ramp", "pace", "retry", "not_before" or "turn".

    `until`: None where it depends on calls in flight.
    """

    reason: str
    until: float | None
    words: str


@dataclass(frozen=True, slots=True)
class Place:
    """`number`: 1 is next. `ahead`: what goes before it, and itself."""

    number: int
    ahead: Use


Line = tuple[Share, Sequence[Claim]]  # a user's share and its waiting claims


def in_order(lines: Iterable[Line], limits: Limits) -> Iterator[Claim]:
    """The waiting claims as they would go if nobody came and each used what it expects."""
    heap = []
    for share, claims in lines:
        if claims:
            mine = iter(sorted(claims, key=turn))
            heap.append((share.finish, claims[0].user, share.weight, mine, next(mine)))
    heapq.heapify(heap)
    while heap:
        finish, user, weight, mine, claim = heap[0]
        yield claim
        following = next(mine, None)
        if following is None:
            heapq.heappop(heap)
        else:
            heapq.heapreplace(heap, (finish + cost_of(claim.use, limits) / weight, user, weight, mine, following))


def place_of(task: int, lines: Iterable[Line], limits: Limits) -> Place | None:
    """None: the task does not wait here."""
    input_tokens = output_tokens = 0
    for number, claim in enumerate(in_order(lines, limits), start=1):
        input_tokens += claim.input_tokens
        output_tokens += claim.output_tokens
        if claim.task == task:
            return Place(number, Use(number, input_tokens, output_tokens))
    return None


def expected_wait_s(state: PoolState, limits: Limits, ahead: Use, now: float) -> float:
    """Seconds until everything in `ahead` (a claim and what goes before it) has been granted."""
    state.forget(now)
    held = state.held_output * state.typical_output  # what it will have made; it counts from its end on
    usual_s = state.typical_s or USUAL_CALL_S
    waits = [0.0]
    if limit := limits.requests_per_minute:
        waits.append(_window_s(state, 1, limit, 0, ahead.requests, now))
        waits.append(_pace_s(state, state.requests, limit, ahead.requests, ahead))
    if limit := limits.input_tokens_per_minute:
        need = _of(ahead.input_tokens, ahead, limit)
        waits += [_window_s(state, 2, limit, 0, need, now), _pace_s(state, state.input_tokens, limit, need, ahead)]
    if limit := limits.output_tokens_per_minute:
        made = ahead.output_tokens * state.typical_output if ahead.requests > 1 else min(ahead.output_tokens, limit)
        waits.append(_window_s(state, 3, limit, held if ahead.requests > 1 else state.held_output, made, now))
    at_once = min(
        limits.concurrent_calls if limits.concurrent_calls is not None else 10**9,
        10**9 if state.ramp is None else max(1, int(state.ramp)),
    )
    beyond = state.in_flight + ahead.requests - at_once
    if beyond > 0:
        waits.append(beyond * usual_s / at_once)
    if limit := limits.tokens_per_day:
        tokens = ahead.input_tokens + ahead.output_tokens * state.typical_output
        today = state.day_tokens + held + (min(tokens, limit) if ahead.requests == 1 else tokens)
        if today > limit:
            waits.append(_midnight(now) - now + DAY_S * max(0, ceil(today / limit) - 2))
    return held_back_s(state, now) + max(waits)


def held_back_s(state: PoolState, now: float) -> float:
    """Seconds until the pool sends anything: refusals and the circuit."""
    seconds = max(0.0, state.blocked_until - now)
    if state.circuit == OPEN:
        seconds = max(seconds, state.open_until - now)
    if state.circuit != CLOSED:
        seconds += state.typical_s or USUAL_CALL_S  # the probe's answer
    return seconds


def why(state: PoolState, rules: Rules, claim: Claim, now: float, *, number: int = 1) -> Wait:
    """Why it waits. `number`: its place; from 2 on others are before it, whatever the limits say."""
    if claim.not_before is not None and claim.not_before > now:
        return Wait("not_before", claim.not_before, f"its last call failed; next try {_in(claim.not_before - now)}")
    reason = obstacle(state, rules, claim.use, now)
    if not reason and claim.retry and not can_retry(state):
        return Wait("retry", None, "many calls failed; it is tried again once more of the others' have been answered")
    until, words = _told(state, rules.limits, claim.use, reason, now)
    if number > 1 or not reason:
        others = f"{number - 1:,} before it" if number > 1 else "it is next"
        return Wait(reason or "turn", until, f"{others}; {words}" if words else others)
    return Wait(reason, until, words)


def _told(state: PoolState, limits: Limits, use: Use, reason: str, now: float) -> tuple[float | None, str]:
    limit = getattr(limits, reason, 0) or 0
    match reason:
        case "blocked":
            until = state.blocked_until
            return until, f"the provider turned calls away; nothing is sent to it for {_s(until - now)}"
        case "circuit" if state.probe is None:
            until = state.open_until
            return until, f"too many calls failed; one call tries again {_in(until - now)}"
        case "circuit":
            return None, "too many calls failed; one call is trying whether the provider answers again"
        case "ramp":
            return None, f"after refusals at most {int(state.ramp or 1):,} at once, more with each answer"
        case "pace":
            return now + SLICE_S, "half of the minute is used, the rest is given out evenly; room in a few seconds"
        case "concurrent_calls":
            return None, _all_in_flight(limit)
        case "requests_per_minute":
            after = _window_s(state, 1, limit, 0, use.requests, now)
            return now + after, f"{state.requests:,} of {limit:,} requests a minute are used; room {_in(after)}"
        case "input_tokens_per_minute":
            need = min(use.input_tokens, limit)
            after = _window_s(state, 2, limit, 0, need, now)
            used = f"{state.input_tokens:,} of {limit:,} input tokens a minute are used"
            return now + after, f"{used} and it needs {need:,}; room {_in(after)}"
        case "output_tokens_per_minute":
            need = min(use.output_tokens, limit)
            taken = f"{state.output_tokens:,} of {limit:,} output tokens a minute are used"
            if state.held_output:
                taken += f" and {state.held_output:,} held by calls in flight"
            if state.held_output + need > limit:
                return None, f"{taken}; it may need {need:,}"
            after = _window_s(state, 3, limit, state.held_output, need, now)
            return now + after, f"{taken}; it may need {need:,}; room {_in(after)}"
        case "tokens_per_day":
            until = _midnight(now)
            taken = f"{state.day_tokens + state.held_output:,} of {limit:,} tokens a day are used or held"
            return until, f"{taken}; the next day begins {_in(until - now)} (00:00 UTC)"
    return now, ""


def _all_in_flight(limit: int) -> str:
    return "the one call at a time is in flight" if limit == 1 else f"all {limit:,} calls at once are in flight"


def _window_s(state: PoolState, column: int, limit: int, held: float, need: float, now: float) -> float:
    """When that much more fits into the window, if it frees as it was filled, minute for minute."""
    rest = need + held + sum(entry[column] for entry in state.slices) - limit
    if rest <= 0:
        return 0.0
    frees = now
    for entry in state.slices:
        frees = (entry[0] + 1) * SLICE_S + WINDOW_S
        rest -= entry[column]
        if rest <= 0:
            return max(0.0, frees - now)
    return max(0.0, frees - now) + rest / limit * WINDOW_S


def _pace_s(state: PoolState, used: int, limit: int, need: int, ahead: Use) -> float:
    """How long what is beyond the half that goes at once takes."""
    if state.active < 2 or ahead.requests == 1:
        return 0.0
    beyond = min(need, used + need - limit * AT_ONCE)
    return max(0.0, beyond / (limit * PACE) * WINDOW_S - PACE_SLICES * SLICE_S)


def _of(tokens: int, ahead: Use, limit: int) -> int:
    return min(tokens, limit) if ahead.requests == 1 else tokens


def _midnight(now: float) -> float:
    return (now // DAY_S + 1) * DAY_S


def _in(seconds: float) -> str:
    return f"in {_s(seconds)}"


def _s(seconds: float) -> str:
    seconds = max(1, ceil(seconds))
    if seconds < 120:
        return f"{seconds} s"
    if seconds < 7_200:
        return f"{ceil(seconds / 60)} min"
    return f"{ceil(seconds / 3_600)} h"
