"""Finds calls that a model wrote into its text instead of making them. Pure; looks only, decides nothing.

A call is a JSON object with a name (`name`, `tool`, `tool_name`, `function`) and an object of arguments
(`arguments`, `parameters`, `args`, `input`): alone, in a fenced block, in `<tool_call>` tags, in an array, several
in a row, or with its braces doubled. An object in the middle of prose is taken only when its name is a known
tool: prose may quote JSON.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from workspaces.domain.call_arguments import (
    CallProblem,
    cleaned,
    ends_early,
    finite,
    kind_of,
    loads,
    read_arguments,
    refuse_constant,
    why,
)
from workspaces.domain.text import clean_text, too_deep

_NAME_KEYS = ("name", "tool", "tool_name", "function")
_ARGUMENT_KEYS = ("arguments", "parameters", "args", "input")
_MAX_PLACES = 200  # a text of nothing but openings must not cost a quadratic search
_FENCE = re.compile(r"```[ \t]*[\w.+-]*[ \t]*\n?")
_TAG = re.compile(r"<tool_call>")
_OPENS_A_CALL = re.compile(
    r'\{\s*+(?:\{\s*+)?"(?:name|tool|tool_name|function|arguments|parameters|args|input|type|id)"\s*:'
)
_STARTS_A_CALL = re.compile(
    r'[\[{\s]*\{\s*"(?:name|tool|tool_name|function)"\s*:\s*"([^"\\]{1,64})"\s*,\s*'
    r'"(?:arguments|parameters|args|input)"\s*:\s*'
)


@dataclass(frozen=True, slots=True)
class FoundCall:
    start: int
    end: int
    raw: str
    name: str
    arguments: dict[str, Any] | None
    problem: CallProblem | None
    detail: str
    how: str


def find_calls(text: str, limited: bool, known: frozenset[str]) -> list[FoundCall]:
    """The calls in a reply's text. `limited`: it ended at the token limit. `known`: names of real tools."""
    return list(_find(text, limited, known)) if "{" in text else []


def _find(text: str, limited: bool, known: frozenset[str]) -> Iterator[FoundCall]:
    """Calls in the order of the text. Marked places first; only without any, JSON standing in the open."""
    marked = list(_marked(text))
    calls = [call for start, end, body, how in marked for call in _in_body(start, end, body, how, limited, known)]
    if calls:
        yield from calls
        return
    bare = text.strip()
    if bare[:1] in "[{" and bare:
        alone = list(_in_body(0, len(text), text, "as bare JSON in the text", limited, known))
        if alone:
            yield from alone
            return
    yield from _in_prose(text, known, [(start, end) for start, end, _, _ in marked])


def _marked(text: str) -> Iterator[tuple[int, int, str, str]]:
    """(start, end, body, how) of `<tool_call>` tags, else of fenced blocks.

    The end is looked for after the JSON values: a file's content may itself hold a fence or a tag.
    """
    opening, closing, how = _FENCE, "```", "in a fenced block of the text"
    if "<tool_call>" in text:
        opening, closing, how = _TAG, "</tool_call>", "in <tool_call> tags in the text"
    at = 0
    for _ in range(_MAX_PLACES):
        begin = opening.search(text, at)
        if begin is None:
            return
        _, left = _values(text[begin.end() :])
        close = text.find(closing, len(text) - len(left))
        stop = close if close >= 0 else len(text)
        at = stop + len(closing) if close >= 0 else len(text)
        yield begin.start(), at, text[begin.end() : stop], how


def _in_body(start: int, end: int, body: str, how: str, limited: bool, known: frozenset[str]) -> Iterator[FoundCall]:
    """The calls of a place that holds nothing but values. All have the shape of a call, or none is one."""
    values, left = _values(body)
    calls: list[FoundCall] = []
    for raw, value, doubled in values:
        written = how + (" with doubled braces" if doubled else "")
        items = value if isinstance(value, list) else [value]
        for item in items:
            shape = _shape(item, known)
            if shape is None:
                return
            own = raw if len(items) == 1 else json.dumps(item, ensure_ascii=False)
            calls.append(FoundCall(start, end, own, *shape, written))
    if left.strip():
        broken = _broken(left.strip(), known)
        if broken is None and not (limited and calls):
            return
        if broken is not None:
            name, detail = broken
            early = limited and ends_early(left)
            said = f"the reply ended at the token limit: {detail}" if early else detail
            problem: CallProblem = "cut_off" if early else "unparsable"
            calls.append(FoundCall(start, end, left.strip(), name, None, problem, said, how))
    yield from calls


