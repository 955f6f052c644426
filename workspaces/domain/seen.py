"""How detectors see calls and results: which two are the same, which only look different, which one waits. Pure.

Three degrees of sameness of a call: `same` (whitespace and quoting of a command aside), `loose` (numbers, case, quotes,
temporary names and times aside as well; used for failed calls only, so that pages of one list stay different calls),
and the tool. A result's `answer` leaves out what differs between equal runs (times, durations, ids of requests and
processes, addresses) and keeps what is information: counters, percentages, hashes, a time that is left.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from workspaces.domain.effects import Effect
from workspaces.domain.results import ResultClass
from workspaces.domain.sameness import cosmetics_off, steady
from workspaces.domain.shell_words import READS_ONLY, Kind, command_of, nature_of
from workspaces.domain.states import Verdict
from workspaces.domain.text import read_json
from workspaces.domain.trail import SeenCall, Trail, Turn

R = ResultClass
NOTE_TOOLS = frozenset({"note", "notes", "think", "plan", "todo", "todo_write", "update_plan"})
ASK_TOOLS = frozenset({"ask_operator"})
_READ_CHARS = 6_000  # of a result: both ends of a longer one

_SPACE = re.compile(r"\s+")
_NAMED = re.compile(r"^\[result: [^\]]*\]\s*", re.MULTILINE)  # the line that names a class to the model
_WHY = re.compile(r"\[result: \w+ - ([^\n]*)\]")
# what stands around the words that matter, equal in every such result
_FRAME = re.compile(
    r"^\(exit code 0\)\n|^\[standard error\]$"
    r"|^This call was not run\. What is wrong with it:\n- |\nCorrect it and call again\.",
    re.MULTILINE,
)
_EXIT_ONLY = re.compile(r"^\W*(?:\(?exit (?:code|status):? ?\d+\)?(?:, no output)?)?\W*$", re.IGNORECASE)

# "not yet", said as a state or as a short answer, not somewhere in a long text
_PENDING_WORD = (
    r"(?:pending|queued|running|in[ _-]?progress|processing|not[ _-]ready|not[ _-]yet|starting|waiting|building|"
    r"provisioning|creating|initiali[sz]ing|scheduled|deploying|submitted|accepted|booting|unknown yet|incomplete)"
)
_PENDING_STATE = re.compile(
    rf"(?:status|state|phase|progress|stage|conclusion|health)[\"']?\s*(?:[:=]|is)\s*[\"']?{_PENDING_WORD}\b",
    re.IGNORECASE,
)
_PENDING_SHORT = re.compile(rf"\b{_PENDING_WORD}\b|\b\d{{1,2}} ?%|\bstill\b", re.IGNORECASE)
_LOOKED_AT = 1_500
_SHORT = 120
_BRIEF = 300
_TRANSIENT = re.compile(
    r"\b(?:429|502|503|504)\b|too many requests|rate[ -]?limit|temporarily|service unavailable|bad gateway|"
    r"gateway time-?out|connection (?:refused|reset)|overloaded|try again|timed out|time-?out|quota|"
    r"could not connect|failed to connect|unreachable|unavailable|no response|not respond|not ready|is starting|"
    r"starting up|could not get lock|is locked",
    re.IGNORECASE,
)
# words that ask for waiting, not every word about it: a page for a waiting room, a monitor's driver are work
_ASKS_TO_WAIT = re.compile(
    r"\bwait (?:for|until|till|up to|a |some |and |\d)|"
    r"\bpoll(?:ing)? (?:it|the|this|every|for|until|each|once|\d|https?:)|"
    r"\bmonitor (?:it|the|this|for|https?:)|\bwatch (?:the|for|it|this)\b|\bkeep (?:checking|watching|track|an eye)\b|"
    r"\bcheck (?:every|again|back|periodically|regularly)\b|"
    r"\bcheck [^.]{0,40}\bevery (?:few |\d+ ?)?(?:s|sec|seconds?|min|minutes?|hours?)\b|"
    r"\b(?:until|as soon as|once|when) [^.]{0,60}\b(?:ready|done|finish\w*|complete\w*|available|up|healthy|appears?|"
    r"running|live|arrives?)\b",
    re.IGNORECASE,
)
_WAIT_NAME = re.compile(r"(?:^|_)(?:wait|sleep|delay|pause)(?:_|$)", re.IGNORECASE)
_CODE = re.compile(
    r"\b([A-Z]\w*(?:Error|Exception|NotFound))\b|\b(?:HTTP[/ ]?[\d.]* ?)?([45]\d\d)\b"
    r"|exit (?:code|status):? ?(\d+)|\b(E[A-Z]{4,})\b"
)
_TIDIED = frozenset(
    {"command", "cmd", "script", "query", "q", "pattern", "url", "path", "question", "glob", "name", "file"}
)


@dataclass(frozen=True, slots=True)
class Look:
    """One call as the detectors compare it. `turn`: its place in the window. `changes`: files or the world may differ
    after it. `moved`: the same call gave another answer before."""

    call: SeenCall
    turn: int
    same: str
    loose: str
    answer: str
    loose_answer: str
    failed: bool
    hollow: bool
    waits: bool
    only_waits: bool
    pending: bool
    transient: bool
    changes: bool
    reads: bool
    note: bool
    brief: bool  # as answers to "is it there yet" are
    moved: bool = False
    stirred: bool = False  # the disk is another one though no call of its turn writes: somebody else did

    @property
    def sight(self) -> tuple[str, str]:
        """Call and result together: what a cycle repeats."""
        return (self.loose, self.loose_answer) if self.failed else (self.same, self.answer)

    @property
    def not_yet(self) -> bool:
        return self.pending or self.transient


@dataclass(frozen=True, slots=True)
class Seen:
    """The window since a person last spoke, flat and by turn; `whole`: by turn from its beginning."""

    trail: Trail
    whole: tuple[tuple[Look, ...], ...]
    turns: tuple[Turn, ...]
    looks: tuple[Look, ...]
    by_turn: tuple[tuple[Look, ...], ...]
    asked_to_wait: bool


def seen(trail: Trail) -> Seen:
    """Everything before a person's newest message is answered by it: counts begin anew there."""
    start = 0
    for index, turn in enumerate(trail.turns):
        if turn.operator_spoke:
            start = index
    last: dict[str, str] = {}
    whole = []
    for index, turn in enumerate(trail.turns):
        row = []
        stirred = _stirred(trail.turns[index - 1], turn) if index else False
        for call in turn.calls:
            look = _look(call, index - start, last, stirred)
            last[look.same] = look.answer
            row.append(look)
        whole.append(tuple(row))
    by_turn = tuple(whole[start:])
    looks = tuple(look for row in by_turn for look in row)
    return Seen(
        trail,
        tuple(whole),
        trail.turns[start:],
        looks,
        by_turn,
        asks_to_wait(f"{trail.instruction[:4000]} {trail.exit_condition[:1000]}"),
    )


