"""Makes a conversation sendable: what one server let through, another must not choke on. Pure.

- Arguments that are no JSON object are sent as `{"_unparsed": "<the text, at most 4,000 characters>"}`:
  echoing the text itself made a real server answer 500 to every later request of the conversation.
- Every call has exactly one result directly after it, and every result has its call: a result that lost its
  call (its message was compacted) is sent as text, a call without a result gets one that says so.
- Tool names and call ids hold only what every vendor accepts.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterable
from dataclasses import replace

from workspaces.domain.call_arguments import loads
from workspaces.domain.text import clean_json, clean_text, clip
from workspaces.providers.base import ChatMessage, RawToolCall

NO_RESULT = "[no result was recorded for this call]"
_LOST_CALL = "[result of an earlier call that is no longer in this conversation]"
_UNPARSED_CHARS = 4000
_MAX_ID_CHARS = _MAX_NAME_CHARS = 200  # as they are stored


def new_call_id() -> str:
    """An id for a call that a server sent without one."""
    return f"call_{uuid.uuid4().hex[:24]}"


def with_unique_ids(calls: Iterable[RawToolCall]) -> tuple[RawToolCall, ...]:
    """Every call with an id of its own: missing, repeated and endless ids are replaced, endless names cut."""
    seen: set[str] = set()
    unique = []
    for call in calls:
        fits = 0 < len(call.call_id) <= _MAX_ID_CHARS and call.call_id not in seen
        call_id = call.call_id if fits else new_call_id()
        seen.add(call_id)
        unique.append(replace(call, call_id=call_id, name=clip(call.name, _MAX_NAME_CHARS)))
    return tuple(unique)


def argument_object(text: str) -> dict[str, object]:
    """The arguments as an object that can be sent; nothing is an empty object."""
    if not text.strip():
        return {}
    try:
        value = loads(text)
    except (ValueError, RecursionError):
        value = None
    if isinstance(value, dict):
        cleaned: dict[str, object] = clean_json(value)
        return cleaned
    return {"_unparsed": clip(clean_text(text), _UNPARSED_CHARS)}


def sendable_name(name: str) -> str:
    """At most 64 of the characters that OpenAI and Anthropic accept in a tool's name."""
    return re.sub(r"[^a-zA-Z0-9_-]", "_", name)[:64] or "unnamed"


def sendable_id(call_id: str) -> str:
    return re.sub(r"[^a-zA-Z0-9_-]", "_", call_id) or "call"


def sendable(messages: Iterable[ChatMessage]) -> list[ChatMessage]:
    """The same conversation, with clean text, clean names and ids, and calls and results in pairs."""
    todo = list(messages)
    ready: list[ChatMessage] = []
    while todo:
        message = todo.pop(0)
        content = clean_text(message.content)
        if message.role == "tool":
            ready.append(ChatMessage("user", f"{_LOST_CALL}\n{content}"))
        elif message.role == "assistant" and message.tool_calls:
            calls = tuple(
                RawToolCall(
                    sendable_id(call.call_id),
                    sendable_name(call.name),
                    json.dumps(argument_object(call.arguments), ensure_ascii=False),
                )
                for call in message.tool_calls
            )
            ready.append(ChatMessage("assistant", content, calls))
            ready += _take_results(calls, todo)
        else:
            ready.append(ChatMessage(message.role, content))
    return ready


def _take_results(calls: tuple[RawToolCall, ...], todo: list[ChatMessage]) -> list[ChatMessage]:
    """The results of `calls` in their order, taken out of the messages up to the next assistant message."""
    end = next((at for at, message in enumerate(todo) if message.role == "assistant"), len(todo))
    results = []
    for call in calls:
        found = next(
            (
                at
                for at in range(min(end, len(todo)))
                if todo[at].role == "tool" and sendable_id(todo[at].tool_call_id) == call.call_id
            ),
            None,
        )
        content = NO_RESULT
        if found is not None:
            content = clean_text(todo.pop(found).content)
            end -= 1
        results.append(ChatMessage("tool", content, tool_call_id=call.call_id))
    return results
