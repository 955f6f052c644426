"""What a provider's pool allows, what of it is used, and whether one more call fits. Pure; a clock is handed in.

A pool is what a provider counts together: one key and a group of models. Its limits hold for every minute, not for
each minute of the clock, so use is kept for 60 s in slices of two. Requests and input are booked when a call is
admitted; output is held in full while the call is in flight and booked as it was when it ends. What is booked and
held together never passes a limit, so that no minute can, wherever within a call its tokens were made.

It never decides whose turn it is (fair_queue.py) nor whether to try again (retry_budget.py). Times are seconds since
the epoch, from one clock for all who share a pool.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, NamedTuple

WINDOW_S = 60
SLICE_S = 2  # a booking counts for 60 to 62 s
DAY_S = 86_400
AT_ONCE = 0.5  # of a minute's limit, however fast
PACE, PACE_SLICES = 1.25, 3  # above that, so many times the even part of so many slices


@dataclass(frozen=True, slots=True)
class Limits:
    """None is unlimited."""

    requests_per_minute: int | None = None
    input_tokens_per_minute: int | None = None
    output_tokens_per_minute: int | None = None
    concurrent_calls: int | None = None
    tokens_per_day: int | None = None

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Limits:
        """From {limit: number}; names that are no limits, and numbers below 1, are left out."""
        return cls(**{name: int(data[name]) for name in LIMITS if (data.get(name) or 0) >= 1})

    @classmethod
    def binding(cls, by_hand: Mapping[str, Any], learned: Mapping[str, Mapping[str, Any]]) -> Limits:
        """Those that hold for a pool: what people set ({limit: number}), never above what its provider says
        ({limit: {"value": number}})."""
        told = {limit: found.get("value") for limit, found in learned.items()}
        return cls.from_json(by_hand).within(cls.from_json(told))

    def as_json(self) -> dict[str, int]:
        return {name: value for name, value in asdict(self).items() if value is not None}

    def within(self, other: Limits) -> Limits:
        """The stricter of both: what people set, never above what the provider says."""
        both = {}
        for name in LIMITS:
            set_ones = [value for value in (getattr(self, name), getattr(other, name)) if value is not None]
            both[name] = min(set_ones) if set_ones else None
        return Limits(**both)

    def __bool__(self) -> bool:
        return any(getattr(self, name) is not None for name in LIMITS)


LIMITS = tuple(item.name for item in fields(Limits))


class Use(NamedTuple):
    """What a call needs, or what it used."""

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0


NOTHING = Use()


@dataclass(slots=True)
class Share:
    """A user's place at a pool. `finish`: the virtual time at which its next place in the queue stands."""

    weight: float = 1.0
    finish: float = 0.0
    clock: float = 0.0  # the virtual time among its own tasks
    open: int = 0  # claims that wait, or are granted or in flight
    used_at: float = 0.0


@dataclass(slots=True)
class Claim:
    """What one task wants of a pool, or has. `task_finish`: its place among the user's tasks, kept between calls."""

    user: int
    task: int
    input_tokens: int
    output_tokens: int  # the most that it may answer
    queued_at: float = 0.0
    interactive: bool = False
    retry: bool = False
    not_before: float | None = None
    task_finish: float = 0.0
    tag: float = 0.0  # of the user's place when it was queued; while it is granted, of the place that it took
    granted_at: float | None = None
    cost: float = 0.0  # what was charged when it was granted

    @property
    def use(self) -> Use:
        return Use(1, self.input_tokens, self.output_tokens)


