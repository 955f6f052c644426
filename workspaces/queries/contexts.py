"""A request from durable history: the next one, and that of any past step, to the last byte. Writes nothing.

Both go the same way, so a step's manifest need not hold what was sent: as of which seq is enough.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from django.db.models import Q

from workspaces.domain.context import (
    FORM,
    MESSAGES,
    Entry,
    History,
    How,
    Manifest,
    Replaced,
    SegmentKind,
    Summarised,
    entries_of,
    estimate_tokens,
)
from workspaces.domain.effects import canonical_json
from workspaces.domain.scratchpad import head
from workspaces.domain.tokens import Calibration
from workspaces.domain.truncation import window_with
from workspaces.models import (
    Branch,
    ContextFrame,
    Message,
    ProfileVersion,
    Replacement,
    Step,
    Summary,
)
from workspaces.providers.base import ChatMessage, ChatRequest, RawToolCall, ToolSchema
from workspaces.queries.calibration import Limits
from workspaces.queries.history import Span, as_lines, line_of, on_line
from workspaces.queries.scratchpad import pad_on
from workspaces.queries.tuning import as_sent, manifest_of
from workspaces.tools.base import Tool

RULES = (
    "You work in a sandbox; /workspace is your working directory and keeps its files. Act by calling tools. "
    "When the instruction is fulfilled, or cannot be, call finish and say so."
)


class NotRebuilt(Exception):
    """A past request cannot be had any more; the text says why."""


@dataclass(frozen=True)
class Frame:
    """What a request holds besides history: the runtime's own rules and the tools. Stored once, by its hash."""

    rules: str
    tools: tuple[ToolSchema, ...]

    @cached_property
    def hash(self) -> str:
        return hashlib.sha256(canonical_json({"rules": self.rules, "tools": self.tools_json()}).encode()).hexdigest()

    def tools_json(self) -> list[list[object]]:
        return [[tool.name, tool.description, dict(tool.parameters)] for tool in self.tools]


@dataclass(frozen=True, slots=True)
class Built:
    """A request, the manifest that describes it, and what it was made from."""

    request: ChatRequest
    manifest: Manifest
    frame: Frame
    entries: tuple[Entry, ...]
    history: History
    system: str  # profile's prompt and rules
    notes: str  # the head of the scratchpad
    scratchpad: Mapping[str, str]
    limits: Limits


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """A past step's request. `exact`: its hash is the one of what was sent."""

    built: Built
    exact: bool

    @property
    def request(self) -> ChatRequest:
        return self.built.request

    @property
    def manifest(self) -> Manifest:
        return self.built.manifest


