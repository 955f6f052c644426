"""What a profile's form and page say about its detectors: each name, its usual value, what it counts. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from workspaces.domain.detection import detection_of
from workspaces.domain.ladder import Ladder
from workspaces.domain.thresholds import Thresholds

WORDS: dict[str, str] = {
    "same_result": "the same call with the same result, nothing changed in between",
    "same_error": "the same call with the same error",
    "same_error_other_calls": "different calls of one tool with one error",
    "reread": "the same call and result with other calls in between",
    "cycle": "rounds of 2 to 6 steps that come again",
    "back_and_forth": "rounds of changes to a file that undo one another",
    "circling": "calls that nearly all were made before",
    "same_text": "replies without a call that say the same",
    "same_question": "the same question to an operator",
    "impatient": "looks at what is not ready, without waiting in between",
    "waited_error": "the same error with waiting in between",
    "poll_limit": "looks at what does not change, with waiting in between",
    "no_action": "replies without a call that could run",
    "plan_only": "steps that only write notes",
    "exit_out_of_reach": "steps that touch nothing which the exit condition names",
    "no_progress": "steps without a changed file, new information or a note",
    "empty_again": "searches in a row that find nothing",
    "nothing_works": "steps whose every call failed",
    "contradiction": "answers to one question that change back and forth",
    "corrected": "steps in a row whose call of one tool was corrected",
    "retries_per_minute": "refused calls to one provider, by all tasks",
    "forks_per_minute": "forks of one task",
    "ladder.nudges": "how often the model is told before a person is asked",
    "ladder.escalate_after": "repeats after that before a person is asked; 0: nobody is",
    "ladder.stop_after": "how often a person is asked before the task fails; 0: it never does",
    "observe_only": "true: incidents are recorded, nothing is done",
    "claims": "words that say more than was done. off, record, or hold: the end is held until they fit",
    "claims_model": "true: a model is asked as well whether an end claims too much",
}


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    usual: str
    words: str


def defaults() -> list[Row]:
    """Every name that `detectors` may hold, as the form lists them."""
    usual = {field.name: getattr(Thresholds(), field.name) for field in fields(Thresholds)}
    usual |= {f"ladder.{field.name}": getattr(Ladder(), field.name) for field in fields(Ladder)}
    usual |= {"observe_only": "false", "claims": "record", "claims_model": "false"}
    return [Row(name, str(value), WORDS.get(name, "")) for name, value in usual.items()]


def shown(settings: Mapping[str, Any]) -> dict[str, Any]:
    """What differs from the usual, for a profile's page."""
    try:
        return detection_of(settings).differs()
    except ValueError:  # saved under other rules
        return dict(settings)
