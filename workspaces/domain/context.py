"""What a model is sent: the order of messages, their token estimates, the manifest. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

CHARS_PER_TOKEN = 3.6  # English and code, by OpenAI's and Anthropic's guidance of about 4, rounded to be safe
MESSAGE_OVERHEAD_TOKENS = 4


def estimate_tokens(content: str, calls: Sequence[dict[str, str]] = ()) -> int:
    """Estimated tokens of one message: its text and its calls."""
    chars = len(content) + sum(len(call.get("name", "")) + len(call.get("arguments", "")) for call in calls)
    return int(chars / CHARS_PER_TOKEN) + MESSAGE_OVERHEAD_TOKENS


@dataclass(frozen=True, slots=True)
class Line:
    """One stored message, as the context builder sees it."""

    seq: int
    part: int
    role: str
    content: str
    calls: tuple[dict[str, str], ...] = ()
    call_id: str = ""
    tokens: int = 0
    pinned: bool = False


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
    """What one request holds. `ranges`: [branch id, first seq, last seq] of the messages, never copies."""

    ranges: tuple[tuple[int, int, int], ...]
    messages: int
    message_tokens: int
    system_tokens: int
    tool_tokens: int
    reserved_output_tokens: int
    window_tokens: int
    request_hash: str = ""

    @property
    def prompt_tokens(self) -> int:
        return self.message_tokens + self.system_tokens + self.tool_tokens

    @property
    def fits(self) -> bool:
        return self.prompt_tokens + self.reserved_output_tokens <= self.window_tokens

    def as_json(self) -> dict[str, Any]:
        return {
            "ranges": [list(span) for span in self.ranges],
            "messages": self.messages,
            "message_tokens": self.message_tokens,
            "system_tokens": self.system_tokens,
            "tool_tokens": self.tool_tokens,
            "prompt_tokens": self.prompt_tokens,
            "reserved_output_tokens": self.reserved_output_tokens,
            "window_tokens": self.window_tokens,
            "request_hash": self.request_hash,
        }
