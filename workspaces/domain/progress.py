"""Finds steps without progress: nothing new was learned, no file changed, nothing written down. Pure.

Waiting is honest, so an unchanged answer with waiting in between is counted apart and for long; at its limit a person
should know, for what is waited for may never come.
"""

from __future__ import annotations

from workspaces.domain.found import about_of, finding, of_look, steps
from workspaces.domain.incidents import Finding, IncidentKind
from workspaces.domain.loops import is_poll, streaks
from workspaces.domain.seen import ASK_TOOLS, Look, Seen, said, shown
from workspaces.domain.states import Verdict
from workspaces.domain.thresholds import Thresholds
from workspaces.domain.trail import WINDOW

K = IncidentKind


def endless_poll(view: Seen, limits: Thresholds) -> list[Finding]:
    """An answer that has not changed over many looks with waiting in between, alone or as a part of a round."""
    if not limits.poll_limit or not view.by_turn or not view.by_turn[-1]:
        return []
    newest = view.by_turn[-1][-1]
    asked = _newest_question(view)
    if asked is None:
        return _only_waiting(view, limits)
    same, period = [asked], 1
    for index in range(len(view.looks) - 1, -1, -1):
        look = view.looks[index]
        if look.turn >= same[-1].turn or look.note or look.only_waits:
            continue
        if look.same == asked.same:
            if look.answer != asked.answer:
                break
            period = max(period, same[-1].turn - look.turn)
            same.append(look)
        elif (look.changes and not look.not_yet and not look.failed) or same[-1].turn - look.turn > 6:
            break
    needed = min(limits.poll_limit, WINDOW // period - 2) if period > 1 else limits.poll_limit
    first = same[-1].turn
    waited = sum(any(look.waits for look in row) for row in view.by_turn[first:])
    patient = waited * 2 >= len(same) or view.asked_to_wait
    if len(same) < needed or not patient or newest.note:
        return []
    same.reverse()
    where = steps([look.call.step for look in same])
    how = "waiting in between" if waited * 2 >= len(same) else "as the instruction asks for"
    return [
        finding(
            K.NO_PROGRESS,
            "endless_poll",
            [of_look(look) for look in same],
            f"{shown(asked.call)} was asked {len(same)} times, {how}, and its answer has not changed at {where}: "
            f"{said(asked)}",
            about=about_of(asked),
            subject=f"poll\n{asked.same}",
            count=len(same),
            threshold=needed,
        )
    ]


def _newest_question(view: Seen) -> Look | None:
    for look in reversed(view.looks):
        if look.turn < len(view.turns) - 6:
            return None
        if not look.only_waits and not look.note and look.call.name not in ASK_TOOLS:
            return look
    return None


def _only_waiting(view: Seen, limits: Thresholds) -> list[Finding]:
    run = []
    for row in reversed(view.by_turn):
        if not row or not all(look.only_waits or look.note for look in row):
            break
        run.append(row[-1])
    if len(run) < limits.poll_limit:
        return []
    run.reverse()
    return [
        finding(
            K.NO_PROGRESS,
            "only_waiting",
            [of_look(look) for look in run],
            f"{len(run)} steps in a row only waited and looked at nothing, {steps([x.call.step for x in run])}.",
            about=run[-1].call.name,
            subject="only waiting",
            count=len(run),
            threshold=limits.poll_limit,
        )
    ]


def empty_again(view: Seen, limits: Thresholds) -> list[Finding]:
    """Searches in a row that find nothing, whatever is asked. Some are honest; many say that the place is wrong."""
    if not limits.empty_again:
        return []
    run: list[Look] = []
    for look in reversed(view.looks):
        if look.note:
            continue
        if not look.hollow or look.waits or (run and look.call.name != run[0].call.name):
            break
        if not run or look.turn != run[-1].turn:
            run.append(look)
    if not run or run[0].turn != len(view.turns) - 1 or len(run) < limits.empty_again:
        return []
    if view.asked_to_wait and len({look.same for look in run}) == 1:
        return []
    run.reverse()
    return [
        finding(
            K.NO_PROGRESS,
            "empty_again",
            [of_look(look) for look in run],
            f"{len(run)} calls of {run[-1].call.name} in a row found nothing, at "
            f"{steps([look.call.step for look in run])}. The newest: {shown(run[-1].call)}",
            about=run[-1].call.name,
            subject=f"empty\n{run[-1].call.name}",
            count=len(run),
            threshold=limits.empty_again,
        )
    ]


def nothing_works(view: Seen, limits: Thresholds) -> list[Finding]:
    """Step after step whose every call failed, each in its own way."""
    if not limits.nothing_works:
        return []
    run: list[Look] = []
    for row in reversed(view.by_turn):
        acts = [look for look in row if not look.note]
        if not acts:
            continue
        if not all(look.failed for look in acts) or any(look.not_yet or look.waits for look in acts):
            break
        run.append(acts[-1])
    if len(run) < limits.nothing_works or not any(look.turn == len(view.turns) - 1 for look in run[:1]):
        return []
    run.reverse()
    newest = run[-1]
    return [
        finding(
            K.NO_PROGRESS,
            "nothing_works",
            [of_look(look) for look in run],
            f"Every call of {len(run)} steps in a row failed, at {steps([look.call.step for look in run])}. "
            f"The newest: {shown(newest.call)}: {said(newest)}",
            about="",
            subject="nothing works",
            count=len(run),
            threshold=limits.nothing_works,
        )
    ]


def no_news(view: Seen, limits: Thresholds) -> list[Finding]:
    """Steps in a row that changed nothing, brought no result that was not there before, and wrote no note."""
    size = limits.no_progress
    if not size or not view.by_turn or not view.by_turn[-1]:
        return []
    news = _news(view)
    run: list[Look] = []
    for row, new in zip(reversed(view.by_turn), reversed(news), strict=True):
        if new:
            break
        if row:
            run.append(row[-1])
    if len(run) < size or _waits_for_something(view, run):
        return []
    run.reverse()
    newest = run[-1]
    return [
        finding(
            K.NO_PROGRESS,
            "no_news",
            [of_look(look) for look in run],
            f"{len(run)} steps in a row, {steps([look.call.step for look in run])}, changed no file, wrote no note and "
            f"brought no result that was not there before. The newest: {shown(newest.call)}: {said(newest)}",
            about="",
            subject="no news",
            count=len(run),
            threshold=size,
        )
    ]


def _news(view: Seen) -> list[bool]:
    """By turn: whether it changed or brought anything."""
    known: set[str] = set()
    done: set[str] = set()
    news = []
    for turn, row in zip(view.turns, view.by_turn, strict=True):
        new = turn.notes > 0
        for look in row:
            result = look.loose_answer if look.failed else look.answer
            if result not in known and not look.hollow and look.call.verdict is not Verdict.CORRECT:
                new = True
            if look.changes and not look.failed and look.same not in done:
                new = True
            known.add(result)
            done.add(look.same)
        news.append(new)
    return news


def _waits_for_something(view: Seen, run: list[Look]) -> bool:
    waiting = sum(look.waits or look.not_yet for look in run)
    return waiting * 3 >= len(run) or any(is_poll(view, streak) for streak in streaks(view))


RULES = (endless_poll, empty_again, nothing_works, no_news)
