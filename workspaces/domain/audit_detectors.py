"""Which kinds of incidents a profile's detectors can find, and whether anything follows. Pure."""

from __future__ import annotations

from workspaces.domain.detection import Claims, Detection
from workspaces.domain.incidents import IncidentKind

K = IncidentKind

# the thresholds behind a kind; a kind without one is found whatever a profile says
_THRESHOLDS: dict[IncidentKind, tuple[str, ...]] = {
    K.LOOP: (
        *("same_result", "same_error", "same_error_other_calls", "reread", "cycle", "back_and_forth", "circling"),
        *("same_text", "same_question", "impatient", "waited_error", "poll_limit"),
    ),
    K.PARALYSIS: ("no_action", "plan_only", "exit_out_of_reach"),
    K.NO_PROGRESS: ("no_progress", "empty_again", "nothing_works"),
    K.CONTRADICTION: ("contradiction",),
    K.BAD_CALL: ("corrected",),
    K.STORM: ("retries_per_minute", "forks_per_minute"),
}


def finds(detection: Detection, kind: IncidentKind) -> bool:
    """Whether any of the kind's rules is switched on."""
    if kind is K.FALSE_CLAIM:
        return detection.claims is not Claims.OFF
    names = _THRESHOLDS.get(kind)
    return names is None or any(getattr(detection.thresholds, name) for name in names)


def acts(detection: Detection) -> bool:
    """Whether a finding is ever told to the model or to a person."""
    ladder = detection.ladder
    return not detection.observe_only and bool(ladder.nudges or ladder.escalate_after)
