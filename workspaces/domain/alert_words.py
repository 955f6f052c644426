"""What the kinds, states and groups of alerts mean, each in one line for a person. Pure."""

from __future__ import annotations

from workspaces.domain.alerts import AlertKind, AlertState, ChangeKind, GroupBy, Via
from workspaces.domain.incident_words import Words

K, S, C, G = AlertKind, AlertState, ChangeKind, GroupBy

KINDS: dict[AlertKind, Words] = {
    K.INCIDENT: Words("Incident", "A failure was detected in a task: a loop, a standstill, a false claim …"),
    K.ESCALATION_OPENED: Words("Question", "A task asks an operator, and waits for the answer."),
    K.ESCALATION_OVERDUE: Words("Question overdue", "Nobody answered a task's question before its deadline."),
    K.TASK_STUCK: Words("Task stuck", "Nothing happened in a task for longer than the rule allows."),
    K.TASK_FAILED: Words("Task failed", "A task ended without a result."),
    K.TASK_FINISHED: Words("Task finished", "A task ended with a result."),
    K.QUOTA_EXHAUSTED: Words("Quota exhausted", "A provider's shared allowance is used up, and tasks wait for it."),
    K.QUOTA_PREDICTED: Words("Quota running out", "At this pace a shared allowance is used up before it refills."),
    K.BUDGET_THRESHOLD: Words("Budget threshold", "A budget passed a share of its limit."),
    K.BUDGET_EXHAUSTED: Words("Budget used up", "A budget has no room, and what it binds waits."),
    K.SPEND_RATE: Words("Unusual spending", "Money goes faster than is usual for this user."),
    K.SANDBOX_UNHEALTHY: Words("Sandbox unhealthy", "A sandbox, or the node that it runs on, does not answer."),
    K.WORKER_UNHEALTHY: Words("Worker unhealthy", "A worker stopped reporting, or none is left."),
    K.QUEUE_UNHEALTHY: Words("Queue unhealthy", "Work that is due is not taken up in time."),
    K.ENDPOINT_DISABLED: Words(
        "Endpoint disabled", "A place that alerts go to failed for long, and is not used any more."
    ),
}

STATES: dict[AlertState, str] = {
    S.PENDING: "It has to hold for a while before it opens; nobody was told.",
    S.OPEN: "Nobody has taken it up yet.",
    S.ACKNOWLEDGED: "Somebody deals with it; nobody is reminded.",
    S.RESOLVED: "It is over. The same trouble soon after opens it again.",
}

GROUPS: dict[GroupBy, str] = {
    G.TROUBLE: "each trouble by itself",
    G.TASK: "one alert a task",
    G.WORKSPACE: "one alert a workspace",
    G.USER: "one alert a user",
    G.PROFILE: "one alert a profile",
    G.POOL: "one alert a quota pool",
    G.CAUSE: "one alert a cause",
    G.RULE: "one alert for all that the rule matches",
}

CHANGES: dict[ChangeKind, str] = {
    C.OPENED: "Opened",
    C.REOPENED: "Opened again",
    C.GREW: "Grew",
    C.WORSE: "Got worse",
    C.REMINDED: "Reminded",
    C.ACKNOWLEDGED: "Acknowledged",
    C.RESOLVED: "Resolved",
}

VIAS: dict[Via, str] = {
    Via.RUNTIME: "by itself",
    Via.PAGE: "on the page",
    Via.LINK: "by a link",
}
