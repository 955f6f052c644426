"""A pool in memory, for tests of the rules: the smallest queue that keeps the promise of `fair_queue.Queue`."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from workspaces.domain import retry_budget
from workspaces.domain.fair_queue import Rules, enqueue, pump, settle, take, turn, withdraw
from workspaces.domain.quotas import Claim, Limits, PoolState, Share, Use


@dataclass
class Pool:
    rules: Rules
    state: PoolState = field(default_factory=PoolState)
    shares: dict[int, Share] = field(default_factory=dict)
    claims: dict[int, Claim] = field(default_factory=dict)  # by task
    waiting: set[int] = field(default_factory=set)
    random: random.Random = field(default_factory=lambda: random.Random(7))

    def head(self, now: float, *, retries: bool = True) -> Claim | None:
        ready = [
            (self.share(claim.user).finish, claim.user, turn(claim), claim)
            for claim in (self.claims[task] for task in self.waiting)
            if (claim.not_before is None or claim.not_before <= now) and (retries or not claim.retry)
        ]
        return min(ready, key=lambda item: item[:3])[3] if ready else None

    def share(self, user: int) -> Share:
        return self.shares.setdefault(user, Share())

    def granted(self, claim: Claim, share: Share) -> None:
        self.waiting.discard(claim.task)

    def ask(
        self,
        user: int,
        task: int,
        tokens: tuple[int, int],
        now: float,
        *,
        interactive: bool = False,
        retry: bool = False,
        not_before: float | None = None,
    ) -> Claim:
        """As admission does: enters the queue and, where nobody is in it, goes at once."""
        claim = self.claims.get(task) or Claim(user, task, 0, 0)
        self.claims[task] = claim
        claim.input_tokens, claim.output_tokens = tokens
        claim.interactive, claim.retry, claim.not_before = interactive, retry, not_before
        only = not any(self.claims[other].user == user for other in self.waiting)
        enqueue(self.state, self.rules, self.share(user), claim, now, only=only)
        if self.state.waiting == 1:
            if take(self.state, self.rules, self.share(user), claim, now, self.random.random):
                self.waiting.add(task)
        else:
            self.waiting.add(task)
            self.pump(now)
        return claim

    def pump(self, now: float) -> list[Claim]:
        return pump(self.state, self.rules, self, now, self.random.random)

    def end(self, task: int, now: float, actual: Use | None) -> None:
        claim = self.claims[task]
        retry_budget.succeeded(self.state, self.rules.policy, task)
        settle(self.state, self.rules, self.share(claim.user), claim, actual, now)

    def cancel(self, task: int, now: float) -> None:
        self.waiting.discard(task)
        withdraw(self.state, self.share(self.claims[task].user), self.claims[task], now)


def pool(**limits: int) -> Pool:
    return Pool(Rules(Limits(**limits)))
