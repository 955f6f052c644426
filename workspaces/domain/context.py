"""What a model is sent, as a function of durable history: the entries in their order, their tokens, the manifest. Pure.

A history holds what was written (lines), what is sent in some messages' places (replacements) and the newest summary.
Nothing in it is ever edited, so the history as of a seq, and with it a request, can be had again at any time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from workspaces.domain.tokens import UNKNOWN, Calibration

CHARS_PER_TOKEN = 3.6  # English and code, by OpenAI's and Anthropic's guidance of about 4, rounded to be safe
MESSAGE_OVERHEAD_TOKENS = 4
FORM = 1  # of the way in which a request is made from a history: a manifest names the one that it was made by

SUMMARY_HEAD = "[Summary of {replies} earlier replies and what came of them. A record, not an instruction.]"
KEPT_ANSWER = "An operator's answer to an earlier call, kept word for word: "


def estimate_tokens(content: str, calls: Sequence[dict[str, str]] = ()) -> int:
    """Estimated tokens of one message: its text and its calls."""
    chars = len(content) + sum(len(call.get("name", "")) + len(call.get("arguments", "")) for call in calls)
    return int(chars / CHARS_PER_TOKEN) + MESSAGE_OVERHEAD_TOKENS


@dataclass(frozen=True, slots=True)
class Line:
    """One stored message, as the context builder sees it. Along a line of history `message_id` grows."""

    seq: int
    part: int
    role: str
    content: str
    calls: tuple[dict[str, str], ...] = ()
    call_id: str = ""
    tokens: int = 0
    pinned: bool = False
    message_id: int = 0


class How(StrEnum):
    """How a message that is too long is sent."""

    OFFLOADED = "offloaded"  # the whole lies in a file of the workspace
    CLIPPED = "clipped"  # head and tail; the whole stands in the trace


@dataclass(frozen=True, slots=True)
class Replaced:
    """What is sent in a message's place. `calls` None: its calls are sent as they are."""

    message_id: int
    how: How
    text: str
    tokens: int
    calls: tuple[dict[str, str], ...] | None = None
    path: str = ""


@dataclass(frozen=True, slots=True)
class Summarised:
    """Stands for every message up to the one with the id `upto` that is not pinned, `replies` of the model in all."""

    text: str
    tokens: int
    upto: int
    replies: int
    summary_id: int = 0
    seq: int = 0

    def as_sent(self) -> str:
        return f"{SUMMARY_HEAD.format(replies=self.replies)}\n{self.text}"


@dataclass(frozen=True, slots=True)
class History:
    """A line of history as of a seq. `replacements`: by message id, the newest of each."""

    lines: tuple[Line, ...]
    replacements: Mapping[int, Replaced] = field(default_factory=dict)
    summary: Summarised | None = None

    def covers(self, line: Line) -> bool:
        """Whether the summary is sent instead."""
        return self.summary is not None and line.message_id <= self.summary.upto and not line.pinned


class SegmentKind(StrEnum):
    """What a part of the window is taken by, in the order in which it is shown."""

    SYSTEM = "system"
    TOOLS = "tools"
    PINNED = "pinned"
    SUMMARY = "summary"
    RECENT = "recent"
    TOOL_OUTPUT = "tool_output"
    RESERVED = "reserved_output"
    FREE = "free"


MESSAGES = (SegmentKind.PINNED, SegmentKind.SUMMARY, SegmentKind.RECENT, SegmentKind.TOOL_OUTPUT)
SENT = (SegmentKind.SYSTEM, SegmentKind.TOOLS, *MESSAGES)


@dataclass(frozen=True, slots=True)
class Entry:
    """One message as it is sent. `line` is what was written, None for a summary."""

    kind: SegmentKind
    role: str
    text: str
    tokens: int
    calls: tuple[dict[str, str], ...] = ()
    call_id: str = ""
    line: Line | None = None
    replaced: Replaced | None = None


def entries_of(history: History) -> list[Entry]:
    """The messages of the request: what is pinned of the summarised part, the summary, then all that follows."""
    summary = history.summary
    upto = summary.upto if summary else 0
    sent = [_kept(line) for line in history.lines if line.message_id <= upto and line.pinned]
    if summary is not None:
        sent.append(Entry(SegmentKind.SUMMARY, "user", summary.as_sent(), summary.tokens))
    followers = in_request_order(line for line in history.lines if line.message_id > upto)
    sent.extend(_as_entry(line, history.replacements.get(line.message_id)) for line in followers)
    return sent


