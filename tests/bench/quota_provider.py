"""A provider that really refuses, the work of many users, and what is measured of how they were served."""

from __future__ import annotations

import random
from collections import Counter, deque
from dataclasses import dataclass, field

from workspaces.domain.quotas import Limits, Use, cost_of

OUTPUT_AT_MOST = 4_096
SMALL = 3  # tasks


@dataclass(slots=True)
class Call:
    input_tokens: int
    output_tokens: int
    expected_input: int

    @property
    def duration_s(self) -> float:
        return 0.8 + self.output_tokens / 60


@dataclass(slots=True)
class Task:
    number: int
    user: int
    calls: list[Call]  # the next one is the last
    asked_at: float = -1.0  # when its call was first wanted
    attempt: int = 0  # failures of it in a row
    waits: bool = False


@dataclass(slots=True)
class Work:
    """What each of the three strategies is given, to the token and the second."""

    users: int
    tasks: list[list[Task]]  # by user
    begins: list[float]  # by user
    weights: list[float]
    limits: Limits
    outage: tuple[float, float]
    at_once: int = 40  # tasks of a user that run at the same time


def work(*, users: int, tasks: int, seed: int, limits: Limits, begins_within_s: float) -> Work:
    """Most users have a task or two, some have hundreds: a Pareto distribution, cut at 800."""
    rng = random.Random(seed)
    parts = [min(rng.paretovariate(1.1), 800.0) for _ in range(users)]
    scale = (tasks - users / 2) / sum(parts)
    counts = [max(1, int(part * scale)) for part in parts]
    for _ in range(tasks - sum(counts)):
        counts[rng.randrange(users)] += 1
    everyone, number = [], 0
    for user, count in enumerate(counts):
        mine = []
        for _ in range(count):
            number += 1
            mine.append(Task(number, user, [_call(rng) for _ in range(min(12, 1 + int(rng.expovariate(0.5))))]))
        everyone.append(mine)
    return Work(
        users,
        everyone,
        [rng.uniform(0, begins_within_s) for _ in range(users)],
        [3.0 if rng.random() < 0.05 else 1.0 for _ in range(users)],
        limits,
        (begins_within_s * 0.6, begins_within_s * 0.6 + 45),
    )


def _call(rng: random.Random) -> Call:
    tokens = max(200, min(60_000, int(rng.lognormvariate(8.2, 0.8))))
    output = max(5, min(OUTPUT_AT_MOST, int(rng.lognormvariate(5.7, 0.8))))
    return Call(tokens, output, int(tokens * rng.uniform(0.9, 1.1)))


@dataclass(slots=True)
class Provider:
    """Counts as providers do: the last 60 s to the moment, what is in flight, and for a while nothing works.

    What it refuses costs nobody anything, which is kind to those who ask again and again: some count that too.
    """

    limits: Limits
    outage: tuple[float, float]
    seen: deque[tuple[float, int]] = field(default_factory=deque)
    made: deque[tuple[float, int]] = field(default_factory=deque)
    input_tokens: int = 0
    output_tokens: int = 0
    in_flight: int = 0
    refused: int = 0

    def ask(self, call: Call, now: float) -> tuple[str, float | None]:
        """("", None) when it is taken, else the kind of the refusal and its Retry-After."""
        if self.outage[0] <= now < self.outage[1]:
            self.refused += 1
            return "overloaded", None
        limits, oldest = self.limits, now - 60
        while self.seen and self.seen[0][0] <= oldest:
            self.input_tokens -= self.seen.popleft()[1]
        while self.made and self.made[0][0] <= oldest:
            self.output_tokens -= self.made.popleft()[1]
        wait = None
        if self.in_flight >= limits.concurrent_calls:
            wait = 1.0
        elif self.output_tokens >= limits.output_tokens_per_minute:
            wait = self.made[0][0] + 60 - now
        elif len(self.seen) >= limits.requests_per_minute or (
            self.seen and self.input_tokens + call.input_tokens > limits.input_tokens_per_minute
        ):
            wait = self.seen[0][0] + 60 - now
        if wait is not None:
            self.refused += 1
            return "rate_limit", max(wait, 0.1)
        self.seen.append((now, call.input_tokens))
        self.input_tokens += call.input_tokens
        self.in_flight += 1
        return "", None

    def answered(self, call: Call, now: float) -> None:
        self.in_flight -= 1
        self.made.append((now, call.output_tokens))
        self.output_tokens += call.output_tokens

    def failed(self) -> None:
        self.in_flight -= 1


