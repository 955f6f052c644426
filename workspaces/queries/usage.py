"""Tokens and money of a task, step by step."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from workspaces.models import ModelCall, Step, Task

CHARTED_STEPS = 500


@dataclass(frozen=True, slots=True)
class StepUsage:
    """Tokens as the provider counted them; `cost_usd` None: a price is unknown."""

    step: int
    branch: int
    prompt_tokens: int
    output_tokens: int
    cost_usd: Decimal | None

    def plus(self, other: StepUsage) -> StepUsage:
        known = self.cost_usd is not None and other.cost_usd is not None
        return StepUsage(
            self.step,
            self.branch,
            self.prompt_tokens + other.prompt_tokens,
            self.output_tokens + other.output_tokens,
            (self.cost_usd or Decimal(0)) + (other.cost_usd or Decimal(0)) if known else None,
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
        )[:limit]
    )
    found: dict[tuple[int, int], StepUsage] = {}
    for step, branch, fresh, cached, written, output, cost in reversed(list(calls)):
        one = StepUsage(step, branch, (fresh or 0) + (cached or 0) + (written or 0), output or 0, cost)
        known = found.get((branch, step))
        found[branch, step] = one if known is None else known.plus(one)
    return list(found.values())


@dataclass(frozen=True, slots=True)
class Bar:
    """A part of the window: where it begins and how wide it is, in percent of the window."""

    name: str
    tokens: int
    start_percent: float
    percent: float


@dataclass(frozen=True, slots=True)
class ContextUse:
    """The newest step's manifest in tokens (estimates), and each part's share of the window in percent."""

    step: int
    messages: int
    bars: list[Bar]
    used_tokens: int
    free_tokens: int
    window_tokens: int
    ranges: list[list[int]]


def context_use(task: Task) -> ContextUse | None:
    """None before the first model call of the current branch."""
    step = Step.objects.filter(branch=task.branch).exclude(manifest={}).order_by("-number").first()
    return _use(step.number, step.manifest) if step else None


def context_of(step: Step) -> ContextUse | None:
    """The same of any step; None when it has no manifest."""
    return _use(step.number, step.manifest) if step.manifest else None


def _use(step: int, manifest: dict[str, Any]) -> ContextUse:
    window = max(1, int(manifest.get("window_tokens") or 1))
    named = [
        ("system prompt", "system_tokens"),
        ("tools", "tool_tokens"),
        ("messages", "message_tokens"),
        ("kept for the reply", "reserved_output_tokens"),
    ]
    bars: list[Bar] = []
    used = 0
    for name, key in named:
        tokens = int(manifest.get(key) or 0)
        bars.append(Bar(name, tokens, round(100 * used / window, 2), round(100 * tokens / window, 2)))
        used += tokens
    return ContextUse(
        step=step,
        messages=int(manifest.get("messages") or 0),
        bars=bars,
        used_tokens=used,
        free_tokens=max(0, window - used),
        window_tokens=window,
        ranges=manifest.get("ranges") or [],
    )
