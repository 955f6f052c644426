"""How full a step's window is, and with what, from its manifest alone: no request is made again for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from workspaces.domain.context import SENT, SegmentKind
from workspaces.domain.tokens import Calibration
from workspaces.models import LearnedWindow, Step, Task
from workspaces.queries.tuning import asked_with

K = SegmentKind
NAMES = {
    K.SYSTEM: "system prompt",
    K.TOOLS: "tools",
    K.PINNED: "pinned",
    K.SUMMARY: "summary",
    K.RECENT: "recent turns",
    K.TOOL_OUTPUT: "tool output",
    K.RESERVED: "kept for the reply",
    K.FREE: "free",
}


@dataclass(frozen=True, slots=True)
class Bar:
    """A part of the window: where it begins and how wide it is, in percent. `tokens`: as the provider would count."""

    kind: str
    name: str
    count: int  # of messages, or tools
    tokens: int
    start_percent: float
    percent: float
    sent: bool  # has a text; the reply's room and what is free have none


@dataclass(frozen=True, slots=True)
class ContextUse:
    """A step's manifest in tokens, calibrated by what its provider counted before, and each part's share."""

    step: int
    branch: int
    messages: int
    bars: list[Bar]
    used_tokens: int
    free_tokens: int
    window_tokens: int
    calibration: Calibration
    learned_tokens: int | None  # the provider holds less than the profile says
    can_be_rebuilt: bool


def context_use(task: Task) -> ContextUse | None:
    """None before the first model call of the current branch."""
    steps = Step.objects.filter(branch=task.branch).exclude(manifest={}).select_related("branch")
    newest = steps.order_by("-number").first()
    return context_of(newest) if newest else None


def context_of(step: Step) -> ContextUse | None:
    """The same of any step; None when it has no manifest."""
    manifest = step.manifest
    if not manifest:
        return None
    window = max(1, int(manifest.get("window_tokens") or 1))
    segments = manifest.get("segments") or _older(manifest)
    estimated = sum(tokens for _, tokens in segments.values())
    expected = int(manifest.get("expected_tokens") or estimated)
    reserved = int(manifest.get("reserved_output_tokens") or 0)
    parts = [(kind, *segments.get(kind.value, (0, 0))) for kind in SENT]
    scaled = [(kind, count, _scaled(tokens, expected, estimated)) for kind, count, tokens in parts if tokens]
    free = max(0, window - expected - reserved)
    bars: list[Bar] = []
    start = 0
    for kind, count, tokens in [*scaled, (K.RESERVED, 0, reserved), (K.FREE, 0, free)]:
        share = round(100 * tokens / window, 2)
        bars.append(Bar(kind.value, NAMES[kind], count, tokens, round(100 * start / window, 2), share, kind in SENT))
        start += tokens
    return ContextUse(
        step=step.number,
        branch=step.branch.number,
        messages=int(manifest.get("messages") or 0),
        bars=bars,
        used_tokens=expected + reserved,
        free_tokens=free,
        window_tokens=window,
        calibration=Calibration.from_json(manifest.get("calibration")),
        learned_tokens=manifest.get("learned_tokens"),
        can_be_rebuilt="as_of_seq" in manifest,
    )


def learned_from(task: Task) -> LearnedWindow | None:
    """What made the task's requests keep to a smaller window, while that is not resolved.

    It may be another task's, also in a workspace that whoever sees this task does not see.
    """
    learned = LearnedWindow.objects.filter(profile_version=task.profile_version_id, model=asked_with(task).model)
    found = learned.exclude(incident__state="resolved")
    return found.select_related("incident__task").order_by("tokens").first()


def _scaled(tokens: int, expected: int, estimated: int) -> int:
    return round(tokens * expected / estimated) if estimated else 0


def _older(manifest: dict[str, Any]) -> dict[str, tuple[int, int]]:
    """Of a manifest from before there were segments."""
    names = {K.SYSTEM: "system_tokens", K.TOOLS: "tool_tokens", K.RECENT: "message_tokens"}
    return {kind.value: (0, int(manifest.get(key) or 0)) for kind, key in names.items()}
