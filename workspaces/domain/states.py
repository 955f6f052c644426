"""The states of a task, a step and a call, and the table of allowed moves. Pure."""

from __future__ import annotations

from enum import StrEnum


class TaskStatus(StrEnum):
    QUEUED = "queued"  # ready, no worker has taken it up yet
    RUNNING = "running"
    WAITING = "waiting"  # for what `WaitingFor` says
    PAUSING = "pausing"  # an order to pause stands, a worker is still busy
    PAUSED = "paused"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        return self in FINAL


class WaitingFor(StrEnum):
    WORKSPACE = "workspace"
    QUOTA = "quota"
    OPERATOR = "operator"
    BUDGET = "budget"
    CHILD = "child"
    TIMER = "timer"


class PauseMode(StrEnum):
    BOUNDARY = "boundary"  # when the running step has ended
    NOW = "now"  # freeze the sandbox, drop a streaming model call


class WorkspaceState(StrEnum):
    """Whether the workspace's sandbox runs. The two between are claims with a lease: their worker may have died."""

    AWAKE = "awake"
    FALLING_ASLEEP = "falling_asleep"  # a worker saves the disk and ends the sandbox
    ASLEEP = "asleep"  # nothing but its storage; also a new workspace, in which nothing has run yet
    WAKING = "waking"  # a worker starts the sandbox


class StepPhase(StrEnum):
    """The last phase of a step that is written down as finished, in order."""

    CONTEXT = "context"  # the manifest is built, the model is to be asked
    REPLIED = "replied"  # the model's reply is stored
    JUDGED = "judged"  # every call has its verdict; what has no result yet is still to run
    SETTLED = "settled"  # every call has its result, the checkpoint is saved


class CallStatus(StrEnum):
    """A tool call's life. `held` waits for an operator; `running` has an intent and no result yet."""

    PROPOSED = "proposed"
    HELD = "held"
    APPROVED = "approved"  # allowed by the gate or by an operator
    RUNNING = "running"
    DONE = "done"  # has a result, also when it was corrected, rejected, replayed or answered
    ABANDONED = "abandoned"  # a rollback or a cancel came before its result


class ModelCallStatus(StrEnum):
    RUNNING = "running"  # intent written
    REPLIED = "replied"
    FAILED = "failed"
    DROPPED = "dropped"  # by an order, or its worker died


class ModelCallPurpose(StrEnum):
    """What a model is asked for. Only a step's own reply moves the task on."""

    STEP = "step"
    SUMMARY = "summary"  # of the oldest turns, see the compaction
    CLAIM_CHECK = "claim_check"  # whether what a reply states was done


class UsagePurpose(StrEnum):
    """What a usage record was spent on."""

    STEP = "step"
    RETRY = "retry"  # a step's call after one that failed
    SUMMARY = "summary"
    CLAIM_CHECK = "claim_check"
    SANDBOX = "sandbox"
    STORAGE = "storage"


class Circuit(StrEnum):
    """Whether a quota pool lets calls through."""

    CLOSED = "closed"  # it does
    OPEN = "open"  # its retry budget is empty
    HALF_OPEN = "half_open"  # one call may try


class ClaimState(StrEnum):
    """A task's place in a quota pool."""

    IDLE = "idle"
    WAITING = "waiting"  # in the queue
    GRANTED = "granted"  # its turn has come, its worker has not yet
    LEASED = "leased"  # its model call runs


class NoticeKind(StrEnum):
    """What changes what a quota pool lets through."""

    REFUSED = "refused"
    CIRCUIT_OPENED = "circuit_opened"
    HALF_OPENED = "half_opened"
    CLOSED = "closed"
    LIMIT_LEARNED = "limit_learned"
    LIMIT_SET = "limit_set"
    FALLBACK = "fallback"


class BudgetScope(StrEnum):
    SITE = "site"
    USER = "user"
    WORKSPACE = "workspace"
    PROFILE = "profile"
    TASK = "task"


class BudgetPeriod(StrEnum):
    """Over what a budget's limit counts; days and months are UTC."""

    TASK = "task"  # each task in the scope by itself
    DAY = "day"
    MONTH = "month"
    TOTAL = "total"


class ProcessRole(StrEnum):
    """Of a process that keeps tasks going."""

    WORKER = "worker"
    SCHEDULER = "scheduler"


class Verdict(StrEnum):
    ALLOW = "allow"
    CORRECT = "correct"  # back to the model with evidence
    HOLD = "hold"  # for an operator
    REPLAY = "replay"  # a completed effect: its recorded result is given


class EscalationKind(StrEnum):
    HELD_CALL = "held_call"
    QUESTION = "question"
    UNKNOWN_OUTCOME = "unknown_outcome"
    PROVIDER = "provider"
    SANDBOX = "sandbox"
    NO_ACTION = "no_action"  # of older tasks: now an incident is asked about
    CONTEXT_FULL = "context_full"
    LIMIT = "limit"  # of steps
    DEADLINE = "deadline"
    INTAKE = "intake"
    INCIDENT = "incident"  # a detected failure that goes on
    INTERNAL = "internal"  # agentdesk itself failed


class EscalationStatus(StrEnum):
    OPEN = "open"
    ANSWERED = "answered"
    EXPIRED = "expired"
    WITHDRAWN = "withdrawn"  # a rollback, a cancel or the end of the task made it moot


S = TaskStatus
FINAL = frozenset({S.SUCCEEDED, S.FAILED, S.CANCELLED})
ACTIVE = frozenset({S.QUEUED, S.RUNNING, S.WAITING, S.PAUSING})

MOVES: dict[TaskStatus, frozenset[TaskStatus]] = {
    # pausing, where a command that a worker left may still run
    S.QUEUED: frozenset({S.RUNNING, S.PAUSING, S.PAUSED, S.CANCELLED}),
    S.RUNNING: frozenset({S.WAITING, S.PAUSING, S.PAUSED, S.SUCCEEDED, S.FAILED, S.CANCELLED}),
    S.WAITING: frozenset({S.QUEUED, S.PAUSING, S.PAUSED, S.FAILED, S.CANCELLED}),
    S.PAUSING: frozenset({S.RUNNING, S.PAUSED, S.SUCCEEDED, S.FAILED, S.CANCELLED}),
    S.PAUSED: frozenset({S.QUEUED, S.FAILED, S.CANCELLED}),
    # a rollback takes a finished task back to a checkpoint, where it waits for a resume
    S.SUCCEEDED: frozenset({S.PAUSED}),
    S.FAILED: frozenset({S.PAUSED}),
    S.CANCELLED: frozenset({S.PAUSED}),
}

WHY_NOT: dict[TaskStatus, str] = {
    S.QUEUED: "it is queued",
    S.RUNNING: "it is running",
    S.WAITING: "it is waiting",
    S.PAUSING: "it is already pausing",
    S.PAUSED: "it is already paused",
    S.SUCCEEDED: "it has already succeeded",
    S.FAILED: "it has already failed",
    S.CANCELLED: "it was cancelled",
}


def may_move(old: TaskStatus, new: TaskStatus) -> bool:
    return new in MOVES[old]


def is_quiet(status: TaskStatus) -> bool:
    """Nothing runs for the task: it can be rolled back."""
    return status in FINAL or status in (S.PAUSED, S.WAITING)
