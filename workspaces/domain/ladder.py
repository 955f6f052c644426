"""What the runtime does about a failure that goes on: tell the model, then ask a person, then stop. Pure.

A person's word begins it anew: what was told before is answered by it. The task is stopped only after people were
asked as often as the profile says and the same trouble went on: never without a person.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from workspaces.domain.incidents import Finding, IncidentKind, Rung, Severity

HELPED_AFTER = 3  # steps after a nudge without the trouble: it helped
QUIET_STEPS = 5  # steps without the trouble: it is over

# each occurrence was told to the model already, as a correction: telling it once more is no new rung
TOLD_EACH_TIME = frozenset({IncidentKind.BAD_CALL})
TOLD_PATTERNS = frozenset({"no_action", "nothing_ran"})
# what the model can do nothing about, or is recorded only
OFF_THE_LADDER = frozenset(
    {
        IncidentKind.STORM,
        IncidentKind.CONTEXT_FULL,
        IncidentKind.UNKNOWN_OUTCOME,
        IncidentKind.LOST_WORK,
        IncidentKind.TOOL_CHANGED,
        IncidentKind.FALSE_CLAIM,
    }
)
# over when it has not been seen for a while; what else is open stays so until a person has seen it
PASSING = frozenset(
    {
        IncidentKind.LOOP,
        IncidentKind.PARALYSIS,
        IncidentKind.NO_PROGRESS,
        IncidentKind.CONTRADICTION,
        IncidentKind.BAD_CALL,
        IncidentKind.STORM,
        IncidentKind.CONTEXT_FULL,
    }
)

INSTEAD: dict[IncidentKind, str] = {
    IncidentKind.LOOP: (
        "The same again will give the same again. Find out why it does, or take another way. If you wait for "
        "something, wait longer between two looks."
    ),
    IncidentKind.PARALYSIS: "Nothing is done by words alone: call a tool that brings the instruction forward now.",
    IncidentKind.NO_PROGRESS: (
        "None of this has brought the instruction forward. Say in a note what is still missing, then do that, by "
        "another way than so far."
    ),
    IncidentKind.CONTRADICTION: (
        "These cannot all hold. Find out by another check which one does, and note it, before you build on any."
    ),
    IncidentKind.HOLLOW_RESULT: (
        "An empty result is no success. Look whether it did what you wanted before you build on it."
    ),
    IncidentKind.TRUNCATION: "A part was lost on the way. Read and write less at once.",
}
OTHERWISE = "If something stands in the way that you cannot remove, ask the operator, or finish and say what it is."


@dataclass(frozen=True, slots=True)
class Ladder:
    """`nudges`: how often the model is told before a person is asked. `escalate_after`: how many repeats after the
    newest nudge bring the next rung. `stop_after`: how often a person is asked before the task fails. 0: never."""

    nudges: int = 1
    escalate_after: int = 2
    stop_after: int = 3


MOST = 100
NAMES = tuple(field.name for field in fields(Ladder))


def problems(settings: Any) -> list[str]:
    """What is wrong with a profile's `ladder`, in sentences."""
    if not isinstance(settings, Mapping):
        return ["The ladder must be an object of names and numbers."]
    found = []
    for name, value in settings.items():
        if name not in NAMES:
            found.append(f"The ladder has no {name!r}. It has: {', '.join(NAMES)}.")
        elif isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST:
            found.append(f"{name} must be a whole number from 0 (never) to {MOST}.")
    return found


def next_rung(
    finding: Finding, answers: Sequence[Mapping[str, Any]], *, person_seq: int, ladder: Ladder
) -> Rung | None:
    """What to do about a finding that is new or has grown.

    `answers`: what was done about its incident before ({rung, seq, count}), oldest first. `person_seq`: of the
    newest event by which a person had a say in the task, 0 for none.
    """
    if finding.kind in OFF_THE_LADDER or finding.severity is Severity.INFO:
        return None
    since = [answer for answer in answers if answer["seq"] > person_seq]
    asked = sum(answer["rung"] == Rung.ESCALATED.value for answer in answers if answer["seq"] <= person_seq)
    if any(answer["rung"] == Rung.ESCALATED.value for answer in since):
        return Rung.ESCALATED if ladder.escalate_after else None  # the question was withdrawn, the trouble goes on
    told = [answer for answer in since if answer["rung"] == Rung.NUDGED.value]
    nudges = 0 if _was_told(finding) else ladder.nudges
    above = Rung.STOPPED if ladder.stop_after and asked >= ladder.stop_after else Rung.ESCALATED
    if finding.severity is Severity.CRITICAL and ladder.escalate_after:
        return above
    if told and not _repeats(finding, told[-1], ladder):
        return None
    if len(told) < nudges:
        return Rung.NUDGED
    return above if ladder.escalate_after else None


def claim_rung(answers: Sequence[Mapping[str, Any]], *, person_seq: int) -> Rung | None:
    """What to do about an end that claims what was not done, where the profile holds it. None: let it be.

    The model is told once, then a person is asked; what a person has seen and let go on may end.
    """
    if any(answer["rung"] == Rung.ESCALATED.value and answer["seq"] <= person_seq for answer in answers):
        return None
    since = [answer["rung"] for answer in answers if answer["seq"] > person_seq]
    return Rung.ESCALATED if since else Rung.NUDGED


def _was_told(finding: Finding) -> bool:
    return finding.kind in TOLD_EACH_TIME or finding.pattern in TOLD_PATTERNS


def _repeats(finding: Finding, told: Mapping[str, Any], ladder: Ladder) -> bool:
    """Whether it went on long enough after the nudge. A count that fell has begun anew."""
    before = int(told.get("count", 0))
    more = finding.count - before if finding.count >= before else finding.count
    return more >= max(ladder.escalate_after, 1)


def nudge(finding: Finding) -> str:
    """What the model reads: the evidence, then what to do instead."""
    instead = INSTEAD.get(finding.kind, "Do something else.")
    return f"Notice from the runtime: {_sentence(finding.words)} {instead} {OTHERWISE}"


def question(finding: Finding, *, nudges: int) -> str:
    told = ""
    if _was_told(finding):
        told = " It was told each time what is wrong."
    elif nudges:
        told = f" It was told {'once' if nudges == 1 else f'{nudges} times'} and went on."
    return f"{_sentence(finding.words)}{told} Tell it what to do and let it go on, or give the task up."


def verdict(finding: Finding, *, asked: int) -> str:
    """The words with which a task is stopped."""
    return f"Stopped by agentdesk: {_sentence(finding.words)} A person was asked {asked} times, and it went on."


def _sentence(words: str) -> str:
    """Words that quote a result end as it does; what follows begins a sentence."""
    return words if words.rstrip("”\"') ").endswith((".", "!", "?", "…")) else f"{words}."
