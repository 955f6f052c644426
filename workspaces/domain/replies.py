"""Reads a model's reply: which calls it proposes, how each was read, and what is wrong with it. Pure.

Nothing is repaired in silence: a call that was found in the text, or an argument text that was read in
another way than it was written, says so in `correction`. Whether a call is allowed is the gate's matter.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from workspaces.domain.call_arguments import CallProblem, read_arguments
from workspaces.domain.calls_in_text import find_calls
from workspaces.domain.text import clean_text

ReplyKind = Literal["calls", "text", "empty", "cut_off"]
_MAX_CALLS_IN_TEXT = 64


class NativeCall(Protocol):
    """A call as a provider handed it over (RawToolCall fits)."""

    @property
    def call_id(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def arguments(self) -> str: ...


@dataclass(frozen=True, slots=True)
class ProposedCall:
    """One call as it was read. `arguments` is None exactly when there is a `problem`.

    `raw` is the model's own text (the arguments of a native call, the whole object of a fenced one); `detail`
    says where and why it could not be read; `correction` what was read differently than written, else "".
    """

    call_id: str
    name: str
    arguments: dict[str, Any] | None
    raw: str
    problem: CallProblem | None = None
    detail: str = ""
    source: Literal["native", "fenced"] = "native"
    correction: str = ""


@dataclass(frozen=True, slots=True)
class ReplyReading:
    """The reply as a whole. `text` is what is left for people to read; `cut_off` has no call that can run.

    kind "calls": at least one call, each perhaps with a problem. "text": words and no call. "empty": neither.
    "cut_off": it ended at the token limit (or broke off) before it said anything complete.
    """

    kind: ReplyKind
    calls: tuple[ProposedCall, ...]
    text: str


def read_reply(
    text: str,
    calls: Sequence[NativeCall] = (),
    finish_reason: str = "stop",
    *,
    known_tools: Collection[str] = (),
    id_seed: str = "",
) -> ReplyReading:
    """Read one reply. Ids of calls found in the text are made from `id_seed`, their text and their place.

    The same reply with the same seed is read to the same ids, so that a step that is read again after a
    crash meets its own calls; give a seed that is unique in the conversation (the step's).
    """
    text = clean_text(text)
    limited = finish_reason == "length"
    if calls:
        read = tuple(_native(call, limited and at == len(calls) - 1) for at, call in enumerate(calls))
        return ReplyReading("calls", read, text)
    found, rest = _calls_in_text(text, limited, frozenset(known_tools), id_seed)
    if found:
        return ReplyReading("calls", found, rest)
    if limited:
        return ReplyReading("cut_off", (), text)
    return ReplyReading("text" if text.strip() else "empty", (), text)


def _native(call: NativeCall, limited: bool) -> ProposedCall:
    raw, name = clean_text(call.arguments), clean_text(call.name).strip()
    call_id = clean_text(call.call_id)
    if not raw.strip() and not limited:
        note = "no arguments were given: read as an empty object"
        return ProposedCall(call_id, name, {}, raw, correction=note)
    value, problem, detail, correction = read_arguments(raw, limited)
    return ProposedCall(call_id, name, value, raw, problem, detail, correction=correction)


def _calls_in_text(text: str, limited: bool, known: frozenset[str], seed: str) -> tuple[tuple[ProposedCall, ...], str]:
    """The calls, and the text without them."""
    found = find_calls(text, limited, known)[:_MAX_CALLS_IN_TEXT]
    calls = tuple(
        ProposedCall(
            call_id=_made_id(seed, at, call.raw),
            name=call.name,
            arguments=call.arguments,
            raw=call.raw,
            problem=call.problem,
            detail=call.detail,
            source="fenced",
            correction=f"the call was written {call.how}, not as a tool call",
        )
        for at, call in enumerate(found)
    )
    rest, at = "", 0
    for call in found:
        rest += text[at : call.start] if call.start >= at else ""
        at = max(at, call.end)
    return calls, (rest + text[at:]).replace("```", "").strip() if calls else text


def _made_id(seed: str, at: int, raw: str) -> str:
    digest = hashlib.sha256("\n".join((seed, str(at), raw)).encode()).hexdigest()
    return f"text_{digest[:20]}"
