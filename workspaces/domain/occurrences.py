"""Failures that one place of the engine knows of, written down as findings; and two that need no comparison. Pure."""

from __future__ import annotations

import hashlib

from workspaces.domain.incidents import Evidence, Finding, IncidentKind, Severity
from workspaces.domain.results import ResultClass
from workspaces.domain.states import Verdict
from workspaces.domain.trail import SeenCall, Trail, Turn

K = IncidentKind
HOLLOW = (ResultClass.EMPTY, ResultClass.AMBIGUOUS)
HOLLOW_REPEATED = 3  # results in a row that say nothing, built on as if they did


def single(
    kind: IncidentKind,
    severity: Severity,
    pattern: str,
    words: str,
    *,
    seq: int,
    step: int | None,
    what: str,
    about: str = "",
    tool_call: int | None = None,
    model_call: int | None = None,
    count: int = 1,
) -> Finding:
    """One occurrence. `about`: what tells it from another of its pattern in the same task."""
    return Finding(
        kind=kind,
        severity=severity,
        pattern=pattern,
        first_seq=seq,
        last_seq=seq,
        evidence=(Evidence(seq, step, what, tool_call, model_call),),
        words=words,
        cause=f"{kind.value}/{pattern}",
        fingerprint=_print(kind, pattern, about),
        count=count,
    )


def nothing_ran(trail: Trail, *, limit: int) -> Finding | None:
    """Replies in a row without a call that could run, whatever each one lacked. `limit` 0: never."""
    run: list[Turn] = []
    for turn in reversed(trail.turns):
        if any(call.verdict is not Verdict.CORRECT for call in turn.calls):
            break
        run.append(turn)
        if turn.operator_spoke:
            break
    if not limit or len(run) < limit:
        return None
    run.reverse()
    places = tuple(Evidence(turn.seq, turn.step, _lacked(turn)) for turn in run)
    return Finding(
        kind=K.PARALYSIS,
        severity=Severity.ERROR,
        pattern="nothing_ran",
        first_seq=places[0].seq,
        last_seq=places[-1].seq,
        evidence=places,
        words=f"{len(run)} replies in a row, at steps {run[0].step} to {run[-1].step}, held no call that could run.",
        cause="paralysis/nothing_ran",
        fingerprint=_print(K.PARALYSIS, "nothing_ran", ""),
        count=len(run),
    )


def _lacked(turn: Turn) -> str:
    if turn.calls:
        return f"{', '.join(call.name for call in turn.calls)} had to be corrected"
    if turn.finish_reason == "length":
        return "it was cut off at the output limit"
    said = " ".join(turn.text.split())[:120]
    return f"it only says: {said}" if said else "it was empty"


def hollow_repeated(trail: Trail) -> Finding | None:
    """One tool that gave nothing, again and again, to really different calls: it is taken for work that was done.

    Only calls that act: a search that finds nothing is an answer.
    """
    run: list[SeenCall] = []
    for call in reversed(trail.calls):
        acts = call.effect is not None and call.effect.leaves_sandbox
        if not acts:
            continue
        if call.result_class not in HOLLOW or (run and call.name != run[0].name):
            break
        run.append(call)
    newest = trail.turns[-1].step if trail.turns else 0
    if len(run) < HOLLOW_REPEATED or run[0].step != newest:
        return None
    run.reverse()
    name = run[0].name
    places = tuple(
        Evidence(call.seq, call.step, f"{name} gave an {call.result_class.value} result", call.tool_call)
        for call in run
    )
    return Finding(
        kind=K.HOLLOW_RESULT,
        severity=Severity.WARNING,
        pattern="empty_result_repeated",
        first_seq=places[0].seq,
        last_seq=places[-1].seq,
        evidence=places,
        words=f"{name} gave nothing {len(run)} times in a row, last at step {run[-1].step}, and the agent goes on as "
        "if it had worked.",
        cause=f"hollow_result/empty_result_repeated/{name}",
        fingerprint=_print(K.HOLLOW_RESULT, "empty_result_repeated", name),
        count=len(run),
    )


def _print(kind: IncidentKind, pattern: str, about: str) -> str:
    return hashlib.sha256(f"{kind}\n{pattern}\n{about}".encode(errors="replace")).hexdigest()
