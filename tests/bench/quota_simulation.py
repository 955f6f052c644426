"""Ten thousand users at one pool, in simulated time: the product's own admission beside two that do not coordinate.

The first strategy is workspaces/domain as it is; only the rows of the database are heaps here. The provider, the work
and the random faults are the same for all three.
"""

from __future__ import annotations

import heapq
import itertools
import random
import time
from collections.abc import Callable
from typing import Any

from tests.bench.quota_provider import OUTPUT_AT_MOST, Call, Provider, Task, Watch, Work, work
from workspaces.domain import retry_budget
from workspaces.domain.fair_queue import Rules, enqueue, may_be_sent, pump, settle, take, turn
from workspaces.domain.quotas import NOTHING, Claim, Limits, PoolState, Share, Use
from workspaces.domain.retry_budget import USUAL, full_jitter_s

LIMITS = Limits(
    requests_per_minute=12_000,
    input_tokens_per_minute=40_000_000,
    output_tokens_per_minute=12_000_000,
    concurrent_calls=2_000,
)
ROUND_TRIP_S = 0.2
SERVER_FAULTS, TIMEOUTS, TIMEOUT_S = 0.01, 0.001, 60.0
THINKS_S = 8.0


class Run:
    """Users come, run up to forty of their tasks at once, and each task makes its calls one after the other."""

    name = ""

    def __init__(self, given: Work, seed: int) -> None:
        self.work, self.random = given, random.Random(seed)
        self.provider, self.watch = Provider(given.limits, given.outage), Watch(given)
        self.events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self.numbers = itertools.count()
        self.now = 0.0
        self.todo = [list(reversed(tasks)) for tasks in given.tasks]
        self.calls = {task.number: list(reversed(task.calls)) for tasks in given.tasks for task in tasks}
        self.unfinished = len(self.calls)

    def at(self, when: float, what: Callable[..., None], *about: Any) -> None:
        heapq.heappush(self.events, (when, next(self.numbers), what, about))

    def run(self) -> Run:
        for user, begins in enumerate(self.work.begins):
            for _ in range(min(self.work.at_once, len(self.todo[user]))):
                self.at(begins, self.begin, user)
        self.tick()
        while self.unfinished:
            self.now, _, what, about = heapq.heappop(self.events)
            what(*about)
        return self

    def begin(self, user: int) -> None:
        if self.todo[user]:
            task = self.todo[user].pop()
            task.asked_at, task.attempt = self.now, 0
            self.want(task)

    def call_of(self, task: Task) -> Call:
        return self.calls[task.number][-1]

    def send(self, task: Task) -> None:
        kind, retry_after_s = self.offer(task)
        if kind:
            self.at(self.now + ROUND_TRIP_S, self.refused, task, retry_after_s)

    def offer(self, task: Task) -> tuple[str, float | None]:
        """To the provider: what it says at once, the rest is an event."""
        call = self.call_of(task)
        kind, retry_after_s = self.provider.ask(call, self.now)
        if kind:
            return kind, retry_after_s
        drawn = self.random.random()
        if drawn < TIMEOUTS:
            self.at(self.now + TIMEOUT_S, self.fault, task, None)
        elif drawn < TIMEOUTS + SERVER_FAULTS:
            self.at(self.now + 1.0, self.fault, task, call)
        else:
            self.watch.began(task, call, self.now)
            self.at(self.now + call.duration_s, self.answer, task, call)
        return "", None

    def fault(self, task: Task, call: Call | None) -> None:
        self.provider.failed()
        self.watch.faults += 1
        task.attempt += 1
        self.failed(task, call)

    def answer(self, task: Task, call: Call) -> None:
        self.provider.answered(call, self.now)
        self.watch.answered(call, self.now)
        self.answered(task, call)
        calls = self.calls[task.number]
        calls.pop()
        if calls:
            self.at(self.now + self.random.expovariate(1 / THINKS_S), self.next_call, task)
        else:
            self.unfinished -= 1
            self.begin(task.user)

    def next_call(self, task: Task) -> None:
        task.asked_at, task.attempt = self.now, 0
        self.want(task)

    def tick(self) -> None: ...

    def want(self, task: Task) -> None:
        raise NotImplementedError

    def refused(self, task: Task, retry_after_s: float | None) -> None:
        raise NotImplementedError

    def failed(self, task: Task, call: Call | None) -> None:
        raise NotImplementedError

    def answered(self, task: Task, call: Call) -> None: ...