@lru_cache(maxsize=256)
def asks_to_wait(words: str) -> bool:
    return bool(_ASKS_TO_WAIT.search(words))


def _stirred(before: Turn, turn: Turn) -> bool:
    if not before.disk or not turn.disk or before.disk == turn.disk:
        return False
    return not any(call.effect is not None and call.effect.touches_disk for call in turn.calls)


def _look(call: SeenCall, turn: int, last: dict[str, str], stirred: bool) -> Look:
    same, loose, command, read = _of_arguments(call.name, call.arguments)
    if not read and call.call_hash:  # clipped: what lies beyond counts too
        same = f"{call.name}\n{call.call_hash}"
    answer, loose_answer, pending, transient, bare = _of_result(call.result_class, call.result, call.result_hash)
    corrected = call.verdict is Verdict.CORRECT
    failed = corrected or call.result_class in (R.ERROR, R.TIMEOUT)
    nature = nature_of(command) if command else None
    silent_search = failed and not corrected and bare and nature is not None and nature.searches
    waits = bool(_WAIT_NAME.search(call.name)) or (nature is not None and nature.sleeps)
    reads = call.effect in (None, Effect.NONE) or (nature is not None and nature.kind in READS_ONLY)
    ran = not corrected and (not failed or bool(command))  # a failed command may have done a part of it
    return Look(
        call=call,
        turn=turn,
        same=same,
        loose=loose,
        answer=answer,
        loose_answer=loose_answer,
        failed=failed and not silent_search,
        hollow=call.result_class is R.EMPTY or silent_search,
        waits=waits,
        only_waits=waits and (nature is None or nature.only_sleeps),
        pending=pending and not failed,
        transient=transient and (nature is None or nature.kind is not Kind.CHECK),
        changes=ran and not reads and not waits,
        reads=reads,
        note=call.name in NOTE_TOOLS,
        brief=len(call.result) <= _BRIEF,
        moved=same in last and last[same] != answer,
        stirred=stirred,
    )


