"""The rules that are there from the first start. Pure.

What they are made of: one trouble is one alert. All that goes wrong in a task (an incident, the question about it, its
delay, the failure) is one alert of that task, which gets graver as it does. What tasks suffer together (quota, the site
itself) is one alert however many suffer. What would pass by itself has to hold first. Severity says what is worth a
night's sleep: `critical` and `error` go on without a person, a `warning` can wait for the morning.
"""

from __future__ import annotations

from dataclasses import dataclass

from workspaces.domain.alerts import AlertKind, GroupBy
from workspaces.domain.incidents import IncidentKind, Severity

K, G = AlertKind, GroupBy
MINUTE, HOUR = 60, 3_600


@dataclass(frozen=True, slots=True)
class DefaultRule:
    """A site's rule, as it comes. Its endpoints are for staff to choose; until then it tells the bell."""

    slug: str
    name: str
    kinds: tuple[AlertKind, ...]
    incident_kinds: tuple[IncidentKind, ...] = ()
    min_severity: Severity = Severity.WARNING
    severity: Severity | None = None
    group_by: GroupBy = G.TROUBLE
    hold_s: int = 0
    cooldown_s: int = 10 * MINUTE
    remind_s: int = 0
    tell_resolved: bool = True
    enabled: bool = True


DEFAULTS = (
    DefaultRule(
        "agent",
        "An agent needs help",
        (K.INCIDENT, K.ESCALATION_OPENED, K.ESCALATION_OVERDUE, K.TASK_STUCK, K.TASK_FAILED),
        incident_kinds=tuple(kind for kind in IncidentKind if kind is not IncidentKind.STORM),
        group_by=G.TASK,
        cooldown_s=2 * MINUTE,  # the question about an incident follows it, and somebody waits for its answer
        remind_s=4 * HOUR,
    ),
    DefaultRule(
        "quota",
        "Quota exhausted",
        (K.QUOTA_EXHAUSTED, K.INCIDENT),  # with what piles up on the pool because of it
        incident_kinds=(IncidentKind.STORM,),
        group_by=G.POOL,
        hold_s=MINUTE,  # a provider's limits are of a minute: most waits end with it
        cooldown_s=30 * MINUTE,
        remind_s=4 * HOUR,
    ),
    DefaultRule(
        "quota-predicted",
        "Quota runs out",
        (K.QUOTA_PREDICTED,),
        group_by=G.POOL,
        hold_s=5 * MINUTE,
        cooldown_s=2 * HOUR,
    ),
    DefaultRule(
        "budget",
        "A budget runs out",
        (K.BUDGET_THRESHOLD, K.BUDGET_EXHAUSTED),
        cooldown_s=HOUR,
    ),
    DefaultRule(
        "spending",
        "Spending faster than usual",
        (K.SPEND_RATE,),
        group_by=G.USER,
        hold_s=5 * MINUTE,
        cooldown_s=2 * HOUR,
    ),
    DefaultRule(
        "sandbox",
        "Sandboxes do not work",
        (K.SANDBOX_UNHEALTHY,),
        group_by=G.RULE,
        hold_s=30,
        remind_s=HOUR,
    ),
    DefaultRule(
        "site",
        "agentdesk itself needs help",
        (K.WORKER_UNHEALTHY, K.QUEUE_UNHEALTHY),  # critical where no task goes on, a warning where they queue up
        group_by=G.RULE,
        hold_s=30,
        remind_s=HOUR,
    ),
    DefaultRule(
        "endpoint",
        "Alerts cannot be delivered",
        (K.ENDPOINT_DISABLED,),
        remind_s=24 * HOUR,
    ),
    DefaultRule(
        "finished",
        "A task finished",
        (K.TASK_FINISHED,),
        min_severity=Severity.INFO,
        cooldown_s=MINUTE,
        tell_resolved=False,
        enabled=False,
    ),
)