class Heaps:
    """The waiting claims, first tries and retries apart: users by their place, each one's claims by their turn."""

    def __init__(self, shares: list[Share]) -> None:
        self.shares = shares
        self.lines: tuple[dict[int, list[Any]], dict[int, list[Any]]] = ({}, {})
        self.users: tuple[list[tuple[float, int]], list[tuple[float, int]]] = ([], [])

    def add(self, claim: Claim) -> None:
        line = self.lines[claim.retry].setdefault(claim.user, [])
        heapq.heappush(line, (turn(claim), claim))
        heapq.heappush(self.users[claim.retry], (self.shares[claim.user].finish, claim.user))

    def moved(self, user: int) -> None:
        """The user's place has changed."""
        for retry in (False, True):
            if self.lines[retry].get(user):
                heapq.heappush(self.users[retry], (self.shares[user].finish, user))

    def head(self, now: float, *, retries: bool) -> Claim | None:
        first = self._first(False)
        again = self._first(True) if retries else None
        found = [item for item in (first, again) if item is not None]
        return min(found, key=lambda item: item[:3])[3] if found else None

    def _first(self, retry: bool) -> tuple[float, int, Any, Claim] | None:
        users, lines = self.users[retry], self.lines[retry]
        while users:
            finish, user = users[0]
            if lines.get(user) and self.shares[user].finish == finish:
                order, claim = lines[user][0]
                return finish, user, order, claim
            heapq.heappop(users)
        return None

    def share(self, user: int) -> Share:
        return self.shares[user]

    def granted(self, claim: Claim, share: Share) -> None:
        heapq.heappop(self.lines[claim.retry][claim.user])
        self.moved(claim.user)


class Product(Run):
    name = "agentdesk"

    def __init__(self, given: Work, seed: int) -> None:
        super().__init__(given, seed)
        self.rules, self.state = Rules(given.limits), PoolState()
        self.queue = Heaps([Share(weight=weight) for weight in given.weights])
        self.claims: dict[int, Claim] = {}
        self.open = [0] * given.users  # waiting claims, those whose time has not come included
        self.tasks = {task.number: task for tasks in given.tasks for task in tasks}
        self.openings = 0
        self.longest = 0

    def tick(self) -> None:
        self.pump()
        self.at(self.now + 1.0, self.tick)  # as the scheduler does

    def want(self, task: Task, *, retry: bool = False, not_before: float | None = None) -> None:
        call = self.call_of(task)
        claim = self.claims.get(task.number)
        if claim is None:
            claim = self.claims[task.number] = Claim(task.user, task.number, 0, OUTPUT_AT_MOST)
        claim.input_tokens, claim.retry, claim.not_before = call.expected_input, retry, not_before
        share = self.queue.share(task.user)
        before = share.finish
        enqueue(self.state, self.rules, share, claim, self.now, only=not self.open[task.user])
        if share.finish != before:
            self.queue.moved(task.user)
        if self.state.waiting == 1:
            why = take(self.state, self.rules, share, claim, self.now, self.random.random)
            self.note_circuit()
            if not why:
                self.granted(claim)
                return
        self.open[task.user] += 1
        self.longest = max(self.longest, self.state.waiting)
        if not_before is not None:
            self.at(not_before, self.ready, claim)
        else:
            self.ready(claim)

    def ready(self, claim: Claim) -> None:
        self.watch.waits_now(claim.user, self.now)
        self.queue.add(claim)
        self.pump()

    def pump(self) -> None:
        for claim in pump(self.state, self.rules, self.queue, self.now, self.random.random):
            self.granted(claim)
            self.open[claim.user] -= 1
            self.watch.waits_no_more(claim.user, self.now)
        self.note_circuit()

    def note_circuit(self) -> None:
        if self.state.circuit == "open" and not self.was_open:
            self.openings += 1
        self.was_open = self.state.circuit == "open"

    was_open = False

    def granted(self, claim: Claim) -> None:
        task = self.tasks[claim.task]
        self.watch.served(task.user, self.call_of(task))
        self.watch.retries += claim.retry
        self.at(self.now + self.random.uniform(0.02, 0.4), self.send, task)  # until its worker has it

    def send(self, task: Task) -> None:
        claim = self.claims[task.number]
        if may_be_sent(self.state, claim, self.now):
            super().send(task)
            return
        self.watch.not_served(task.user, self.call_of(task))
        self.settle(task, NOTHING)
        self.want(task)
        self.pump()

    def refused(self, task: Task, retry_after_s: float | None) -> None:
        claim = self.claims[task.number]
        granted_at = claim.granted_at or 0.0
        retry_budget.refused(
            self.state, self.rules.policy, task.number, granted_at, self.now, retry_after_s, self.random.random
        )
        self.note_circuit()
        self.again(task, Use(1, 0, 0), None)

    def failed(self, task: Task, call: Call | None) -> None:
        until = retry_budget.failed(
            self.state, self.rules.policy, task.number, task.attempt, self.now, self.random.random
        )
        self.note_circuit()
        self.again(task, Use(1, call.input_tokens, 0) if call else None, until)

    def again(self, task: Task, used: Use | None, not_before: float | None) -> None:
        self.watch.not_served(task.user, self.call_of(task))
        self.settle(task, used)
        self.want(task, retry=True, not_before=not_before)
        self.pump()

    def answered(self, task: Task, call: Call) -> None:
        retry_budget.succeeded(self.state, self.rules.policy, task.number, self.claims[task.number].granted_at or 0.0)
        self.settle(task, Use(1, call.input_tokens, call.output_tokens))
        self.pump()

    def settle(self, task: Task, used: Use | None) -> None:
        settle(self.state, self.rules, self.queue.share(task.user), self.claims[task.number], used, self.now)
        self.queue.moved(task.user)

    @property
    def most_retries(self) -> float:
        return USUAL.retry_cap + USUAL.retry_ratio * self.watch.answers + self.openings * (1 + USUAL.retry_cap / 2)


