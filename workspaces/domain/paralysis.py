"""Finds paralysis: steps without an action, steps that only plan, steps that cannot meet the exit condition. Pure."""

from __future__ import annotations

import re
from functools import lru_cache

from workspaces.domain.found import finding, first_words, of_look, of_turn, steps
from workspaces.domain.incidents import Finding, IncidentKind
from workspaces.domain.seen import NOTE_TOOLS, Look, Seen
from workspaces.domain.thresholds import Thresholds
from workspaces.domain.trail import Turn

_THING = re.compile(
    r"https?://\S+|[\"'`]([^\"'`]{2,80})[\"'`]|\b[\w-]+(?:/[\w.-]+)+\b|\b[\w-]+\.[A-Za-z][A-Za-z0-9]{0,5}\b"
)
_CUT = frozenset({"length", "max_tokens"})


def no_action(view: Seen, limits: Thresholds) -> list[Finding]:
    """Replies that call no tool. One that was cut at its token limit had no say in it: that is truncation's."""
    if not limits.no_action:
        return []
    run: list[Turn] = []
    for turn in reversed(view.turns):
        if turn.calls or turn.finish_reason in _CUT:
            break
        run.append(turn)
    if len(run) < limits.no_action:
        return []
    run.reverse()
    quote = first_words(run[-1].text)
    return [
        finding(
            IncidentKind.PARALYSIS,
            "no_action",
            [of_turn(turn, first_words(turn.text) or "an empty reply") for turn in run],
            f"{len(run)} replies in a row, at {steps([turn.step for turn in run])}, call no tool"
            + (f". The newest says: “{quote}”" if quote else " and say nothing."),
            about="",
            subject="no action",
            count=len(run),
            threshold=limits.no_action,
        )
    ]


def plan_only(view: Seen, limits: Thresholds) -> list[Finding]:
    """Steps whose every call writes a note: a plan that is never begun."""
    if not limits.plan_only:
        return []
    run: list[Look] = []
    for row in reversed(view.by_turn):
        if not row or not all(look.note for look in row):
            break
        run.append(row[-1])
    if len(run) < limits.plan_only:
        return []
    run.reverse()
    return [
        finding(
            IncidentKind.PARALYSIS,
            "plan_only",
            [of_look(look) for look in run],
            f"{len(run)} steps in a row, {steps([look.call.step for look in run])}, only wrote notes and did nothing.",
            about=run[-1].call.name,
            subject="plan only",
            count=len(run),
            threshold=limits.plan_only,
        )
    ]


def exit_out_of_reach(view: Seen, limits: Thresholds) -> list[Finding]:
    """Step after step that changes nothing and names nothing of what the exit condition names.

    It needs an exit condition that names a file, an address or something in quotes; waiting does not count.
    """
    size = limits.exit_out_of_reach
    things = things_of(view.trail.exit_condition) if size else ()
    if not things:
        return []
    run: list[Look] = []
    for row in reversed(view.by_turn):
        if any(look.changes or look.waits for look in row):
            break
        if any(_names(look, things) for look in row):
            break
        run += [look for look in row[-1:] if look.call.name not in NOTE_TOOLS]
    if len(run) < size:
        return []
    run.reverse()
    return [
        finding(
            IncidentKind.PARALYSIS,
            "exit_out_of_reach",
            [of_look(look) for look in run],
            f"{len(run)} steps in a row, {steps([look.call.step for look in run])}, changed nothing and touched "
            f"nothing that the exit condition names ({', '.join(things[:4])}).",
            about="",
            subject="exit",
            count=len(run),
            threshold=size,
        )
    ]


@lru_cache(maxsize=256)
def things_of(condition: str) -> tuple[str, ...]:
    """Files, addresses and quoted words of an exit condition, in order."""
    found = (match.group(1) or match.group() for match in _THING.finditer(condition[:1000]))
    return tuple(dict.fromkeys(thing.rstrip(".,;:)").lower() for thing in found))


def _names(look: Look, things: tuple[str, ...]) -> bool:
    text = look.call.arguments.lower()
    return any(thing in text or thing.rsplit("/", 1)[-1] in text for thing in things)


RULES = (no_action, plan_only, exit_out_of_reach)
