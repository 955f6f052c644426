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
from workspaces.domain.shell_words import READS_ONLY, Kind, command_of, nature_of, words
from workspaces.domain.states import Verdict
from workspaces.domain.trail import SeenCall, Trail, Turn

R = ResultClass
NOTE_TOOLS = frozenset({"note", "notes", "think", "plan", "todo", "todo_write", "update_plan"})
ASK_TOOLS = frozenset({"ask_operator"})
_READ_CHARS = 6_000  # of a result: both ends of a longer one

_MONTH = r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*"
_DAY = r"(?:mon|tue|wed|thu|fri|sat|sun)[a-z]*"
_TIMES = re.compile(
    r"\b\d{4}-\d\d-\d\d[t ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:z|\s?[+-]\d\d:?\d\d)?"  # ISO 8601
    rf"|\b{_DAY},? (?:\d{{1,2}} {_MONTH}|{_MONTH} +\d{{1,2}})(?: \d{{4}})?,? "
    r"\d\d:\d\d:\d\d(?: [a-z]{2,4})?(?: \d{4})?"  # date, HTTP
    rf"|\b{_MONTH} +\d{{1,2}} \d\d:\d\d(?::\d\d)?\b"  # ls -l, syslog
    r"|\b\d{1,2}:\d\d:\d\d(?:[.,]\d+)?\b(?: ?[ap]m\b)?"
    r"|\b1[5-9]\d{8}(?:\d{3}(?:\d{6})?|\.\d+)?\b",  # seconds, milliseconds or nanoseconds since 1970
    re.IGNORECASE,
)
_DURATIONS = re.compile(
    r"\b\d+(?:\.\d+)?\s?(?:ns|us|µs|ms|s|secs?|seconds?|mins?|minutes?)\b(?:\s?\d+(?:\.\d+)?\s?s\b)?", re.IGNORECASE
)
_LEFT = re.compile(r"left|remain|eta\b|to go|until|wait|retry|after|timeout|timed|every|limit", re.IGNORECASE)
_IDS = re.compile(
    r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"  # UUID
    r"|\b0x[0-9a-f]{6,}\b"
    r"|(?<=pid[ :=])\s?\d+|(?<=process )\d+|(?<=pid\": )\d+"
    r"|/tmp/[\w.-]*\d[\w.-]*|\btmp[\w]{6,}\b"
    r"|(?:request|req|trace|span|correlation|session|job|run|build|container|task|message|transaction)[-_ ]?id"
    r"[\"']?\s?[:= ]\s?[\"']?[\w.-]*\d[\w.-]*",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_FRACTION = re.compile(r"(?<![\d.=<>~^v-])\d+\.\d+(?![\d.])")
_SPACE = re.compile(r"\s+")
_NAMED = re.compile(r"^\[result: [^\]]*\]\s*", re.MULTILINE)  # the line that names a class to the model
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
_SHORT = 120
_TRANSIENT = re.compile(
    r"\b(?:429|502|503|504)\b|too many requests|rate[ -]?limit|temporarily|service unavailable|bad gateway|"
    r"gateway time-?out|connection (?:refused|reset)|overloaded|try again|timed out|time-?out|quota|"
    r"could not connect|failed to connect|unreachable|unavailable|no response|not respond|not ready|is starting|"
    r"starting up|could not get lock|is locked",
    re.IGNORECASE,
)
_ASKS_TO_WAIT = re.compile(
    r"\bwait(?:ing)?\b|\bpoll|\bmonitor|\bkeep (?:checking|watching|an eye)|\bkeep track\b|"
    r"\bcheck (?:every|again|back|periodically|regularly)|"
    r"\bevery (?:few |\d+ ?)?(?:s|sec|seconds?|min|minutes?|hours?)\b|"
    r"\b(?:until|as soon as|once|when) [^.]{0,60}\b(?:ready|done|finish\w*|complete\w*|available|up|healthy|appears?|"
    r"green|running|live|ends?|arrives?)\b|\bwatch (?:the|for|it)\b",
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
    asked = bool(_ASKS_TO_WAIT.search(f"{trail.instruction[:8000]} {trail.exit_condition[:2000]}"))
    return Seen(trail, tuple(whole), trail.turns[start:], looks, by_turn, asked)


def _stirred(before: Turn, turn: Turn) -> bool:
    if not before.disk or not turn.disk or before.disk == turn.disk:
        return False
    return not any(call.effect is not None and call.effect.touches_disk for call in turn.calls)


def _look(call: SeenCall, turn: int, last: dict[str, str], stirred: bool) -> Look:
    same, loose, command = _of_arguments(call.name, call.arguments)
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
        moved=same in last and last[same] != answer,
        stirred=stirred,
    )


@lru_cache(maxsize=4096)
def _of_arguments(name: str, arguments: str) -> tuple[str, str, str]:
    """(same, loose, the command line if it is one)."""
    try:
        values = json.loads(arguments)
    except ValueError:
        values = None
    if not isinstance(values, dict):
        return f"{name}\n{arguments}", f"{name}\n{cosmetics_off(arguments)}", ""
    tidy = {key: _tidy(value) if key in _TIDIED else value for key, value in values.items()}
    same = json.dumps(tidy, sort_keys=True, ensure_ascii=False)
    return f"{name}\n{same}", f"{name}\n{cosmetics_off(same)}", command_of(values)


def _tidy(value: Any) -> Any:
    if not isinstance(value, str) or len(value) > 2000:
        return value
    value = _SPACE.sub(" ", value.strip()).replace("'", '"').rstrip("; ")
    return value[2:] if value.startswith("./") else value


def cosmetics_off(text: str) -> str:
    """A text without what is only cosmetic in a call that fails: case, numbers, quotes, times, temporary names."""
    text = _IDS.sub("~", _TIMES.sub("~", text[:_READ_CHARS])).lower()
    text = _NUMBER.sub("#", text)
    return re.sub(r"[\s\"'`\\]+", " ", text).strip()


def steady(text: str) -> str:
    """A result without what differs between equal runs."""
    text = _IDS.sub("~", _TIMES.sub("~", text))
    return _DURATIONS.sub(lambda match: _duration(text, match), text)


def _duration(text: str, match: re.Match[str]) -> str:
    around = text[max(0, match.start() - 16) : match.end() + 12]
    return match.group() if _LEFT.search(around) else "~"


@lru_cache(maxsize=4096)
def _of_result(result_class: ResultClass, result: str, result_hash: str) -> tuple[str, str, bool, bool, bool]:
    """(answer, loose answer, says "not yet", a passing trouble, nothing but an exit code).

    A result in which nothing volatile is found is compared by its hash: what was clipped counts too.
    """
    clipped = result if len(result) <= _READ_CHARS else result[: _READ_CHARS // 2] + result[-_READ_CHARS // 2 :]
    body = _NAMED.sub("", clipped).strip()
    plain = steady(clipped)
    if result_class in (R.ERROR, R.TIMEOUT):
        plain = _FRACTION.sub("~", plain)  # seconds without a unit, as build logs have them
    answer = f"{result_class} {result_hash if plain == clipped and result_hash else plain}"
    short = len(body) <= _SHORT
    pending = bool(_PENDING_STATE.search(body) or (short and _PENDING_SHORT.search(body)))
    transient = (short or result_class is not R.OK) and bool(_TRANSIENT.search(clipped[:600] + clipped[-600:]))
    return answer, f"{result_class} {cosmetics_off(clipped)}", pending, transient, bool(_EXIT_ONLY.match(body))


def code_of(look: Look) -> str:
    """What kind of result it is, equal in any task: an error's name, an HTTP status, an exit code, or the class."""
    if look.failed or look.hollow or "error" in look.call.result[:300].lower():
        if look.call.verdict is Verdict.CORRECT:
            return "corrected"
        if found := _CODE.search(look.call.result[:_READ_CHARS]):
            name, status, exit_code, errno = found.groups()
            return name or status or errno or f"exit {exit_code}"
    return look.call.result_class.value


def shown(call: SeenCall, limit: int = 80) -> str:
    """A call as a person would write it: shell("npm test")."""
    try:
        values = json.loads(call.arguments)
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
    """The first words of a result."""
    body = _SPACE.sub(" ", _NAMED.sub("", look.call.result[:4000])).strip()
    if not body:
        return look.call.result_class.value if look.call.result_class is not R.OK else "nothing"
    return body if len(body) <= limit else body[: limit - 1] + "…"


_FILLERS = words(
    "a an and are as at be can could do does for how i if in is it me my now of on or our please shall should so that "
    "the then this to us we what will with would you your may might must again"
)
_SHORT_WORDS = 12


def alike(one: str, other: str) -> bool:
    """Whether two texts say nearly the same, numbers and case aside: 0.8 of their three-word pieces are shared.

    Of a short text, 0.8 of the words that carry meaning.
    """
    mine, theirs = _pieces(one), _pieces(other)
    if not mine or not theirs:
        return mine == theirs
    return len(mine & theirs) >= 0.8 * len(mine | theirs)


@lru_cache(maxsize=512)
def _pieces(text: str) -> frozenset[tuple[str, ...]]:
    found = re.findall(r"[^\W\d_]+", text[:_READ_CHARS].lower())
    if len(found) < _SHORT_WORDS:
        return frozenset((word,) for word in found if word not in _FILLERS) or frozenset((word,) for word in found)
    return frozenset(zip(found, found[1:], found[2:], strict=False))
