"""The ladder's next rung, and a profile's detectors: what they may say and what is wrong with them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from workspaces.domain.detection import Claims, detection_of, problems
from workspaces.domain.incidents import Evidence, Finding, IncidentKind, Rung, Severity
from workspaces.domain.ladder import Ladder, claim_rung, next_rung, nudge, question


def finding(
    count: int, severity: Severity = Severity.WARNING, kind: IncidentKind = IncidentKind.LOOP, pattern: str = "x"
) -> Finding:
    return Finding(kind, severity, pattern, 1, 9, (Evidence(9, 3, "it"),), "The same 404.", "c", "f", count)


def done(rung: Rung, seq: int, count: int = 3) -> dict[str, Any]:
    return {"rung": rung.value, "seq": seq, "count": count}


N, E, S = Rung.NUDGED, Rung.ESCALATED, Rung.STOPPED
DEFAULT = Ladder()


@pytest.mark.parametrize(
    ("count", "answers", "person_seq", "ladder", "rung"),
    [
        (3, [], 0, DEFAULT, N),
        (4, [done(N, 10)], 0, DEFAULT, None),  # one repeat may have been on its way
        (5, [done(N, 10)], 0, DEFAULT, E),
        (5, [done(N, 10)], 0, Ladder(nudges=2), N),
        (7, [done(N, 10), done(N, 12, 5)], 0, Ladder(nudges=2), E),
        (3, [], 0, Ladder(nudges=0), E),
        (9, [done(N, 10)], 0, Ladder(escalate_after=0), None),  # told, never asked
        (6, [done(N, 10), done(E, 12, 5)], 0, DEFAULT, E),  # the question was withdrawn
        (3, [done(N, 10), done(E, 12, 5)], 20, DEFAULT, N),  # a person spoke: anew
        (5, [done(N, 10), done(E, 12, 5), done(N, 30)], 20, DEFAULT, E),
        (5, [done(E, 1), done(E, 2), done(E, 3), done(N, 30)], 20, DEFAULT, S),
        (5, [done(E, 1), done(E, 2), done(E, 3), done(N, 30)], 20, Ladder(stop_after=0), E),
        (2, [done(N, 10, 7)], 0, DEFAULT, E),  # the count fell, so it began anew, and went on twice
    ],
)
def test_the_next_rung(
    count: int, answers: list[dict[str, Any]], person_seq: int, ladder: Ladder, rung: Rung | None
) -> None:
    assert next_rung(finding(count), answers, person_seq=person_seq, ladder=ladder) is rung


def test_what_is_critical_is_asked_at_once_and_what_is_only_noted_never() -> None:
    assert next_rung(finding(3, Severity.CRITICAL), [], person_seq=0, ladder=DEFAULT) is E
    assert next_rung(finding(3, Severity.INFO), [], person_seq=0, ladder=DEFAULT) is None
    assert next_rung(finding(3, kind=IncidentKind.STORM), [], person_seq=0, ladder=DEFAULT) is None


def test_what_was_corrected_each_time_was_told_already() -> None:
    assert next_rung(finding(3, kind=IncidentKind.BAD_CALL), [], person_seq=0, ladder=DEFAULT) is E
    silent = finding(3, kind=IncidentKind.PARALYSIS, pattern="no_action")
    assert next_rung(silent, [], person_seq=0, ladder=DEFAULT) is E
    assert "told each time" in question(silent, nudges=0)


def test_an_end_is_held_once_then_asked_about_then_let_be() -> None:
    assert claim_rung([], person_seq=0) is N
    assert claim_rung([done(N, 5)], person_seq=0) is E
    assert claim_rung([done(N, 5), done(E, 8)], person_seq=9) is None
    assert claim_rung([done(N, 5)], person_seq=9) is N


def test_a_nudge_quotes_the_evidence_and_says_what_to_do_instead() -> None:
    told = nudge(finding(3))
    open_ended = replace(finding(3), words="It ended with: no such file")
    assert "no such file. It was told once" in question(open_ended, nudges=1)
    assert "The same 404." in told
    assert "another way" in told


def test_a_profiles_detectors_are_read_with_their_defaults() -> None:
    assert detection_of({}).differs() == {}
    found = detection_of(
        {"same_error": 5, "empty_again": 0, "ladder": {"nudges": 2}, "claims": "hold", "observe_only": True}
    )
    assert (found.thresholds.same_error, found.thresholds.empty_again, found.ladder) == (5, 0, Ladder(nudges=2))
    assert found.claims is Claims.HOLD
    assert set(found.differs()) == {"same_error", "empty_again", "nudges", "claims", "observe_only"}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ([], "one object"),
        ({"no_such": 3}, "no_such"),
        ({"same_error": "x"}, "whole number"),
        ({"ladder": 3}, "must be an object"),
        ({"ladder": {"rungs": 3}}, "has no 'rungs'"),
        ({"ladder": {"nudges": -1}}, "from 0 (never) to 100"),
        ({"claims": "block"}, "off, record, hold"),
        ({"observe_only": "yes"}, "true or false"),
    ],
)
def test_what_is_wrong_with_them_is_said(settings: Any, words: str) -> None:
    assert any(words in problem for problem in problems(settings)), problems(settings)
