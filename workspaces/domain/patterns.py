"""A user's regular expressions, matched in time that grows with the text and never more. Pure.

Python's own matcher goes back and tries again, for years on `(a|a)*b`. This one goes through the text once, with the
set of all places at which a match could stand (K. Thompson, "Regular Expression Search Algorithm", 1968). So whatever
pattern is accepted can be tried on whatever text. What needs going back (back references, look-around) is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from re import _constants as rules  # type: ignore[attr-defined]  # the only parser of Python's own patterns
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

MAX_PATTERN_CHARS = 500
MAX_PLACES = 1_000  # of one pattern, its counted repeats written out
_MAX_REMEMBERED = 5_000  # moves from one set of places to the next

_Test = Callable[[str], bool]
_State = tuple[frozenset[int], bool]

_CATEGORIES: dict[Any, tuple[str, bool]] = {
    rules.CATEGORY_DIGIT: (r"\d", True),
    rules.CATEGORY_NOT_DIGIT: (r"\d", False),
    rules.CATEGORY_SPACE: (r"\s", True),
    rules.CATEGORY_NOT_SPACE: (r"\s", False),
    rules.CATEGORY_WORD: (r"\w", True),
    rules.CATEGORY_NOT_WORD: (r"\w", False),
}
_REPEATS = (rules.MAX_REPEAT, rules.MIN_REPEAT)  # which of several matches is found does not matter here


class PatternError(ValueError):
    """Not a pattern that is taken. The text says why."""


@lru_cache(maxsize=512)
def compiled(pattern: str) -> Pattern:
    """The same pattern is made once. Raises PatternError."""
    return Pattern(pattern)


class Pattern:
    """Python's syntax without back references, look-around, possessive repeats and atomic groups."""

    def __init__(self, pattern: str) -> None:
        if len(pattern) > MAX_PATTERN_CHARS:
            raise PatternError(f"a pattern has at most {MAX_PATTERN_CHARS} characters")
        try:
            tree = parser.parse(pattern)
        except (re.error, RecursionError, OverflowError) as error:
            raise PatternError(f"not a regular expression: {error}") from None
        self._flags = tree.state.flags
        self._tests: dict[int, tuple[_Test, int]] = {}  # place → what it takes, and where that leads
        self._free: dict[int, list[tuple[Any, int]]] = {}  # place → (condition or None, place): without a character
        self._places = 0
        start, self._end = self._place(), self._place()
        self._sequence(list(tree), start, self._end)
        self._start = frozenset({start})
        self._moves: dict[tuple[frozenset[int], str, str, bool], _State] = {}

    def found_in(self, text: str) -> bool:
        """Whether it matches anywhere in the text, as `re.search` does."""
        places, last = self._start, len(text) - 1
        before = ""
        for at, char in enumerate(text):
            key = (places, before, char, at == last)
            move = self._moves.get(key)
            if move is None:
                if len(self._moves) >= _MAX_REMEMBERED:
                    self._moves.clear()
                move = self._moves[key] = self._move(*key)
            places, matched = move
            if matched:
                return True
            before = char
        return self._end in self._closure(places, before, "", last=False)

    def _move(self, places: frozenset[int], before: str, char: str, last: bool) -> _State:
        here = self._closure(places, before, char, last=last)
        if self._end in here:
            return self._start, True
        reached = {goal for place in here if place in self._tests for test, goal in [self._tests[place]] if test(char)}
        return frozenset(reached | self._start), False  # a match may begin at every character

    def _closure(self, places: Iterable[int], before: str, after: str, *, last: bool) -> set[int]:
        seen, todo = set(places), list(places)
        while todo:
            for condition, goal in self._free.get(todo.pop(), ()):
                if goal not in seen and (condition is None or self._holds(condition, before, after, last)):
                    seen.add(goal)
                    todo.append(goal)
        return seen

    def _holds(self, condition: Any, before: str, after: str, last: bool) -> bool:
        lines = bool(self._flags & re.MULTILINE)
        if condition is rules.AT_BEGINNING:
            return not before or (lines and before == "\n")
        if condition is rules.AT_BEGINNING_STRING:
            return not before
        if condition is rules.AT_END:
            return not after or (after == "\n" and (last or lines))
        if condition is rules.AT_END_STRING:
            return not after
        return (_is_word(before) != _is_word(after)) is (condition is rules.AT_BOUNDARY)

    def _place(self) -> int:
        self._places += 1
        if self._places > MAX_PLACES:
            raise PatternError("the pattern is too large: repeat fewer times")
        return self._places

    def _go(self, start: int, end: int, condition: Any = None) -> None:
        self._free.setdefault(start, []).append((condition, end))

    def _sequence(self, parts: list[Any], start: int, end: int) -> None:
        for part in parts:
            after = self._place()
            self._part(part, start, after)
            start = after
        self._go(start, end)

    def _part(self, part: Any, start: int, end: int) -> None:
        rule, detail = part
        if rule in (rules.LITERAL, rules.NOT_LITERAL, rules.ANY, rules.IN):
            self._tests[start] = (self._test(rule, detail), end)
        elif rule is rules.AT and detail in _CONDITIONS:
            self._go(start, end, detail)
        elif rule is rules.SUBPATTERN:
            _, added, removed, inner = detail
            if added or removed:
                raise PatternError("flags for a part of a pattern are not taken: put them at the beginning")
            self._sequence(list(inner), start, end)
        elif rule is rules.BRANCH:
            for branch in detail[1]:
                begin = self._place()
                self._go(start, begin)
                self._sequence(list(branch), begin, end)
        elif rule in _REPEATS:
            least, most, inner = detail
            self._repeat(least, most, inner, start, end)
        else:
            raise PatternError(f"{str(rule).lower().replace('_', ' ')} is not taken: it would need going back")

    def _repeat(self, least: int, most: int, inner: Any, start: int, end: int) -> None:
        for _ in range(least):
            after = self._place()
            self._sequence(list(inner), start, after)
            start = after
        if most is rules.MAXREPEAT:
            begin, again = self._place(), self._place()
            self._go(start, begin)
            self._sequence(list(inner), begin, again)
            self._go(again, begin)
            self._go(begin, end)
            return
        for _ in range(most - least):
            after = self._place()
            self._go(start, end)
            begin = self._place()
            self._go(start, begin)
            self._sequence(list(inner), begin, after)
            start = after
        self._go(start, end)

    def _test(self, rule: Any, detail: Any) -> _Test:
        if rule is rules.ANY:
            return (lambda _: True) if self._flags & re.DOTALL else (lambda char: char != "\n")
        flags = self._flags & (re.IGNORECASE | re.ASCII)
        if rule is rules.IN:
            source = "".join(_in_class(item) for item in detail)
            one = re.compile(f"[{source}]", flags)
        else:
            one = re.compile(f"[{'^' if rule is rules.NOT_LITERAL else ''}{_escaped(detail)}]", flags)
        return lambda char: one.fullmatch(char) is not None


_CONDITIONS = (
    rules.AT_BEGINNING,
    rules.AT_BEGINNING_STRING,
    rules.AT_END,
    rules.AT_END_STRING,
    rules.AT_BOUNDARY,
    rules.AT_NON_BOUNDARY,
)


def _in_class(item: Any) -> str:
    """One member of a character class, as it is written."""
    rule, detail = item
    if rule is rules.NEGATE:
        return "^"
    if rule is rules.RANGE:
        return f"{_escaped(detail[0])}-{_escaped(detail[1])}"
    if rule is rules.CATEGORY:
        sign, meant = _CATEGORIES[detail]
        return sign if meant else sign.upper()
    return _escaped(detail)


def _escaped(code: int) -> str:
    return f"\\U{code:08x}"


def _is_word(char: str) -> bool:
    return bool(char) and (char.isalnum() or char == "_")
