"""Tokens and money of a task, step by step."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from workspaces.domain.states import ModelCallPurpose
from workspaces.domain.tokens import error_percent
from workspaces.models import ModelCall, Task

CHARTED_STEPS = 500


@dataclass(frozen=True, slots=True)
class StepUsage:
    """Tokens as the provider counted them; `cost_usd` None: a price is unknown.

    `expected_tokens`: what the step's own request was foretold to be counted as; `counted_tokens`: as it was. None: not
    known.
    """

    step: int
    branch: int
    prompt_tokens: int
    output_tokens: int
    cost_usd: Decimal | None
    expected_tokens: int | None = None
    counted_tokens: int | None = None

    @property
    def error_percent(self) -> float | None:
        if self.expected_tokens is None or not self.counted_tokens:
            return None
        return error_percent(self.expected_tokens, self.counted_tokens)

    def plus(self, other: StepUsage) -> StepUsage:
        known = self.cost_usd is not None and other.cost_usd is not None
        return StepUsage(
            self.step,
            self.branch,
            self.prompt_tokens + other.prompt_tokens,
            self.output_tokens + other.output_tokens,
            (self.cost_usd or Decimal(0)) + (other.cost_usd or Decimal(0)) if known else None,
            self.expected_tokens if self.expected_tokens is not None else other.expected_tokens,
            self.counted_tokens if self.counted_tokens is not None else other.counted_tokens,
        )


def usage_by_step(task: Task, *, limit: int = CHARTED_STEPS) -> list[StepUsage]:
    """Of the newest `limit` replies, oldest first: what a step asked beside its own reply is in its sum."""
    calls = (
        ModelCall.objects.filter(task=task, status="replied")
        .order_by("-pk")
        .values_list(
            "step__number",
            "step__branch__number",
            "input_tokens",
            "cached_input_tokens",
            "cache_write_tokens",
            "output_tokens",
            "cost_usd",
            "purpose",
            "step__manifest__expected_tokens",
        )[:limit]
    )
    found: dict[tuple[int, int], StepUsage] = {}
    for step, branch, fresh, cached, written, output, cost, purpose, expected in reversed(list(calls)):
        prompt = (fresh or 0) + (cached or 0) + (written or 0)
        own = purpose == ModelCallPurpose.STEP.value
        one = StepUsage(
            step,
            branch,
            prompt,
            output or 0,
            cost,
            expected_tokens=expected if own else None,
            counted_tokens=prompt if own and fresh is not None else None,
        )
        known = found.get((branch, step))
        found[branch, step] = one if known is None else known.plus(one)
    return list(found.values())
