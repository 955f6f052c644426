"""What a pool's row says at a moment: use against each limit, what holds it back, how long a place may take.

Reads the row as it was loaded, without a lock: a page that is a moment late is right a moment later.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from workspaces.domain.fair_queue import Rules, obstacle
from workspaces.domain.quota_meters import Meter, meters
from workspaces.domain.quotas import Claim, Limits, PoolState, Use
from workspaces.domain.retry_budget import RetryPolicy
from workspaces.domain.states import Circuit
from workspaces.domain.waits import expected_wait_s, why
from workspaces.models import QuotaPool


@dataclass(frozen=True, slots=True)
class Situation:
    pool: QuotaPool
    now: datetime
    state: PoolState
    limits: Limits  # that bind: by hand, never above what the provider says
    meters: list[Meter]

    @classmethod
    def of(cls, pool: QuotaPool, now: datetime) -> Situation:
        state = PoolState.from_json(pool.state)
        state.forget(now.timestamp())
        limits = Limits.binding(pool.limits, pool.learned)
        used = {
            "requests_per_minute": state.requests,
            "input_tokens_per_minute": state.input_tokens,
            "output_tokens_per_minute": state.output_tokens + state.held_output,
            "concurrent_calls": state.in_flight,
            "tokens_per_day": state.day_tokens + state.held_output,
        }
        held = dict.fromkeys(("output_tokens_per_minute", "tokens_per_day"), state.held_output)
        return cls(pool, now, state, limits, meters(pool.limits, pool.learned, used, held))

    @property
    def blocked(self) -> bool:
        return self.pool.blocked_until is not None and self.pool.blocked_until > self.now

    @property
    def open_until(self) -> datetime | None:
        """When an open circuit lets one call try."""
        if self.pool.circuit != Circuit.OPEN.value or not self.state.open_until:
            return None
        return datetime.fromtimestamp(self.state.open_until, UTC)

    @property
    def ramp(self) -> int | None:
        """Calls at once that the pool allows itself after refusals; None: no such bound."""
        return None if self.state.ramp is None else max(1, int(self.state.ramp))

    def expected_s(self, ahead: Use) -> float:
        """Until everything in `ahead` has been let through."""
        return expected_wait_s(self.state, self.limits, ahead, self.now.timestamp())

    def later(self, claim: Claim) -> bool:
        """Its last call failed, and the next may not be made yet."""
        return claim.not_before is not None and claim.not_before > self.now.timestamp()

    def why_of(self, claim: Claim, number: int) -> str:
        """Why a claim waits, in words; `number` is its place."""
        rules = Rules(self.limits, RetryPolicy.from_json(self.pool.policy))
        return why(self.state, rules, claim, self.now.timestamp(), number=number).words

    def holds_back(self) -> str:
        """What keeps the head of the queue from going on, in words; empty when nothing does."""
        if self.pool.circuit == Circuit.OPEN.value:
            return "the circuit is open: the retry budget is empty"
        if self.blocked:
            return self.pool.blocked_reason or "the provider said to wait"
        if self.pool.circuit == Circuit.HALF_OPEN.value:
            return "one call tries whether the provider answers again"
        full = [meter for meter in self.meters if meter.full]
        if full:
            return "limit reached: " + " and ".join(
                f"{meter.words.name.lower()} {meter.words.unit}".strip() for meter in full
            )
        if self.ramp is not None and self.state.in_flight >= self.ramp:
            return "after refusals it lets through fewer calls at once"
        if obstacle(self.state, Rules(self.limits), Use(1), self.now.timestamp()) == "pace":
            return "half of the minute is used, the rest is given out evenly"
        return ""