@dataclass(frozen=True, slots=True)
class Item:
    """A part of what was sent, with its text. `seq` None: it is no message (system prompt, a tool, the scratchpad)."""

    seq: int | None
    part: int
    role: str
    text: str
    kind: SegmentKind
    tokens: int
    message_id: int | None = None
    replaced_from_tokens: int | None = None  # it was longer: this many tokens
    path: str = ""  # where the whole lies in the workspace
    name: str = ""  # of what is no message: "prompt", "scratchpad", a tool's


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of the window. Those of `reserved_output` and `free` have no items."""

    kind: SegmentKind
    tokens: int
    items: tuple[Item, ...] = ()


def frame_of(tools: Mapping[str, Tool]) -> Frame:
    """The frame of a request that is made now."""
    schemas = tuple(ToolSchema(tool.spec.name, tool.spec.description, tool.spec.parameters) for tool in tools.values())
    return Frame(RULES, schemas)


def stored_frame(digest: str) -> Frame:
    """Raises NotRebuilt."""
    row = ContextFrame.objects.filter(pk=digest).first()
    if row is None:
        raise NotRebuilt("the rules and tools that its request was framed with were not kept")
    return Frame(row.rules, tuple(ToolSchema(*tool) for tool in row.tools))


def build(
    branch: Branch,
    version: ProfileVersion,
    frame: Frame,
    *,
    as_of: int,
    scratchpad: Mapping[str, str],
    limits: Limits | None = None,
) -> Built:
    """The request at the end of a branch as of a seq of its task. `limits` None: those of the profile alone."""
    history, ranges = history_of(branch, as_of)
    return made(version, frame, history, ranges, as_of=as_of, scratchpad=scratchpad, limits=limits)


def made(
    version: ProfileVersion,
    frame: Frame,
    history: History,
    ranges: tuple[tuple[int, int, int], ...],
    *,
    as_of: int,
    scratchpad: Mapping[str, str],
    limits: Limits | None = None,
) -> Built:
    """The request of a history that is in hand."""
    limits = limits or Limits(version.context_window_tokens)
    window, reserved = window_with(version.context_window_tokens, limits.learned_tokens, version.max_output_tokens)
    entries = entries_of(history)
    system = "\n\n".join(part for part in (version.system_prompt.strip(), frame.rules) if part)
    notes = notes_of(scratchpad)
    request = ChatRequest(
        model=version.model,
        messages=(
            ChatMessage("system", "\n\n".join(part for part in (system, notes) if part)),
            *(_as_message(entry) for entry in entries),
        ),
        tools=frame.tools,
        max_output_tokens=version.max_output_tokens,
        temperature=version.temperature,
    )
    segments = {
        SegmentKind.SYSTEM: (1, estimate_tokens(system)),
        SegmentKind.TOOLS: (len(frame.tools), sum(_tool_tokens(tool) for tool in frame.tools)),
    }
    for kind in MESSAGES:
        of_kind = [entry.tokens for entry in entries if entry.kind is kind]
        segments[kind] = (len(of_kind), sum(of_kind))
    if notes:
        count, tokens = segments[SegmentKind.PINNED]
        segments[SegmentKind.PINNED] = (count + 1, tokens + estimate_tokens(notes))
    manifest = Manifest(
        as_of_seq=as_of,
        ranges=ranges,
        messages=len(entries),
        segments=segments,
        reserved_output_tokens=reserved,
        window_tokens=window,
        calibration=limits.calibration,
        learned_tokens=limits.learned_tokens,
        request_hash=request_hash(request),
        frame=frame.hash,
        scratchpad_hash=scratchpad_hash(scratchpad),
        summary=history.summary.summary_id if history.summary else None,
        asked_with=manifest_of(version),
    )
    return Built(request, manifest, frame, tuple(entries), history, system, notes, scratchpad, limits)


def remade(built: Built, version: ProfileVersion) -> Built:
    """The same for another version that is to answer, within its own limits."""
    manifest, limits = built.manifest, Limits.of(version)
    return made(
        version,
        built.frame,
        built.history,
        manifest.ranges,
        as_of=manifest.as_of_seq,
        scratchpad=built.scratchpad,
        limits=limits,
    )


def history_of(branch: Branch, as_of: int) -> tuple[History, tuple[tuple[int, int, int], ...]]:
    """What is on the line that leads to a branch's seq, and where the messages that were read stand.

    What a summary stands for is not read, only what is pinned of it.
    """
    on = on_line(spans_as_of(branch, as_of))
    summary = _summary_on(on)
    wanted, replaced = Message.objects.filter(on), Replacement.objects.filter(on)
    if summary is not None:
        wanted = wanted.filter(Q(pinned=True) | Q(pk__gt=summary.upto))
        replaced = replaced.filter(message_id__gt=summary.upto)
    stored = list(wanted.order_by("pk"))
    replacements = {row.message_id: _as_replaced(row) for row in replaced.order_by("pk")}
    history = History(tuple(as_lines(stored)), replacements, summary)
    return history, _ranges([(message.branch_id, message.seq) for message in stored])


def _summary_on(on: Q) -> Summarised | None:
    """The newest: it stands for all that the ones before it stood for."""
    row = Summary.objects.filter(on).order_by("-pk").first()
    if row is None:
        return None
    return Summarised(row.text, row.tokens_after, row.last_message_id, row.replies, row.pk, row.seq)


def _as_replaced(row: Replacement) -> Replaced:
    calls = None if row.calls is None else tuple(row.calls)
    return Replaced(row.message_id, How(row.how), row.text, row.tokens, calls, row.path)


def spans_as_of(branch: Branch, as_of: int) -> list[Span]:
    spans = line_of(branch)
    return [*spans[:-1], replace(spans[-1], last_seq=as_of)]


def request_of(step: Step) -> Rebuilt:
    """What the step's model was sent (the newest time, if it was asked several times). Raises NotRebuilt."""
    stored = step.manifest
    if "as_of_seq" not in stored:
        raise NotRebuilt("this step has asked no model yet, or is from before requests could be made again")
    if stored["form"] != FORM:
        raise NotRebuilt(f"its request was made in form {stored['form']}, this version makes form {FORM}")
    branch = Branch.objects.select_related("task__profile_version").get(pk=step.branch_id)
    version = as_sent(branch.task.profile_version, stored)
    frame = stored_frame(stored["frame"])
    as_of = int(stored["as_of_seq"])
    limits = Limits(
        version.context_window_tokens, Calibration.from_json(stored.get("calibration")), stored.get("learned_tokens")
    )
    built = build(branch, version, frame, as_of=as_of, scratchpad=scratchpad_as_of(branch, as_of), limits=limits)
    return Rebuilt(built, built.manifest.request_hash == stored["request_hash"])


