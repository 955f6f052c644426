"""What can alert, how an alert lives, and one happening that a rule may match. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from workspaces.domain.incidents import Severity

CHANNEL = "agentdesk_alerts"  # of the database: a commit that has something to tell is heard there


class AlertKind(StrEnum):
    """What needs a person, or what a person wants to be told of."""

    INCIDENT = "incident"
    ESCALATION_OPENED = "escalation_opened"
    ESCALATION_OVERDUE = "escalation_overdue"
    TASK_STUCK = "task_stuck"
    TASK_FAILED = "task_failed"
    TASK_FINISHED = "task_finished"
    QUOTA_EXHAUSTED = "quota_exhausted"
    QUOTA_PREDICTED = "quota_predicted"
    BUDGET_THRESHOLD = "budget_threshold"
    BUDGET_EXHAUSTED = "budget_exhausted"
    SPEND_RATE = "spend_rate"
    SANDBOX_UNHEALTHY = "sandbox_unhealthy"
    WORKER_UNHEALTHY = "worker_unhealthy"
    QUEUE_UNHEALTHY = "queue_unhealthy"
    ENDPOINT_DISABLED = "endpoint_disabled"


class Edge(StrEnum):
    """What a happening says of its trouble."""

    BEGAN = "began"
    WORSE = "worse"  # it goes on, graver or larger
    ENDED = "ended"
    HAPPENED = "happened"  # it has no length: told of, and over


class AlertState(StrEnum):
    PENDING = "pending"  # it has to hold for a while first
    OPEN = "open"
    ACKNOWLEDGED = "acknowledged"
    RESOLVED = "resolved"


class RuleScope(StrEnum):
    SITE = "site"  # all that the rule's owner may see; a site's rule: everything
    USER = "user"
    WORKSPACE = "workspace"
    PROFILE = "profile"


class GroupBy(StrEnum):
    """What makes one alert of several troubles. A trouble without the thing is an alert of its own."""

    TROUBLE = "trouble"
    TASK = "task"
    WORKSPACE = "workspace"
    USER = "user"
    PROFILE = "profile"
    POOL = "pool"
    CAUSE = "cause"
    RULE = "rule"  # all that the rule matches


class ChangeKind(StrEnum):
    """An entry in an alert's own history."""

    OPENED = "opened"
    REOPENED = "reopened"
    GREW = "grew"
    WORSE = "worse"
    REMINDED = "reminded"
    ACKNOWLEDGED = "acknowledged"
    RESOLVED = "resolved"


class Via(StrEnum):
    """How a change came about."""

    RUNTIME = "runtime"
    PAGE = "page"
    LINK = "link"


# the fields of a happening that are ids of rows; signals and members have columns of the same names
IDS = ("task", "workspace", "user", "profile", "pool", "incident", "escalation", "budget", "endpoint")


@dataclass(frozen=True, slots=True)
class Happening:
    """Something that a rule may match. Ids are of rows; `subject` names the trouble: "incident:17", "pool:3".

    `at_s`: seconds since 1970. `cause`: equal for the same structural trouble. `detail`: narrower than the kind (an
    incident's kind, a budget's percent). `data`: figures for the texts and the evidence, JSON. `signal`: of its row,
    0 where it was watched.
    """

    kind: AlertKind
    edge: Edge
    subject: str
    at_s: float
    severity: Severity = Severity.WARNING
    words: str = ""
    detail: str = ""
    cause: str = ""
    task: int | None = None
    workspace: int | None = None
    user: int | None = None
    profile: int | None = None
    pool: int | None = None
    incident: int | None = None
    escalation: int | None = None
    budget: int | None = None
    endpoint: int | None = None
    data: dict[str, Any] = field(default_factory=dict)
    signal: int = 0