@dataclass(slots=True)
class PoolState:
    """All that changes at a call. Read and written under one lock, as a few hundred bytes of JSON."""

    slices: list[list[int]] = field(default_factory=list)  # [number of the slice, requests, input, output], by number
    requests: int = 0  # the sums of the slices
    input_tokens: int = 0
    output_tokens: int = 0
    day: int = 0  # days since the epoch, UTC
    day_tokens: int = 0
    in_flight: int = 0  # granted and not settled
    held_output: int = 0
    # fair_queue.py
    virtual: float = 0.0
    typical_cost: float = 0.0  # of a call, lately
    active: int = 0  # users with open claims
    active_weight: float = 0.0  # of theirs
    left_weight: float = 0.0  # of those whose last claim ended since the last grant: they may ask again at once
    waiting: int = 0
    # retry_budget.py
    retry_tokens: float | None = None  # None: all that it can hold
    failing: float = 0.0  # of the calls that ended lately
    circuit: str = "closed"
    open_until: float = 0.0
    trips: int = 0
    probe: int | None = None  # the task whose call tries whether the provider answers again
    blocked_until: float = 0.0
    refusals: int = 0
    refused_at: float = 0.0
    ramp: float | None = None  # calls in flight at most, after refusals that the limits did not foresee
    ramp_goal: float = 0.0  # up to here it grows fast
    # waits.py
    typical_s: float = 0.0  # a call's duration, lately
    typical_output: float = 0.25  # output that was made, of what was held

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> PoolState:
        state = cls()
        if not data:
            return state
        first, rows = data["w"]
        for offset, requests, input_tokens, output_tokens in rows:
            state.slices.append([first + offset, requests, input_tokens, output_tokens])
            state.requests += requests
            state.input_tokens += input_tokens
            state.output_tokens += output_tokens
        state.day, state.day_tokens = data["d"]
        state.in_flight, state.held_output = data["f"]
        state.virtual, state.typical_cost, state.waiting = data["q"]
        state.active, state.active_weight, state.left_weight = data["a"]
        state.retry_tokens, state.failing, state.circuit, state.open_until, state.trips, state.probe = data["c"]
        state.blocked_until, state.refusals, state.refused_at, state.ramp, state.ramp_goal = data["b"]
        state.typical_s, state.typical_output = data["t"]
        return state

    def as_json(self) -> dict[str, Any]:
        """Short keys: it is written at every model call."""
        first = self.slices[0][0] if self.slices else 0
        return {
            "w": [first, [[number - first, *used] for number, *used in self.slices]],
            "d": [self.day, self.day_tokens],
            "f": [self.in_flight, self.held_output],
            "q": [round(self.virtual, 3), round(self.typical_cost, 3), self.waiting],
            "a": [self.active, round(self.active_weight, 4), round(self.left_weight, 4)],
            "c": [
                None if self.retry_tokens is None else round(self.retry_tokens, 3),
                round(self.failing, 4),
                self.circuit,
                round(self.open_until, 3),
                self.trips,
                self.probe,
            ],
            "b": [
                round(self.blocked_until, 3),
                self.refusals,
                round(self.refused_at, 3),
                None if self.ramp is None else round(self.ramp, 3),
                round(self.ramp_goal, 3),
            ],
            "t": [round(self.typical_s, 3), round(self.typical_output, 4)],
        }

    def forget(self, now: float) -> None:
        """Leaves what is older than a minute, and yesterday."""
        slices, oldest = self.slices, now - WINDOW_S
        gone = 0
        for number, requests, input_tokens, output_tokens in slices:
            if (number + 1) * SLICE_S > oldest:
                break
            gone += 1
            self.requests -= requests
            self.input_tokens -= input_tokens
            self.output_tokens -= output_tokens
        if gone:
            del slices[:gone]
        today = int(now // DAY_S)
        if today > self.day:
            self.day, self.day_tokens = today, 0

    def book(self, use: Use, now: float) -> None:
        number = int(now // SLICE_S)
        slices = self.slices
        if not slices or slices[-1][0] < number:
            slices.append([number, 0, 0, 0])
        self._add(slices[-1], use)
        self.day_tokens += use.input_tokens + use.output_tokens

    def correct(self, by: Use, booked_at: float, now: float) -> None:
        """Changes a booking where it stands. What left the window meanwhile is nobody's concern any more."""
        number = int(booked_at // SLICE_S)
        for entry in reversed(self.slices):
            if entry[0] <= number:
                if entry[0] == number:
                    self._add(entry, by)
                break
        if booked_at // DAY_S == self.day:
            self.day_tokens = max(0, self.day_tokens + by.input_tokens + by.output_tokens)

    def _add(self, entry: list[int], use: Use) -> None:
        entry[1] += use.requests
        entry[2] += use.input_tokens
        entry[3] += use.output_tokens
        self.requests += use.requests
        self.input_tokens += use.input_tokens
        self.output_tokens += use.output_tokens


def lacks(state: PoolState, limits: Limits, use: Use, now: float) -> str:
    """The limit that has no room for this now, "pace", or "". Call `state.forget(now)` before.

    A need above a whole limit is taken as the limit: such a call is admitted once nothing else counts.

    "pace": where several users are active, half of a minute may be used at once and the rest is given out evenly.
    Otherwise whoever has most calls ready would take a whole minute in its first seconds, again and again, and who
    asks a little later would wait for the next.
    """
    limit = limits.concurrent_calls
    if limit is not None and state.in_flight >= limit:
        return "concurrent_calls"
    limit = limits.requests_per_minute
    if limit is not None and state.requests + use.requests > limit:
        return "requests_per_minute"
    limit = limits.input_tokens_per_minute
    if limit is not None and state.input_tokens + min(use.input_tokens, limit) > limit:
        return "input_tokens_per_minute"
    limit = limits.output_tokens_per_minute
    if limit is not None and state.output_tokens + state.held_output + min(use.output_tokens, limit) > limit:
        return "output_tokens_per_minute"
    limit = limits.tokens_per_day
    if limit is not None:
        need = min(use.input_tokens + use.output_tokens, limit)
        if state.day_tokens + state.held_output + need > limit:
            return "tokens_per_day"
    if state.active < 2:
        return ""
    for column, used, need, limit in (
        (1, state.requests, use.requests, limits.requests_per_minute),
        (2, state.input_tokens, use.input_tokens, limits.input_tokens_per_minute),
    ):
        if limit is not None and used + need > limit * AT_ONCE and _too_soon(state, column, limit, need, now):
            return "pace"
    return ""


def _too_soon(state: PoolState, column: int, limit: int, need: int, now: float) -> bool:
    even = limit * PACE * PACE_SLICES * SLICE_S / WINDOW_S
    if even < 1:
        return False
    first = int(now // SLICE_S) - PACE_SLICES
    recent = sum(entry[column] for entry in state.slices[-PACE_SLICES:] if entry[0] > first)
    return recent > 0 and recent + need > even


REQUEST_WORTH = 1_000  # where only requests are limited, each counts as this many tokens


def minute_worth(state: PoolState, limits: Limits) -> float:
    """The tokens that a minute of the pool is worth: what its limits allow, else what was used in the last one."""
    worth = (limits.input_tokens_per_minute or 0) + (limits.output_tokens_per_minute or 0)
    if not worth and limits.requests_per_minute:
        worth = limits.requests_per_minute * REQUEST_WORTH
    return float(worth or state.input_tokens + state.output_tokens + state.held_output)


def cost_of(use: Use, limits: Limits) -> float:
    """What a call costs its user, in tokens: the share of the minute that it takes of the scarcest thing.

    Dominant resource fairness (Ghodsi et al., NSDI 2011): where requests are scarce, many tiny calls cost as much as
    they take from others. Without limits per minute it is the tokens themselves.
    """
    of_input, of_output = limits.input_tokens_per_minute, limits.output_tokens_per_minute
    of_requests = limits.requests_per_minute
    worth = (of_input or 0) + (of_output or 0)
    if not worth:
        return float(use.requests * REQUEST_WORTH if of_requests else use.input_tokens + use.output_tokens)
    taken = use.requests / of_requests if of_requests else 0.0
    if of_input:
        taken = max(taken, use.input_tokens / of_input)
    if of_output:
        taken = max(taken, use.output_tokens / of_output)
    return taken * worth
