"""From which count on a detector speaks: the defaults, and a profile's own numbers checked against limits. Pure.

Sources of the defaults: the public rules of other runtimes (OpenHands: same action and result 4 times, with an error 3
times, 3 messages without an action, two alternating pairs over 6 calls; Gemini CLI: the same call 5 times; OpenClaw: 10
and 20 of 30), made stricter or looser where tests/corpus showed that one of them is late or alarms for honest work.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Counts of repeats, calls or steps; rates are per minute. 0 turns a rule off."""

    # loop
    same_result: int = 4  # the same call with the same result, nothing changed in between (OpenHands' number)
    same_error: int = 3  # the same call, or a cosmetic variant, with the same error (OpenHands' number)
    same_error_other_calls: int = 5  # really different calls of a tool, one error: something else is wrong
    reread: int = 6  # the same call and result with other calls in between: a second look is honest
    cycle: int = 3  # whole rounds of a cycle of 2 to 6 turns (two tools: OpenHands' 6 calls)
    back_and_forth: int = 2  # rounds of changes of a file that undo one another: the second round is the proof
    circling: int = 12  # calls of which nearly all were seen before, in no regular order
    same_text: int = 3  # replies without a call that say the same (OpenHands' number)
    same_question: int = 3  # the same question to an operator, nothing done in between

    # polling: what is honest while something is waited for
    impatient: int = 8  # "not yet" again and again without waiting in between
    waited_error: int = 8  # a definite error, with waiting in between: it may come into being
    poll_limit: int = 25  # unchanged answers with waiting in between; above it somebody must know

    # paralysis
    no_action: int = 3  # replies without a call (the engine's own limit is as high)
    plan_only: int = 6  # steps that only write notes
    exit_out_of_reach: int = 30  # steps that change nothing and touch nothing the exit condition names

    # progress
    no_progress: int = 12  # steps without a changed file, new information or a note
    empty_again: int = 8  # searches in a row that find nothing, whatever is asked
    nothing_works: int = 12  # steps whose every call failed, however

    # contradiction
    contradiction: int = 3  # definite answers to one question that change back and forth (a, b, a)

    # bad calls
    corrected: int = 3  # steps in a row whose call of one tool had to be corrected

    # storms, per minute
    retries_per_minute: int = 20
    forks_per_minute: int = 20


MAX = 10_000
_AT_LEAST = {
    "same_result": 2,
    "same_error": 2,
    "same_error_other_calls": 3,
    "reread": 3,
    "cycle": 2,
    "back_and_forth": 2,
    "circling": 8,
    "same_text": 2,
    "same_question": 2,
    "contradiction": 3,
}
NAMES = tuple(field.name for field in fields(Thresholds))


def problems(settings: Any) -> list[str]:
    """What is wrong with a profile's `detectors`, in sentences; an empty list when it can be used."""
    if not isinstance(settings, Mapping):
        return ["The detectors must be an object of names and numbers."]
    found = []
    for name, value in settings.items():
        if name not in NAMES:
            found.append(f"There is no threshold {name!r}. There are: {', '.join(NAMES)}.")
        elif isinstance(value, bool) or not isinstance(value, int):
            found.append(f"{name} must be a whole number, 0 turns it off.")
        elif value and not _AT_LEAST.get(name, 2) <= value <= MAX:
            found.append(f"{name} must be 0 (off) or from {_AT_LEAST.get(name, 2)} to {MAX}, not {value}.")
    return found


def thresholds_of(settings: Mapping[str, Any]) -> Thresholds:
    """The defaults with a profile's own numbers. Raises ValueError with every problem."""
    if wrong := problems(settings):
        raise ValueError(" ".join(wrong))
    return Thresholds(**settings)
