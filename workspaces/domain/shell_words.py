"""What a command line is for: reading, checking, waiting, or anything else, which may change files. Pure.

A guess from words, for detectors only: nothing is allowed or forbidden by it. What is not known counts as a change.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any


class Kind(StrEnum):
    READ = "read"
    CHECK = "check"  # a test run, a build: its by-products change no answer
    WAIT = "wait"
    OTHER = "other"


READS_ONLY = frozenset({Kind.READ, Kind.CHECK, Kind.WAIT})


@dataclass(frozen=True, slots=True)
class Nature:
    kind: Kind
    sleeps: bool
    only_sleeps: bool
    searches: bool  # a command for which "nothing found" is an end with code 1 and no words


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_READERS = words(
    "ls cat head tail grep egrep fgrep rg ag find fd wc pwd echo printf which whereis type file stat du df ps top free "
    "uptime date whoami id env printenv uname hostname tree diff cmp sort uniq cut awk jq yq less more nl od xxd "
    "strings md5sum sha1sum sha256sum readlink realpath basename dirname test [ true false lsof netstat ss ping dig "
    "nslookup host curl wget http nc journalctl man help column tr cd export set pgrep seq"
)
_SEARCHERS = words("grep egrep fgrep rg ag find fd test [ pgrep which diff cmp")
_CHECKERS = words("pytest tox nox jest vitest mocha ruff mypy flake8 eslint tsc pylint phpunit rspec ctest")
_CHECKS = re.compile(
    r"^(?:python3? (?:\S*/)?(?:test_\w+|\w+_test)\.py|python3? -m (?:pytest|unittest|mypy|ruff)"
    r"|(?:npm|yarn|pnpm|bun) (?:run )?(?:test|lint|check|typecheck|build)"
    r"|make (?:-\S+ )*(?:test|check|lint)|cargo (?:test|check|clippy|build)|go (?:test|vet|build)|mvn (?:-\S+ )*test"
    r"|(?:\./)?gradlew? (?:-\S+ )*(?:test|check)|dotnet (?:test|build)|bundle exec rspec"
    r"|npx (?:jest|tsc|eslint|vitest))\b"
)
_READING = re.compile(
    r"^(?:git (?:-\S+ )*(?:status|log|diff|show|branch|remote|ls-files|blame|rev-parse|describe|grep|fetch)\b"
    r"|docker (?:ps|logs|inspect|images)\b|kubectl (?:get|describe|logs)\b|systemctl (?:status|is-active)\b"
    r"|(?:pip|npm|apt|apt-cache|cargo|gem) (?:list|show|search|ls|view|freeze|info)\b"
    r"|gh (?:run|pr|issue) (?:view|list|status|watch)\b|aws \S+ (?:describe|list|get)-|terraform (?:show|plan)\b"
    r"|\S+ (?:\S+ )?(?:status|state|health|progress|describe|logs)\b|\S+ (?:--version|-V|--help)$)"
)
_SPLIT = re.compile(r"\|\||&&|[;|\n]|(?<=\s)&(?=\s|$)")
_QUOTED = re.compile(r"'[^']*'|\"(?:[^\"\\]|\\.)*\"")
_LEADING = re.compile(r"^(?:for \w+ in .*|(?:while|until|do|done|then|if|else|fi|sudo|timeout \S+|\w+=\S*)(?:\s+|$))+")
_SLEEP = re.compile(r"(?:^|[\s;&|(])(?:sleep|timeout /t|start-sleep)\s+[\d.$\-a-z]", re.IGNORECASE)
_SENDS = re.compile(
    r"\s(?:-X ?(?!GET)\w+|--request[= ](?!GET)\w+|-d\b|--data\S*|-F\b|--form|-T\b|-o\b|-O\b|--output|--post-data)"
)
_WRITES = re.compile(r"(?<![0-9&=<>-])>{1,2}(?![>&])\s*(?!/dev/null)\S|\btee\b|-delete\b|-exec\b|\bsed\b.*\s-i")
_RUNS = re.compile(r"shell|bash|exec|run|cmd|command|terminal|console", re.IGNORECASE)
_KEYS = ("command", "cmd", "script", "commandline", "bash")


def command_of(name: str, arguments: Mapping[str, Any]) -> str:
    """The command line in a call of a tool that runs one, or an empty text. An editor's "command" is none."""
    if not _RUNS.search(name):
        return ""
    for key in _KEYS:
        if isinstance(value := arguments.get(key), str):
            return value[:2000]
    return ""


def _reads(head: str, text: str) -> bool:
    if head == "sed":
        return "-i" not in text
    return head in _READERS and not (head in ("curl", "wget", "http") and bool(_SENDS.search(f" {text}")))


@lru_cache(maxsize=4096)
def nature_of(command: str) -> Nature:
    sleeps = bool(_SLEEP.search(command))
    bare = _QUOTED.sub("q", command)
    kinds, searches = set(), False
    for part in _SPLIT.split(bare):
        text = _LEADING.sub("", part.strip())
        if not text:
            continue
        head = text.split(None, 1)[0].rsplit("/", 1)[-1]
        searches = head in _SEARCHERS
        if head == "sleep":
            kinds.add(Kind.WAIT)
        elif head in _CHECKERS or _CHECKS.match(text):
            kinds.add(Kind.CHECK)
        elif _READING.match(text) or _reads(head, text):
            kinds.add(Kind.READ)
        else:
            kinds.add(Kind.OTHER)
    if _WRITES.search(bare) or Kind.OTHER in kinds or not kinds:
        kind = Kind.OTHER
    elif Kind.CHECK in kinds:
        kind = Kind.CHECK
    else:
        kind = Kind.READ if Kind.READ in kinds else Kind.WAIT
    only = bool(kinds) and kinds <= {Kind.WAIT} and sleeps
    return Nature(kind, sleeps, only, searches)
