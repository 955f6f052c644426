"""What changed between repeated attempts: calls of one tool, each compared with the one before. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from workspaces.domain.diffs import unified_diff

NOTHING = "nothing changed"
COMPARED_CHARS = 60_000  # of a result; past this only its beginning is compared, and that is said
MAX_PATHS = 40
BRIEF_CHARS = 120


@dataclass(frozen=True, slots=True)
class Attempt:
    """One call as it was made. `arguments` None: they could not be read, `raw` is what was written."""

    seq: int | None
    step: int
    tool_call: int
    name: str
    arguments: Mapping[str, Any] | None
    raw: str = ""
    verdict: str = ""
    result_class: str = ""
    result: str = ""


@dataclass(frozen=True, slots=True)
class Difference:
    """One place in the arguments, as a JSON path, with what stood there before and after ("" : nothing)."""

    path: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Compared:
    """An attempt beside the one before it with the same tool. `previous` None: it was the first."""

    attempt: Attempt
    previous: Attempt | None = None
    arguments: tuple[Difference, ...] = ()
    more_arguments: int = 0  # differences that are not listed
    result: str = ""  # unified diff; empty when equal
    class_before: str = ""  # when it differs
    clipped: bool = False  # only the beginning of a long result was compared
    words: tuple[str, ...] = field(default_factory=tuple)

    @property
    def nothing_changed(self) -> bool:
        return self.previous is not None and self.words == (NOTHING,)


def compared(attempts: Iterable[Attempt]) -> list[Compared]:
    """Each attempt with what differs from the last one of the same tool, in the order in which they were made."""
    last: dict[str, Attempt] = {}
    found = []
    for attempt in attempts:
        found.append(_compare(last[attempt.name], attempt) if attempt.name in last else Compared(attempt))
        last[attempt.name] = attempt
    return found


def summary(found: Sequence[Compared]) -> str:
    """One sentence over all of them: how many were made, how many changed nothing."""
    repeats = [each for each in found if each.previous is not None]
    if not repeats:
        return ""
    same = sum(each.nothing_changed for each in repeats)
    if same == len(repeats):
        return f"Nothing changed between the {len(found)} attempts: not the arguments, not the result."
    asked = sum(bool(each.arguments) for each in repeats)
    answered = sum(bool(each.result) or bool(each.class_before) for each in repeats)
    return (
        f"Of {len(repeats)} repeats {_count(same)} changed nothing; "
        f"the arguments differed in {_count(asked)}, the result in {_count(answered)}."
    )


def _compare(before: Attempt, after: Attempt) -> Compared:
    differences = _differences(_as_value(before), _as_value(after), "$")
    old, new = before.result, after.result
    clipped = max(len(old), len(new)) > COMPARED_CHARS
    diff = unified_diff(old[:COMPARED_CHARS], new[:COMPARED_CHARS], "result")
    if clipped and not diff and old != new:
        diff = "@@ the results differ further on than is compared here @@\n"
    class_before = before.result_class if before.result_class != after.result_class else ""
    words: list[str] = []
    if differences:
        words.append(f"{len(differences)} argument{'' if len(differences) == 1 else 's'} changed")
    if diff:
        words.append("the result changed")
    if class_before:
        words.append(f"the class went from {class_before} to {after.result_class or 'no result'}")
    return Compared(
        attempt=after,
        previous=before,
        arguments=tuple(differences[:MAX_PATHS]),
        more_arguments=max(0, len(differences) - MAX_PATHS),
        result=diff,
        class_before=class_before,
        clipped=clipped,
        words=tuple(words) or (NOTHING,),
    )


def _as_value(attempt: Attempt) -> Any:
    return attempt.raw if attempt.arguments is None else attempt.arguments


def _differences(old: Any, new: Any, path: str) -> list[Difference]:
    """Places that differ, depth first, by the order of the new value's keys."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        keys = dict.fromkeys((*new, *old))
        return [each for key in keys for each in _inner(old, new, key, f"{path}.{key}")]
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        pairs = enumerate(zip(old, new, strict=True))
        return [each for at, (one, other) in pairs for each in _differences(one, other, f"{path}[{at}]")]
    return [] if _equal(old, new) else [Difference(path, _brief(old), _brief(new))]


def _inner(old: Mapping[str, Any], new: Mapping[str, Any], key: str, path: str) -> list[Difference]:
    if key not in old:
        return [Difference(path, "", _brief(new[key]))]
    if key not in new:
        return [Difference(path, _brief(old[key]), "")]
    return _differences(old[key], new[key], path)


def _equal(old: Any, new: Any) -> bool:
    """JSON's equality: 1 is not true."""
    return old == new and isinstance(old, bool) == isinstance(new, bool)


def _brief(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= BRIEF_CHARS else text[: BRIEF_CHARS - 1] + "…"


def _count(number: int) -> str:
    return "none" if number == 0 else str(number)
