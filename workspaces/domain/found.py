"""How a detector writes down what it found: evidence in order, words that quote it, a cause, a fingerprint. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from workspaces.domain.incidents import Evidence, Finding, IncidentKind, Severity
from workspaces.domain.seen import Look, code_of, said, shown
from workspaces.domain.trail import Turn

_STEPS_NAMED = 6


def severity_of(count: int, threshold: int) -> Severity:
    """Rises while the trouble goes on: a warning first, an error at twice, critical at four times the threshold."""
    if count >= 4 * threshold:
        return Severity.CRITICAL
    return Severity.ERROR if count >= 2 * threshold else Severity.WARNING


def finding(
    kind: IncidentKind,
    pattern: str,
    evidence: Iterable[Evidence],
    words: str,
    *,
    about: str,
    subject: str,
    count: int,
    threshold: int,
    severity: Severity | None = None,
) -> Finding:
    """`about` ends the cause (equal in any task), `subject` makes the fingerprint (this trouble in this task)."""
    places = tuple(sorted(evidence, key=lambda place: place.seq))
    return Finding(
        kind=kind,
        severity=severity or severity_of(count, threshold),
        pattern=pattern,
        first_seq=places[0].seq,
        last_seq=places[-1].seq,
        evidence=places,
        words=words,
        cause="/".join(part for part in (kind.value, pattern, about) if part),
        fingerprint=fingerprint_of(kind, subject),
        count=count,
    )


def fingerprint_of(kind: IncidentKind, subject: str) -> str:
    return hashlib.sha256(f"{kind}\n{subject}".encode(errors="replace")).hexdigest()[:32]


def of_look(look: Look, what: str = "") -> Evidence:
    call = look.call
    return Evidence(call.seq, call.step, what or f"{shown(call)}: {said(look, 120)}", tool_call=call.tool_call)


def of_turn(turn: Turn, what: str) -> Evidence:
    return Evidence(turn.seq, turn.step, what)


def about_of(look: Look) -> str:
    return f"{look.call.name}/{code_of(look)}"


def steps(numbers: Sequence[int]) -> str:
    """ "steps 4, 7 and 9", "steps 4 to 20"; of many with gaps, the first and the last."""
    unique = list(dict.fromkeys(numbers))
    if len(unique) == 1:
        return f"step {unique[0]}"
    if len(unique) > 3 and unique[-1] - unique[0] == len(unique) - 1:
        return f"steps {unique[0]} to {unique[-1]}"
    if len(unique) > _STEPS_NAMED:
        first, last = unique[:3], unique[-2:]
        return f"steps {', '.join(map(str, first))} … {last[0]} and {last[1]}"
    return f"steps {', '.join(map(str, unique[:-1]))} and {unique[-1]}"


def first_words(text: str, limit: int = 140) -> str:
    text = " ".join(text[: 20 * limit].split())
    return text if len(text) <= limit else text[: limit - 1] + "…"
