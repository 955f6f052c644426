"""Builds what a model is sent, and the manifest that says what that was. Nothing is dropped: see `fits`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace

from workspaces.domain.context import Line, Manifest, estimate_tokens, in_request_order
from workspaces.domain.effects import canonical_json
from workspaces.models import Branch, ProfileVersion, Task
from workspaces.providers.base import ChatMessage, ChatRequest, RawToolCall, ToolSchema
from workspaces.queries.history import as_lines, conversation
from workspaces.tools.base import Tool

RULES = (
    "You work in a sandbox; /workspace is your working directory and keeps its files. Act by calling tools. "
    "When the instruction is fulfilled, or cannot be, call finish and say so."
)


def build(
    task: Task, branch: Branch, version: ProfileVersion, tools: Mapping[str, Tool]
) -> tuple[ChatRequest, Manifest]:
    """The request for the next model call of a line of history."""
    stored = conversation(branch)
    ordered = in_request_order(as_lines(stored))
    system = _system_prompt(task, version)
    schemas = tuple(ToolSchema(tool.spec.name, tool.spec.description, tool.spec.parameters) for tool in tools.values())
    request = ChatRequest(
        model=version.model,
        messages=(ChatMessage("system", system), *(_as_message(line) for line in ordered)),
        tools=schemas,
        max_output_tokens=version.max_output_tokens,
        temperature=version.temperature,
    )
    manifest = Manifest(
        ranges=_ranges([(message.branch_id, message.seq) for message in stored]),
        messages=len(stored),
        message_tokens=sum(line.tokens for line in ordered),
        system_tokens=estimate_tokens(system),
        tool_tokens=sum(
            estimate_tokens(schema.name + schema.description + canonical_json(dict(schema.parameters)))
            for schema in schemas
        ),
        reserved_output_tokens=version.max_output_tokens,
        window_tokens=version.context_window_tokens,
    )
    return request, replace(manifest, request_hash=request_hash(request))


def request_hash(request: ChatRequest) -> str:
    """SHA-256 (hex) of everything that is sent."""
    digest = hashlib.sha256()

    def take(*parts: object) -> None:
        digest.update(json.dumps(parts, sort_keys=True, separators=(",", ":")).encode())

    take(request.model, request.max_output_tokens, request.temperature)
    for message in request.messages:
        take(message.role, message.content, message.tool_call_id)
        for call in message.tool_calls:
            take(call.call_id, call.name, call.arguments)
    for tool in request.tools:
        take(tool.name, tool.description, tool.parameters)
    return digest.hexdigest()


def _system_prompt(task: Task, version: ProfileVersion) -> str:
    parts = [version.system_prompt.strip(), RULES]
    pad = {name: text for name, text in task.scratchpad.items() if text.strip()}
    if pad:
        notes = "\n\n".join(f"## {name}\n{text}" for name, text in sorted(pad.items()))
        parts.append(f"# Your scratchpad\n{notes}")
    return "\n\n".join(part for part in parts if part)


def _as_message(line: Line) -> ChatMessage:
    calls = tuple(RawToolCall(c["call_id"], c["name"], c["arguments"]) for c in line.calls)
    role = line.role if line.role in ("assistant", "tool") else "user"
    return ChatMessage(role, line.content, calls, line.call_id)  # type: ignore[arg-type]


def _ranges(places: list[tuple[int, int]]) -> tuple[tuple[int, int, int], ...]:
    """(branch id, seq) in order → (branch id, first seq, last seq) a branch."""
    spans: list[tuple[int, int, int]] = []
    for branch_id, seq in places:
        if spans and spans[-1][0] == branch_id:
            spans[-1] = (branch_id, spans[-1][1], seq)
        else:
            spans.append((branch_id, seq, seq))
    return tuple(spans)