def _kept(line: Line) -> Entry:
    """A pinned message whose turn is summarised, word for word. An answer no longer stands behind its call."""
    if line.role == "user":
        return Entry(SegmentKind.PINNED, "user", line.content, line.tokens, line=line)
    text = KEPT_ANSWER + line.content
    return Entry(SegmentKind.PINNED, "user", text, estimate_tokens(text), line=line)


def _as_entry(line: Line, replaced: Replaced | None) -> Entry:
    role = line.role if line.role in ("assistant", "tool") else "user"
    if line.pinned:
        kind, replaced = SegmentKind.PINNED, None
    else:
        kind = SegmentKind.TOOL_OUTPUT if role == "tool" else SegmentKind.RECENT
    if replaced is None:
        return Entry(kind, role, line.content, line.tokens, line.calls, line.call_id, line)
    calls = line.calls if replaced.calls is None else replaced.calls
    return Entry(kind, role, replaced.text, replaced.tokens, calls, line.call_id, line, replaced)


def in_request_order(lines: Iterable[Line]) -> list[Line]:
    """Put each tool result right behind the assistant message that asked for it.

    What came in between (an operator's message while a call was running) follows the results: every vendor
    refuses a conversation in which a call's answer does not stand next to the call.
    """
    ordered: list[Line] = []
    postponed: list[Line] = []
    awaited: set[str] = set()
    for line in lines:
        if awaited and line.role != "tool":
            postponed.append(line)
            continue
        ordered.append(line)
        if line.role == "assistant":
            awaited = {call["call_id"] for call in line.calls}
        elif line.role == "tool":
            awaited.discard(line.call_id)
        if not awaited and postponed:
            ordered.extend(postponed)
            postponed = []
    return ordered + postponed


@dataclass(frozen=True, slots=True)
class Manifest:
    """What one request holds: as of which seq it was built and what takes how many tokens, never a copy of it.

    `ranges`: [branch id, first seq, last seq] of the messages that were read. `frame`: the hash of what is no history
    (the runtime's rules, the tools). `segments`: kind → (how many parts, tokens). `summary`: its row's id.
    """

    as_of_seq: int
    ranges: tuple[tuple[int, int, int], ...]
    messages: int  # that are sent, the system message not counted
    segments: Mapping[SegmentKind, tuple[int, int]]
    reserved_output_tokens: int
    window_tokens: int
    request_hash: str = ""
    frame: str = ""
    scratchpad_hash: str = ""
    summary: int | None = None
    form: int = FORM
    calibration: Calibration = UNKNOWN
    learned_tokens: int | None = None  # the provider holds less than the profile's window says
    asked_with: Mapping[str, Any] | None = None  # model, output limit and window, where they are not the profile's

    def tokens(self, *kinds: SegmentKind) -> int:
        return sum(self.segments.get(kind, (0, 0))[1] for kind in kinds)

    @property
    def prompt_tokens(self) -> int:
        return self.tokens(*SENT)

    @property
    def expected_tokens(self) -> int:
        """What the provider is expected to count for the prompt."""
        return self.calibration.tokens(self.prompt_tokens)

    @property
    def fits(self) -> bool:
        return self.expected_tokens + self.reserved_output_tokens <= self.window_tokens

    def as_json(self) -> dict[str, Any]:
        """Bounded, however long the history is. The sums are for what reads manifests without this module."""
        return {
            "form": self.form,
            "as_of_seq": self.as_of_seq,
            "ranges": [list(span) for span in self.ranges],
            "segments": {kind.value: list(self.segments.get(kind, (0, 0))) for kind in SENT},
            "messages": self.messages,
            "message_tokens": self.tokens(*MESSAGES),
            "system_tokens": self.tokens(SegmentKind.SYSTEM),
            "tool_tokens": self.tokens(SegmentKind.TOOLS),
            "prompt_tokens": self.prompt_tokens,
            "expected_tokens": self.expected_tokens,
            "calibration": self.calibration.as_json(),
            "learned_tokens": self.learned_tokens,
            "reserved_output_tokens": self.reserved_output_tokens,
            "window_tokens": self.window_tokens,
            "summary": self.summary,
            "frame": self.frame,
            "scratchpad_hash": self.scratchpad_hash,
            "request_hash": self.request_hash,
            **({"asked_with": dict(self.asked_with)} if self.asked_with else {}),
        }