class Watch:
    """Who waited, who was served, and what of the pool was used.

    A user contends for as long as, without a break, at least one of its calls waits. What it is due of such a spell is
    what an equal split by weight, among those who contend, of all that they are given would give it: the integral of
    service / weight of those who contend. A spell counts when it was due at least `ENOUGH` calls of the usual size:
    below that a whole call is too coarse a unit. A user's part is what it got in its spells by what it was due in
    them; Jain's index is over these parts.
    """

    ENOUGH = 10

    def __init__(self, work: Work) -> None:
        self.work = work
        self.waiting = [0] * work.users
        self.got = [0.0] * work.users
        self.since = [(0.0, 0.0)] * work.users  # clock and service when the spell began
        self.spells: list[tuple[int, float, float]] = []  # user, got, due
        self.clock = 0.0  # service by weight of those who contend
        self.weight = 0.0
        self.waits: list[float] = []
        self.small_waits: list[float] = []  # of users with `SMALL` tasks at most
        self.contenders = 0
        self.least_contenders: dict[int, int] = {}  # by minute
        self.used: dict[str, Counter[int]] = {name: Counter() for name in ("requests", "input", "output")}
        self.retries = self.faults = self.answers = 0
        self.cost = 0.0
        self.ended_at = 0.0

    def waits_now(self, user: int, now: float) -> None:
        self.waiting[user] += 1
        if self.waiting[user] == 1:
            self.since[user] = self.clock, self.got[user]
            self.weight += self.work.weights[user]
            self._contenders(1, now)

    def waits_no_more(self, user: int, now: float) -> None:
        self.waiting[user] -= 1
        if self.waiting[user] == 0:
            clock, got = self.since[user]
            self.spells.append((user, self.got[user] - got, (self.clock - clock) * self.work.weights[user]))
            self.weight -= self.work.weights[user]
            self._contenders(-1, now)

    def served(self, user: int, call: Call) -> None:
        """Called while its call still waits, if it did."""
        if self.waiting[user]:
            cost = self.cost_of(call)
            self.got[user] += cost
            self.clock += cost / self.weight

    def not_served(self, user: int, call: Call) -> None:
        self.got[user] -= self.cost_of(call)

    def cost_of(self, call: Call) -> float:
        return cost_of(Use(1, call.input_tokens, call.output_tokens), self.work.limits)

    def began(self, task: Task, call: Call, now: float) -> None:
        waited = now - task.asked_at
        self.waits.append(waited)
        if len(self.work.tasks[task.user]) <= SMALL:
            self.small_waits.append(waited)
        minute = int(now // 60)
        self.used["requests"][minute] += 1
        self.used["input"][minute] += call.input_tokens

    def answered(self, call: Call, now: float) -> None:
        self.used["output"][int(now // 60)] += call.output_tokens
        self.answers += 1
        self.cost += self.cost_of(call)
        self.ended_at = now

    def _contenders(self, by: int, now: float) -> None:
        minute = int(now // 60)
        if minute not in self.least_contenders:
            self.least_contenders[minute] = self.contenders
        self.contenders += by
        self.least_contenders[minute] = min(self.least_contenders[minute], self.contenders)

    def utilisation(self) -> tuple[float, int]:
        """Of the scarcest limit, over the minutes in which somebody waited from beginning to end; how many those
        were. While the provider is out there is nothing to use."""
        limits, (began, ended) = self.work.limits, self.work.outage
        full = [minute for minute, least in self.least_contenders.items() if least > 0]
        there = sum(60 - max(0.0, min(ended, 60 * minute + 60) - max(began, 60 * minute)) for minute in full) / 60
        if not full:
            return 0.0, 0
        each = {
            "requests": limits.requests_per_minute,
            "input": limits.input_tokens_per_minute,
            "output": limits.output_tokens_per_minute,
        }
        parts = [sum(self.used[name][minute] for minute in full) / limit / there for name, limit in each.items()]
        return max(parts), len(full)

    def fairness(self) -> tuple[float, int]:
        """Jain's index, and over how many users."""
        enough = self.ENOUGH * self.cost / max(1, self.answers)
        got, due = Counter[int](), Counter[int]()
        for user, was_given, was_due in self.spells:
            if was_due >= enough:
                got[user] += was_given
                due[user] += was_due
        return jain([got[user] / due[user] for user in due]), len(due)


def jain(parts: list[float]) -> float:
    """(sum)² / (n · sum of squares): 1 when all are equal, 1/n when one has everything (Jain, Chiu, Hawe 1984)."""
    squares = sum(part * part for part in parts)
    return sum(parts) ** 2 / (len(parts) * squares) if squares else 0.0
