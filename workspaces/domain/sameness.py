"""What differs between equal runs, and what is only cosmetic: two texts are compared without it. Pure.

Times of day, durations, ids of requests and processes, addresses in memory and temporary names differ when nothing has
changed. Counters, percentages, hashes, bare dates and a time that is left are information and stay.
"""

from __future__ import annotations

import re
from functools import lru_cache

from workspaces.domain.shell_words import words

_READ_CHARS = 4_000
_MONTH = r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*"
_DAY = r"(?:mon|tue|wed|thu|fri|sat|sun)[a-z]*"
_TIMES = re.compile(
    r"\b\d{4}-\d\d-\d\d[t ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:z|\s?[+-]\d\d:?\d\d)?"  # ISO 8601
    rf"|\b{_DAY},? (?:\d{{1,2}} {_MONTH}|{_MONTH} +\d{{1,2}})(?: \d{{4}})?,? "
    r"\d\d:\d\d:\d\d(?: [a-z]{2,4})?(?: \d{4})?"  # date, HTTP
    rf"|\b{_MONTH} +\d{{1,2}} \d\d:\d\d(?::\d\d)?\b"  # ls -l, syslog
    r"|\b\d{1,2}:\d\d:\d\d(?:[.,]\d+)?\b(?: ?[ap]m\b)?",
    re.IGNORECASE,
)
# a part is searched only in a text that holds the word before it: that is most of the time it takes
_PARTS: tuple[tuple[str, re.Pattern[str]], ...] = (
    (":", _TIMES),
    ("1", re.compile(r"\b1[5-9]\d{8}(?:\d{3}(?:\d{6})?|\.\d+)?\b")),  # seconds, milli- or nanoseconds since 1970
    ("-", re.compile(r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b", re.IGNORECASE)),  # UUID
    ("0x", re.compile(r"\b0x[0-9a-f]{6,}\b", re.IGNORECASE)),
    ("pid", re.compile(r"(?<=pid[ :=])\s?\d+|(?<=pid\": )\d+", re.IGNORECASE)),
    ("process ", re.compile(r"(?<=process )\d+", re.IGNORECASE)),
    ("tmp", re.compile(r"/tmp/[\w.-]*\d[\w.-]*|\btmp\w{6,}\b", re.IGNORECASE)),  # noqa: S108
    (
        "id",
        re.compile(
            r"(?:request|req|trace|span|correlation|session|job|run|build|container|task|message|transaction)[-_ ]?id"
            r"[\"']?\s?[:= ]\s?[\"']?[\w.-]*\d[\w.-]*",
            re.IGNORECASE,
        ),
    ),
)
_DURATIONS = re.compile(
    r"\b\d+(?:\.\d+)?\s?(?:ns|us|µs|ms|s|secs?|seconds?|mins?|minutes?)\b(?:\s?\d+(?:\.\d+)?\s?s\b)?", re.IGNORECASE
)
_LEFT = re.compile(r"left|remain|eta\b|to go|until|wait|retry|after|timeout|timed|every|limit", re.IGNORECASE)
_FRACTION = re.compile(r"(?<![\d.=<>~^v-])\d+\.\d+(?![\d.])")
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_FILLERS = words(
    "a an and are as at be can could do does for how i if in is it me my now of on or our please shall should so that "
    "the then this to us we what will with would you your may might must again"
)
_SHORT_WORDS = 12


def steady(text: str, *, fractions: bool = False) -> str:
    """A result without what differs between equal runs. `fractions`: numbers with a point as well, which in the
    error of a build are seconds without their unit."""
    text = _DURATIONS.sub(lambda match: _duration(text, match), text)
    text = _parts_off(text)
    return _FRACTION.sub("~", text) if fractions else text


def _parts_off(text: str) -> str:
    lower = text.lower()
    for word, pattern in _PARTS:
        if word in lower:
            text = pattern.sub("~", text)
    return text


def _duration(text: str, match: re.Match[str]) -> str:
    around = text[max(0, match.start() - 16) : match.end() + 12]
    return match.group() if _LEFT.search(around) else "~"


def cosmetics_off(text: str) -> str:
    """A text without what is only cosmetic in a call that fails: case, numbers, quotes, times, temporary names."""
    text = _NUMBER.sub("#", _parts_off(text[:_READ_CHARS])).lower()
    return re.sub(r"[\s\"'`\\]+", " ", text).strip()


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