def segments_of(step: Step) -> list[Segment]:
    """What took which part of the step's window, with the exact text. Raises NotRebuilt."""
    return segments_in(request_of(step).built)


def items_in(built: Built) -> list[Item]:
    """Every part of a request with its text, in the order in which it is sent."""
    system = Item(
        None, 0, "system", built.system, SegmentKind.SYSTEM, built.manifest.tokens(SegmentKind.SYSTEM), name="prompt"
    )
    items = [system]
    if built.notes:
        tokens = estimate_tokens(built.notes)
        items.append(Item(None, 0, "system", built.notes, SegmentKind.PINNED, tokens, name="scratchpad"))
    items += [
        Item(None, at, "tool", _tool_text(tool), SegmentKind.TOOLS, _tool_tokens(tool), name=tool.name)
        for at, tool in enumerate(built.request.tools)
    ]
    return [*items, *(_item(entry, built.history) for entry in built.entries)]


def segments_in(built: Built) -> list[Segment]:
    manifest = built.manifest
    items: dict[SegmentKind, list[Item]] = {SegmentKind.SYSTEM: [], SegmentKind.TOOLS: []}
    for item in items_in(built):
        items.setdefault(item.kind, []).append(item)
    segments = [Segment(kind, manifest.tokens(kind), tuple(found)) for kind, found in items.items()]
    taken = manifest.expected_tokens + manifest.reserved_output_tokens
    order = list(SegmentKind)
    return [
        *sorted(segments, key=lambda segment: order.index(segment.kind)),
        Segment(SegmentKind.RESERVED, manifest.reserved_output_tokens),
        Segment(SegmentKind.FREE, max(0, manifest.window_tokens - taken)),
    ]


def _item(entry: Entry, history: History) -> Item:
    text = entry.text + "".join(f"\n→ {call['name']} {call['arguments']}" for call in entry.calls)
    line = entry.line
    if line is None:
        seq = history.summary.seq if history.summary else None
        return Item(seq, 0, entry.role, text, entry.kind, entry.tokens)
    before = line.tokens if entry.replaced else None
    path = entry.replaced.path if entry.replaced else ""
    return Item(line.seq, line.part, entry.role, text, entry.kind, entry.tokens, line.message_id, before, path)


def notes_of(scratchpad: Mapping[str, str]) -> str:
    """The head of the scratchpad, as the system message ends with it."""
    notes = head(scratchpad)
    return f"# Your scratchpad\n{notes}" if notes else ""


def scratchpad_as_of(branch: Branch, as_of: int) -> dict[str, str]:
    """The notes that stood on the line at a seq."""
    return pad_on(spans_as_of(branch, as_of))


def scratchpad_hash(scratchpad: Mapping[str, str]) -> str:
    return hashlib.sha256(canonical_json(dict(scratchpad)).encode()).hexdigest()


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


def _tool_text(tool: ToolSchema) -> str:
    return f"{tool.name}: {tool.description}\n{canonical_json(dict(tool.parameters))}"


def _tool_tokens(tool: ToolSchema) -> int:
    return estimate_tokens(tool.name + tool.description + canonical_json(dict(tool.parameters)))


def _as_message(entry: Entry) -> ChatMessage:
    calls = tuple(RawToolCall(c["call_id"], c["name"], c["arguments"]) for c in entry.calls)
    return ChatMessage(entry.role, entry.text, calls, entry.call_id)  # type: ignore[arg-type]


def _ranges(places: Sequence[tuple[int, int]]) -> tuple[tuple[int, int, int], ...]:
    """(branch id, seq) in order → (branch id, first seq, last seq) a branch."""
    spans: list[tuple[int, int, int]] = []
    for branch_id, seq in places:
        if spans and spans[-1][0] == branch_id:
            spans[-1] = (branch_id, spans[-1][1], seq)
        else:
            spans.append((branch_id, seq, seq))
    return tuple(spans)