class Alone(Run):
    """Each task for itself: it asks, and when it is refused it asks again."""

    def want(self, task: Task) -> None:
        self.send(task)

    def offer(self, task: Task) -> tuple[str, float | None]:
        answer = super().offer(task)
        if not answer[0]:
            self.watch.served(task.user, self.call_of(task))
            self.waits(task, False)
        return answer

    def waits(self, task: Task, waits: bool) -> None:
        if task.waits != waits:
            task.waits = waits
            (self.watch.waits_now if waits else self.watch.waits_no_more)(task.user, self.now)

    def refused(self, task: Task, retry_after_s: float | None) -> None:
        task.attempt += 1
        self.waits(task, True)
        self.put_off(task)

    def failed(self, task: Task, call: Call | None) -> None:
        self.watch.not_served(task.user, self.call_of(task))
        self.put_off(task)

    def put_off(self, task: Task) -> None:
        raise NotImplementedError


class AtOnce(Alone):
    name = "retry at once"

    def __init__(self, given: Work, seed: int) -> None:
        super().__init__(given, seed)
        self.crowd: list[Task] = []

    def put_off(self, task: Task) -> None:
        self.crowd.append(task)

    def tick(self) -> None:
        """A round trip: all who were refused ask again, in any order. After fifty refusals in a row the rest of the
        round counts as refused too, without being asked one by one."""
        crowd, refused, again = self.crowd, 0, list[Task]()
        self.watch.retries += len(crowd)
        for place in range(len(crowd)):
            other = self.random.randrange(place, len(crowd))
            crowd[place], crowd[other] = crowd[other], crowd[place]
            if self.offer(crowd[place])[0]:
                refused += 1
                self.waits(crowd[place], True)
                again.append(crowd[place])
            else:
                refused = 0
            if refused == 50:
                rest = crowd[place + 1 :]
                self.provider.refused += len(rest)
                for task in rest:
                    self.waits(task, True)
                again += rest
                break
        self.crowd = again
        self.at(self.now + ROUND_TRIP_S, self.tick)


class BacksOff(Alone):
    name = "backoff, each alone"

    def put_off(self, task: Task) -> None:
        self.at(self.now + full_jitter_s(task.attempt, USUAL, self.random.random), self.again, task)

    def again(self, task: Task) -> None:
        self.watch.retries += 1
        self.send(task)


def simulate(*, users: int = 10_000, tasks: int = 100_000, seed: int = 5, part: float = 1.0) -> dict[str, Any]:
    """Runs all three and returns {strategy: figures}. `part`: of the limits, for smaller runs."""
    limits = Limits(**{name: int(value * part) for name, value in LIMITS.as_json().items()})
    found = {}
    for strategy in (Product, AtOnce, BacksOff):
        began = time.monotonic()
        given = work(users=users, tasks=tasks, seed=seed, limits=limits, begins_within_s=1_200.0)
        run = strategy(given, seed)
        run.run()
        found[run.name] = figures_of(run) | {"took_s": round(time.monotonic() - began, 1)}
    return found


def figures_of(run: Run) -> dict[str, float]:
    watch = run.watch
    utilisation, minutes = watch.utilisation()
    fairness, over = watch.fairness()
    waits, small = sorted(watch.waits), sorted(watch.small_waits) or [0.0]
    figures = {
        "utilisation": round(utilisation, 4),
        "minutes_contended": minutes,
        "jain": round(fairness, 4),
        "jain_users": over,
        "wait_p50_s": round(waits[len(waits) // 2], 1),
        "wait_p99_s": round(waits[len(waits) * 99 // 100], 1),
        "wait_max_s": round(waits[-1], 1),
        "small_p99_s": round(small[len(small) * 99 // 100], 1),
        "calls": watch.answers,
        "retries": watch.retries,
        "refused": run.provider.refused,
        "faults": watch.faults,
        "ended_min": round(watch.ended_at / 60, 1),
    }
    if isinstance(run, Product):
        figures |= {
            "retries_at_most": round(run.most_retries),
            "circuit_opened": run.openings,
            "longest_queue": run.longest,
        }
    return figures
