"""Finds contradictory results: one question whose definite answers change back and forth while nothing else does. Pure.

A changed answer alone is news. An answer that comes back after another one says that at least one of them was wrong: a
flaky test, two servers behind one name, a cache. A state on its way (pending, running) is no definite answer.
"""

from __future__ import annotations

from workspaces.domain.found import about_of, finding, of_look, steps
from workspaces.domain.incidents import Finding, IncidentKind, Severity
from workspaces.domain.results import ResultClass
from workspaces.domain.seen import ASK_TOOLS, Look, Seen, said, shown
from workspaces.domain.states import Verdict
from workspaces.domain.thresholds import Thresholds

_DEFINITE = frozenset({ResultClass.OK, ResultClass.ERROR, ResultClass.EMPTY})
_MAX_GAP = 6  # turns between two of the answers


def contradictory(view: Seen, limits: Thresholds) -> list[Finding]:
    if not limits.contradiction or not view.by_turn:
        return []
    for newest in reversed(view.by_turn[-1]):
        if _definite(newest) and (found := _of(view, newest, limits.contradiction)):
            return [found]
    return []


def _definite(look: Look) -> bool:
    call = look.call
    return (
        call.result_class in _DEFINITE
        and call.verdict is Verdict.ALLOW
        and not (look.not_yet or look.waits or look.note or look.changes)
        and call.name not in ASK_TOOLS
    )


def _of(view: Seen, newest: Look, threshold: int) -> Finding | None:
    answers = [newest]
    for look in reversed(view.looks):
        if look.turn >= answers[-1].turn:
            if look.turn == answers[-1].turn and look.changes:
                break
            continue
        if look.changes or answers[-1].stirred or answers[-1].turn - look.turn > _MAX_GAP:
            break
        if look.same == newest.same:
            if not _definite(look):
                break
            answers.append(look)
    answers.reverse()
    turns_back = [look for index, look in enumerate(answers) if index == 0 or look.answer != answers[index - 1].answer]
    different = {look.answer for look in answers}
    if len(turns_back) < threshold or not 2 <= len(different) <= 3 or len(turns_back) <= len(different):
        return None
    said_ = [
        next(look for look in answers if look.answer == answer) for answer in dict.fromkeys(x.answer for x in answers)
    ]
    quotes = " / ".join(f"“{said(look, 70)}”" for look in said_)
    return finding(
        IncidentKind.CONTRADICTION,
        "contradictory_results",
        [of_look(look) for look in answers],
        f"{shown(newest.call)} gave answers that cannot all be true at {steps([look.call.step for look in answers])}, "
        f"with nothing changed in between: {quotes}",
        about=about_of(newest),
        subject=f"question\n{newest.same}",
        count=len(turns_back),
        threshold=threshold,
        severity=Severity.WARNING if len(turns_back) < 2 * threshold else Severity.ERROR,
    )


RULES = (contradictory,)
