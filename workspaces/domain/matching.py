"""Whether a JSON value is what a rule speaks of: a path into it, and a test of what stands there. Pure.

Text that is too long to be looked at, and a value that cannot be compared, are not said to match or not: the caller
is told `UNSURE`, and takes the side on which nothing can go wrong.
"""

from __future__ import annotations

import fnmatch
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from enum import Enum
from typing import Any

from workspaces.domain.effects import canonical_json
from workspaces.domain.patterns import PatternError, compiled
from workspaces.domain.schema import show

MAX_LOOKED_AT_CHARS = 20_000  # of one value
MAX_GLOB_CHARS = 500
MAX_FOUND = 1_000  # values under one path
HOLLOW: tuple[Any, ...] = (None, "", [], {}, "null", "{}", "[]", '""', "None")
TESTS = ("glob", "regex", "min", "max", "equals", "exists", "empty")
FIELDS = ("path", *TESTS)

_STEP = re.compile(r"""\.(?P<name>[^.\[\]"'\s]+)|\[(?P<index>\d{1,6})\]|\[(?P<any>\*)\]|\["(?P<quoted>[^"\\]+)"\]""")
_ANY = object()


class Answer(Enum):
    NO = "no"
    YES = "yes"
    UNSURE = "unsure"


class MatchError(ValueError):
    """Not a test that can be made. `field` names the part."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}")
        self.field = field
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Match:
    """One test, as written. All that it names have to hold."""

    path: str
    steps: tuple[Any, ...]
    tests: Mapping[str, Any]

    @property
    def words(self) -> str:
        """As a person reads it."""
        said = {
            "glob": "is like {}",
            "regex": "matches {}",
            "min": "is at least {}",
            "max": "is at most {}",
            "equals": "is {}",
        }
        parts = []
        for name, wanted in self.tests.items():
            if name == "exists":
                parts.append("is there" if wanted else "is not there")
            elif name == "empty":
                parts.append("is empty" if wanted else "is not empty")
            else:
                parts.append(said[name].format(show(wanted) if name == "equals" else wanted))
        return f"{self.path} {' and '.join(parts)}"

    def ask(self, value: Any, *, every: bool) -> Answer:
        """`every`: all values under a path with [*] have to match, and there has to be one; else any does."""
        found = []
        for item in _under(value, self.steps):
            found.append(item)
            if len(found) > MAX_FOUND:
                return Answer.UNSURE
        if "exists" in self.tests and self.tests["exists"] is not bool(found):
            return Answer.NO
        others = {name: wanted for name, wanted in self.tests.items() if name != "exists"}
        if not others:
            return Answer.YES
        if not found:
            return Answer.YES if "exists" in self.tests and not self.tests["exists"] else Answer.NO
        answers = [_all_of([_test(name, wanted, item) for name, wanted in others.items()]) for item in found]
        return _all_of(answers) if every else _any_of(answers)


def read_match(written: Any, *, path_needed: bool) -> Match:
    """FIELDS, of which one test has to be there. Raises MatchError."""
    if not isinstance(written, Mapping):
        raise MatchError("", f"must be an object such as {{path: $.amount, min: 100}}, not {show(written)}")
    for unknown in [name for name in written if name not in FIELDS]:
        raise MatchError(str(unknown), f"is not a field; known are {', '.join(FIELDS)}")
    if path_needed and "path" not in written:
        raise MatchError("path", "is missing: say which argument, as in $.amount")
    path = written.get("path", "$")
    tests = {name: written[name] for name in TESTS if name in written}
    if not tests:
        raise MatchError("", f"has no test; give one of {', '.join(TESTS)}")
    for name, wanted in tests.items():
        _check(name, wanted)
    if "min" in tests and "max" in tests and tests["min"] > tests["max"]:
        raise MatchError("max", "is less than min, so nothing could match")
    return Match(path, read_path(path), tests)


def read_path(path: Any) -> tuple[Any, ...]:
    """`$.a.b`, `$.items[0].url`, `$["x-y"]`, `$.items[*]`. Raises MatchError."""
    if not isinstance(path, str) or not path.startswith("$"):
        raise MatchError("path", f"must begin with $, as in $.amount, not {show(path)}")
    steps: list[Any] = []
    at = 1
    while at < len(path):
        step = _STEP.match(path, at)
        if step is None:
            raise MatchError("path", f"cannot be read at {show(path[at:])}; write $.name, $.items[0], $.items[*]")
        at = step.end()
        if step["index"] is not None:
            steps.append(int(step["index"]))
        else:
            steps.append(_ANY if step["any"] else step["name"] or step["quoted"])
    return tuple(steps)


def glob_fits(glob: str, text: str) -> bool:
    """The whole text, upper and lower case told apart."""
    return fnmatch.fnmatchcase(text, glob)


def check_glob(wanted: Any, field: str) -> None:
    if not isinstance(wanted, str) or not wanted or len(wanted) > MAX_GLOB_CHARS:
        raise MatchError(field, f"must be a text of 1 to {MAX_GLOB_CHARS} characters, not {show(wanted)}")


def _check(name: str, wanted: Any) -> None:
    if name == "glob":
        check_glob(wanted, name)
    elif name == "regex":
        if not isinstance(wanted, str) or not wanted:
            raise MatchError(name, f"must be a text that is not empty, not {show(wanted)}")
        try:
            compiled(wanted)
        except PatternError as error:
            raise MatchError(name, str(error)) from None
    elif name in ("min", "max"):
        if isinstance(wanted, bool) or not isinstance(wanted, int | float):
            raise MatchError(name, f"must be a number, not {show(wanted)}")
    elif name in ("exists", "empty") and not isinstance(wanted, bool):
        raise MatchError(name, f"must be true or false, not {show(wanted)}")


def _under(value: Any, steps: tuple[Any, ...]) -> Iterator[Any]:
    if not steps:
        yield value
        return
    step, rest = steps[0], steps[1:]
    if step is _ANY:
        children = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
        for child in children:
            yield from _under(child, rest)
    elif isinstance(step, int):
        if isinstance(value, list) and step < len(value):
            yield from _under(value[step], rest)
    elif isinstance(value, dict) and step in value:
        yield from _under(value[step], rest)


def _test(name: str, wanted: Any, found: Any) -> Answer:
    if name == "equals":
        return _yes(_equal(wanted, found))
    if name == "empty":
        bare = found.strip() if isinstance(found, str) and len(found) <= 100 else found
        return _yes((bare in HOLLOW) is wanted)
    if name in ("min", "max"):
        number = _number(found)
        if number is None:
            return Answer.UNSURE
        limit = Decimal(repr(wanted))
        return _yes(number >= limit if name == "min" else number <= limit)
    text = found if isinstance(found, str) else canonical_json(found)
    if len(text) > MAX_LOOKED_AT_CHARS:
        return Answer.UNSURE
    return _yes(glob_fits(wanted, text) if name == "glob" else compiled(wanted).found_in(text))


def _number(found: Any) -> Decimal | None:
    """Also one that was written as a text: what a rule limits is not let through for its quotes."""
    if isinstance(found, bool) or not isinstance(found, int | float | str) or len(str(found)) > 400:
        return None
    try:
        number = Decimal(str(found).strip())
    except InvalidOperation:
        return None
    return number if number.is_finite() else None


def _equal(wanted: Any, found: Any) -> bool:
    """As JSON has it: true is not 1, 1.0 is 1."""
    if isinstance(wanted, bool) or isinstance(found, bool):
        return wanted is found
    if isinstance(wanted, int | float) and isinstance(found, int | float):
        return wanted == found
    if isinstance(wanted, dict) and isinstance(found, dict):
        return wanted.keys() == found.keys() and all(_equal(item, found[key]) for key, item in wanted.items())
    if isinstance(wanted, list) and isinstance(found, list):
        return len(wanted) == len(found) and all(_equal(*pair) for pair in zip(wanted, found, strict=True))
    return type(wanted) is type(found) and bool(wanted == found)


def _yes(holds: bool) -> Answer:
    return Answer.YES if holds else Answer.NO


def _all_of(answers: list[Answer]) -> Answer:
    if Answer.NO in answers:
        return Answer.NO
    return Answer.UNSURE if Answer.UNSURE in answers else Answer.YES


def _any_of(answers: list[Answer]) -> Answer:
    if Answer.YES in answers:
        return Answer.YES
    return Answer.UNSURE if Answer.UNSURE in answers else Answer.NO


def as_value(text: str) -> Any:
    """A result as JSON if it is some, else as the text that it is."""
    if len(text) > MAX_LOOKED_AT_CHARS * 10 or text.lstrip()[:1] not in ("{", "["):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
