"""What a detected failure is: its kind, how grave it is, the evidence, and what was done about it. Pure.

Two maps name what a kind is about: the seven structural failures that agentdesk exists for, and the six clusters
into which a synthesis of 27 benchmark and audit papers sorts agents' failures (arXiv 2607.05775).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

EVIDENCE_KEPT = 40  # of a finding: the first half and the last half of it


class FailureMode(StrEnum):
    """The seven failures that look like a stupid agent and are the runtime's."""

    LOST_HISTORY = "lost_history"
    QUOTA = "quota"  # a shared allowance exhausted, retries that make it worse
    LOOP = "loop"
    PARALYSIS = "paralysis"
    TRUNCATION = "truncation"
    BAD_CALL = "bad_call"  # one bad tool call that corrupts what follows
    COMPOUNDING = "compounding"  # any of these, growing with length and number of agents


class Cluster(StrEnum):
    """The clusters of arXiv 2607.05775."""

    TOOL_USE = "tool_use"  # invocation and parameter errors
    PLANNING = "planning"  # plans and constraints not kept
    LONG_HORIZON = "long_horizon"  # decay over many steps
    COORDINATION = "coordination"  # between several agents
    SAFETY = "safety"  # under adversarial conditions, and harm done
    MEASUREMENT = "measurement"  # what is reported as success is none


class IncidentKind(StrEnum):
    LOOP = "loop"
    PARALYSIS = "paralysis"  # turns without an action
    NO_PROGRESS = "no_progress"  # actions that change nothing
    CONTRADICTION = "contradiction"  # one question, results that cannot all be true
    STORM = "storm"  # retries on an exhausted pool, a fan-out of tasks
    TRUNCATION = "truncation"  # the model saw, or said, less than was sent or meant
    CONTEXT_FULL = "context_full"  # what must be sent does not fit
    BAD_CALL = "bad_call"  # calls that the gate had to correct, again and again
    HOLLOW_RESULT = "hollow_result"  # an empty or ambiguous result taken for success
    FALSE_CLAIM = "false_claim"  # an action stated that no call completed
    UNKNOWN_OUTCOME = "unknown_outcome"  # an effect begun, and nobody knows how it ended
    LOST_WORK = "lost_work"  # files or history that could not be kept
    TOOL_CHANGED = "tool_changed"  # a tool's definition is not the one that was accepted


class Severity(StrEnum):
    """In rising order."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
    CRITICAL = "critical"

    @property
    def rank(self) -> int:
        return list(Severity).index(self)


class IncidentState(StrEnum):
    OPEN = "open"
    ACKNOWLEDGED = "acknowledged"
    RESOLVED = "resolved"


class Rung(StrEnum):
    """How far the runtime's answer has gone, in rising order."""

    NOTED = "noted"
    NUDGED = "nudged"  # the evidence was put into the context
    ESCALATED = "escalated"  # the task waits, a person is asked
    STOPPED = "stopped"

    @property
    def rank(self) -> int:
        return list(Rung).index(self)


K, M, C = IncidentKind, FailureMode, Cluster

_ABOUT: dict[IncidentKind, tuple[FailureMode, tuple[Cluster, ...]]] = {
    K.LOOP: (M.LOOP, (C.PLANNING, C.LONG_HORIZON)),
    K.PARALYSIS: (M.PARALYSIS, (C.PLANNING,)),
    K.NO_PROGRESS: (M.PARALYSIS, (C.PLANNING, C.LONG_HORIZON)),
    K.CONTRADICTION: (M.PARALYSIS, (C.PLANNING, C.TOOL_USE)),
    K.STORM: (M.QUOTA, (C.COORDINATION,)),
    K.TRUNCATION: (M.TRUNCATION, (C.LONG_HORIZON,)),
    K.CONTEXT_FULL: (M.TRUNCATION, (C.LONG_HORIZON,)),
    K.BAD_CALL: (M.BAD_CALL, (C.TOOL_USE,)),
    K.HOLLOW_RESULT: (M.BAD_CALL, (C.TOOL_USE, C.MEASUREMENT)),
    K.FALSE_CLAIM: (M.BAD_CALL, (C.MEASUREMENT,)),
    K.UNKNOWN_OUTCOME: (M.LOST_HISTORY, (C.TOOL_USE, C.SAFETY)),
    K.LOST_WORK: (M.LOST_HISTORY, (C.LONG_HORIZON,)),
    K.TOOL_CHANGED: (M.BAD_CALL, (C.SAFETY,)),
}


def mode_of(kind: IncidentKind) -> FailureMode:
    return _ABOUT[kind][0]


def clusters_of(kind: IncidentKind) -> tuple[Cluster, ...]:
    return _ABOUT[kind][1]


def kinds_of(mode: FailureMode) -> tuple[IncidentKind, ...]:
    return tuple(kind for kind in IncidentKind if mode_of(kind) is mode)


@dataclass(frozen=True, slots=True)
class Evidence:
    """One place in the trace that proves a finding, and what is to be seen there."""

    seq: int
    step: int | None
    what: str
    tool_call: int | None = None
    model_call: int | None = None

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Finding:
    """A detected failure, before it is an incident.

    `pattern` names the rule that found it. `words` says it with its evidence, and is what a nudge quotes. `cause` is
    equal for the same structural trouble in any task; `fingerprint` for the same trouble while it grows in one.
    """

    kind: IncidentKind
    severity: Severity
    pattern: str
    first_seq: int
    last_seq: int
    evidence: tuple[Evidence, ...]
    words: str
    cause: str
    fingerprint: str
    count: int = 1

    def kept_evidence(self) -> list[dict[str, Any]]:
        """As it is stored: at most EVIDENCE_KEPT places, from the beginning and the end."""
        half = EVIDENCE_KEPT // 2
        shown = self.evidence
        if len(shown) > EVIDENCE_KEPT:
            shown = (*shown[:half], *shown[-half:])
        return [place.as_json() for place in shown]