@lru_cache(maxsize=4096)
def _of_arguments(name: str, arguments: str) -> tuple[str, str, str, bool]:
    """(same, loose, the command line if it is one, whether the arguments could be read)."""
    try:
        values = read_json(arguments)
    except ValueError:
        values = None
    if not isinstance(values, dict):
        return f"{name}\n{arguments}", f"{name}\n{cosmetics_off(arguments)}", "", False
    tidy = {key: _tidy(value) if key in _TIDIED else value for key, value in values.items()}
    same = json.dumps(tidy, sort_keys=True, ensure_ascii=False)
    return f"{name}\n{same}", f"{name}\n{cosmetics_off(same)}", command_of(name, values), True


def _tidy(value: Any) -> Any:
    if not isinstance(value, str) or len(value) > 2000:
        return value
    value = _SPACE.sub(" ", value.strip()).replace("'", '"').rstrip("; ")
    return value[2:] if value.startswith("./") else value


@lru_cache(maxsize=4096)
def _of_result(result_class: ResultClass, result: str, result_hash: str) -> tuple[str, str, bool, bool, bool]:
    """(answer, loose answer, says "not yet", a passing trouble, nothing but an exit code).

    A result in which nothing volatile is found is compared by its hash: what was clipped counts too.
    """
    clipped = result if len(result) <= _READ_CHARS else result[: _READ_CHARS // 2] + result[-_READ_CHARS // 2 :]
    body = _NAMED.sub("", clipped).strip()
    failed = result_class in (R.ERROR, R.TIMEOUT)
    plain = steady(clipped, fractions=failed)
    answer = f"{result_class} {result_hash if plain == clipped and result_hash else plain}"
    short = len(body) <= _SHORT
    pending = bool(_PENDING_STATE.search(body[:_LOOKED_AT]) or (short and _PENDING_SHORT.search(body)))
    transient = (short or result_class is not R.OK) and bool(_TRANSIENT.search(clipped[:600] + clipped[-600:]))
    return (
        answer,
        f"{result_class} {cosmetics_off(clipped)}",
        pending,
        transient,
        len(body) <= _SHORT and bool(_EXIT_ONLY.match(body)),
    )


def code_of(look: Look) -> str:
    """What kind of result it is, equal in any task: an error's name, an HTTP status, an exit code, or the class."""
    if look.failed or look.hollow or "error" in look.call.result[:300].lower():
        if look.call.verdict is Verdict.CORRECT:
            return "corrected"
        if found := _CODE.search(look.call.result[:1000]):
            name, status, exit_code, errno = found.groups()
            return name or status or errno or f"exit {exit_code}"
    return look.call.result_class.value


def shown(call: SeenCall, limit: int = 80) -> str:
    """A call as a person would write it: shell("npm test")."""
    try:
        values = read_json(call.arguments)
    except ValueError:
        values = None
    if isinstance(values, dict):
        inside = ", ".join(_value(value) for value in values.values())
        if len(values) > 2:
            inside = ", ".join(f"{key}={_value(value)}" for key, value in values.items())
    else:
        inside = call.arguments
    inside = _SPACE.sub(" ", inside)
    return f"{call.name}({inside if len(inside) <= limit else inside[: limit - 1] + '…'})"


def _value(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f'{text[:58]}…"'


def said(look: Look, limit: int = 160) -> str:
    """The first words of a result, after the reason for which it is named as it is."""
    text = look.call.result[: 4 * limit]
    body = _FRAME.sub("", _NAMED.sub("", text)).strip().replace("\n- ", "; ")
    if (why := _WHY.match(text)) and not body.startswith(why[1]):
        body = f"{why[1]}; {body}" if body else why[1]
    body = _SPACE.sub(" ", body)
    if not body:
        return look.call.result_class.value if look.call.result_class is not R.OK else "nothing"
    return body if len(body) <= limit else body[: limit - 1] + "…"