def _values(body: str) -> tuple[list[tuple[str, Any, bool]], str]:
    """The JSON values at the start of `body`, one after the other, and what is left.

    Each with its own text and whether its braces were doubled (`{{…}}`, a template's escape that leaked).
    """
    values: list[tuple[str, Any, bool]] = []
    left = body
    while True:
        left = left.lstrip().lstrip(",;").lstrip()
        if left[:1] not in ("{", "["):
            return values, left
        read = _first_value(left)
        if read is None:
            return values, left
        value, used, doubled = read
        values.append((left[:used], value, doubled))
        left = left[used:]


def _first_value(text: str) -> tuple[Any, int, bool] | None:
    decoder = json.JSONDecoder(parse_constant=refuse_constant, parse_float=finite)
    try:
        value, used = decoder.raw_decode(text)
        return value, used, False
    except (ValueError, RecursionError):
        pass
    if not text.startswith("{{"):
        return None
    try:  # only the outer braces are doubled: {{"name": …, "arguments": {…}}}
        value, used = decoder.raw_decode(text[1:])
        if text[1 + used :].lstrip().startswith("}"):
            return value, text.index("}", 1 + used) + 1, True
    except (ValueError, RecursionError):
        pass
    line = text.split("\n", 1)[0]
    for piece in (text.rstrip(), line.rstrip()):  # all of them are
        try:
            return loads(piece.replace("{{", "{").replace("}}", "}")), len(piece), True
        except (ValueError, RecursionError):
            continue
    return None


def _shape(value: object, known: frozenset[str]) -> tuple[str, dict[str, Any] | None, CallProblem | None, str] | None:
    """(name, arguments, problem, detail) when the value has the shape of a call."""
    if not isinstance(value, dict):
        return None
    inner = value.get("function")
    if isinstance(inner, dict):  # the wire form, written out
        value = inner
    name = next((value[key] for key in _NAME_KEYS if isinstance(value.get(key), str) and value[key]), None)
    key = next((key for key in _ARGUMENT_KEYS if key in value), None)
    if name is None:
        return None
    name = clean_text(name).strip()
    if key is None:
        # A known tool's name and no arguments at all is a call; {"name": "Alice"} is data.
        alone = name in known and set(value) <= {*_NAME_KEYS, "type", "id"}
        return (name, {}, None, "") if alone else None
    if set(value) - {*_NAME_KEYS, *_ARGUMENT_KEYS, "type", "id"} and name not in known:
        return None
    arguments = value[key]
    if isinstance(arguments, dict) and too_deep(arguments):
        return name, None, "unparsable", "nested too deeply"
    if isinstance(arguments, dict):
        return name, cleaned(arguments), None, ""
    if isinstance(arguments, str):
        parsed, problem, detail, _ = read_arguments(arguments, limited=False)
        return (name, parsed, problem, detail) if problem is None or name in known else None
    if arguments is None and name in known:
        return name, {}, None, ""
    if name in known:
        return name, None, "not_an_object", f"the arguments are {kind_of(arguments)}, not an object"
    return None


def _broken(text: str, known: frozenset[str]) -> tuple[str, str] | None:
    """(name, why) of a text that begins as a known tool's call and is no JSON."""
    begins = _STARTS_A_CALL.match(text)
    if begins is None or begins[1] not in known:
        return None
    try:
        loads(text)
    except (ValueError, RecursionError) as error:
        return begins[1], why(error, text)
    return None


def _in_prose(text: str, known: frozenset[str], skip: Iterable[tuple[int, int]]) -> Iterator[FoundCall]:
    """Known tools' calls in the middle of words, outside of places that were looked at already."""
    looked_at = list(skip)
    end = 0
    for begin in itertools.islice(_OPENS_A_CALL.finditer(text), _MAX_PLACES):
        at = begin.start()
        if at < end or any(start <= at < stop for start, stop in looked_at):
            continue
        read = _first_value(text[at:])
        shape = _shape(read[0], known) if read is not None else None
        if read is None or shape is None or shape[0] not in known:
            continue
        end = at + read[1]
        how = "as bare JSON in the text" + (" with doubled braces" if read[2] else "")
        yield FoundCall(at, end, text[at:end], *shape, how)
