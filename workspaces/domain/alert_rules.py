"""Which rule matches what, which troubles are one alert, and what an alert is called. Pure.

A rule sees what its owner sees: the workspaces that he is in, what is booked to him, the pools and endpoints that are
his. A site's rule sees everything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from workspaces.domain.alerts import AlertKind, Edge, GroupBy, Happening, RuleScope
from workspaces.domain.incident_words import KINDS as INCIDENTS
from workspaces.domain.incidents import IncidentKind, Severity
from workspaces.domain.text import clip

TITLE_CHARS = 300
GROUP_CHARS = 200
LEFT = "It is over, in a workspace that the rule’s owner is not in any more."
K, G = AlertKind, GroupBy

# of what is in no workspace and nobody's: only site staff may know of it
OF_THE_SITE = frozenset({K.WORKER_UNHEALTHY, K.QUEUE_UNHEALTHY})


@dataclass(frozen=True, slots=True)
class Sight:
    """What an owner of rules sees. Ids."""

    user: int
    workspaces: frozenset[int] = frozenset()
    pools: frozenset[int] = frozenset()
    endpoints: frozenset[int] = frozenset()
    profiles: frozenset[int] = frozenset()

    def sees(self, happening: Happening) -> bool:
        if happening.workspace is not None:
            return happening.workspace in self.workspaces
        if happening.kind in OF_THE_SITE:
            return False
        if happening.endpoint is not None:
            return happening.endpoint in self.endpoints
        if happening.profile is not None:
            return happening.profile in self.profiles
        if happening.user is not None:
            return happening.user == self.user
        return happening.pool is not None and happening.pool in self.pools


@dataclass(frozen=True, slots=True)
class Matcher:
    """A rule as happenings are held against it. `sight` None: everything is seen. `severity` None: the trouble's."""

    kinds: frozenset[AlertKind]
    sight: Sight | None = None
    scope: RuleScope = RuleScope.SITE
    scope_id: int | None = None
    incident_kinds: frozenset[IncidentKind] = frozenset()
    min_severity: Severity = Severity.INFO
    severity: Severity | None = None
    group_by: GroupBy = GroupBy.TROUBLE

    def matches(self, happening: Happening) -> bool:
        """What ended is matched by no rule: it ends wherever it goes on."""
        if happening.edge is Edge.ENDED or happening.kind not in self.kinds:
            return False
        if happening.kind is K.INCIDENT and self.incident_kinds and happening.detail not in self.incident_kinds:
            return False
        if happening.severity.rank < self.min_severity.rank:
            return False
        return self._in_scope(happening) and (self.sight is None or self.sight.sees(happening))

    def veiled(self, happening: Happening) -> Happening:
        """An end, as the rule's owner may know of it: what he does not see any more is over, and nothing else."""
        hidden = self.sight is not None and happening.workspace not in (None, *self.sight.workspaces)
        return replace(happening, words=LEFT) if hidden else happening

    def _in_scope(self, happening: Happening) -> bool:
        match self.scope:
            case RuleScope.SITE:
                return True
            case RuleScope.USER:
                return happening.user == self.scope_id
            case RuleScope.WORKSPACE:
                return happening.workspace == self.scope_id
            case RuleScope.PROFILE:
                return happening.profile == self.scope_id

    def severity_of(self, happening: Happening) -> Severity:
        return self.severity or happening.severity

    def group_of(self, happening: Happening) -> str:
        """Equal for the troubles that are one alert."""
        return clip(_group_key(self.group_by, happening), GROUP_CHARS)

    def in_one_workspace(self, happening: Happening) -> bool:
        """Whether all that its group will ever hold lies in the happening's workspace."""
        return happening.workspace is not None and (
            self.group_by in (G.TROUBLE, G.TASK, G.WORKSPACE)
            or self.scope is RuleScope.WORKSPACE
            or self.group_of(happening) == trouble_of(happening)
        )


def trouble_of(happening: Happening) -> str:
    """What the happening is a part of. A question about an incident, and its delay, are the incident's trouble; all
    thresholds of a budget are one.
    """
    if happening.incident is not None:
        return f"incident:{happening.incident}"
    if happening.budget is not None:
        return f"budget:{happening.budget}"
    if happening.escalation is not None:
        return f"escalation:{happening.escalation}"
    return happening.subject


def _group_key(by: GroupBy, happening: Happening) -> str:
    thing: int | str | None
    match by:
        case G.TASK:
            thing = happening.task
        case G.WORKSPACE:
            thing = happening.workspace
        case G.USER:
            thing = happening.user
        case G.PROFILE:
            thing = happening.profile
        case G.POOL:
            thing = happening.pool
        case G.CAUSE:
            thing = happening.cause
        case G.RULE:
            thing = "all"
        case G.TROUBLE:
            thing = None
    return trouble_of(happening) if thing in (None, "") else f"{by.value}:{thing}"


# ---- words

WHAT: dict[AlertKind, str] = {
    K.INCIDENT: "Incident",
    K.ESCALATION_OPENED: "A question waits for an answer",
    K.ESCALATION_OVERDUE: "A question was not answered in time",
    K.TASK_STUCK: "Nothing happens any more",
    K.TASK_FAILED: "Failed",
    K.TASK_FINISHED: "Finished",
    K.QUOTA_EXHAUSTED: "Quota exhausted",
    K.QUOTA_PREDICTED: "Quota will be exhausted",
    K.BUDGET_THRESHOLD: "Budget runs low",
    K.BUDGET_EXHAUSTED: "Budget used up",
    K.SPEND_RATE: "Spending faster than usual",
    K.SANDBOX_UNHEALTHY: "Sandbox unhealthy",
    K.WORKER_UNHEALTHY: "Worker unhealthy",
    K.QUEUE_UNHEALTHY: "Queue unhealthy",
    K.ENDPOINT_DISABLED: "Alerts cannot be delivered",
}


@dataclass(frozen=True, slots=True)
class Names:
    """Of rows, by id: what titles call them."""

    tasks: Mapping[int, str] = field(default_factory=dict)
    workspaces: Mapping[int, str] = field(default_factory=dict)
    users: Mapping[int, str] = field(default_factory=dict)
    profiles: Mapping[int, str] = field(default_factory=dict)
    pools: Mapping[int, str] = field(default_factory=dict)
    endpoints: Mapping[int, str] = field(default_factory=dict)


def what(kind: AlertKind, detail: str) -> str:
    if kind is K.INCIDENT and detail in {each.value for each in IncidentKind}:
        return INCIDENTS[IncidentKind(detail)].name
    return WHAT[kind]


def title_of(rule_name: str, matcher: Matcher, happening: Happening, names: Names) -> str:
    """What happened, to what. Of a group of different kinds, the rule's name says what."""
    grouped = matcher.group_of(happening) != trouble_of(happening)
    mixed = matcher.group_by is G.RULE or (len(matcher.kinds) > 1 and matcher.group_by is not G.TASK)
    said = rule_name if grouped and mixed else what(happening.kind, happening.detail)
    place = _group_place(matcher.group_by, happening, names) if grouped else _place(happening, names)
    return clip(f"{said}: {place}" if place else said, TITLE_CHARS)


def _group_place(by: GroupBy, happening: Happening, names: Names) -> str:
    match by:
        case G.TASK:
            return _task(happening, names)
        case G.WORKSPACE:
            return f"workspace {_name(names.workspaces, happening.workspace)}"
        case G.USER:
            return f"user {_name(names.users, happening.user)}"
        case G.PROFILE:
            return f"profile {_name(names.profiles, happening.profile)}"
        case G.POOL:
            return f"pool {_name(names.pools, happening.pool)}"
        case G.CAUSE:
            return happening.cause
        case _:
            return ""


def _place(happening: Happening, names: Names) -> str:
    if happening.task is not None:
        return _task(happening, names)
    if happening.endpoint is not None:
        return f"endpoint {_name(names.endpoints, happening.endpoint)}"
    if happening.pool is not None:
        return f"pool {_name(names.pools, happening.pool)}"
    if happening.budget is not None:
        return str(happening.data.get("budget_name") or f"budget {happening.budget}")
    if happening.workspace is not None:
        return f"workspace {_name(names.workspaces, happening.workspace)}"
    if happening.user is not None:
        return f"user {_name(names.users, happening.user)}"
    if happening.profile is not None:
        return f"profile {_name(names.profiles, happening.profile)}"
    return str(happening.data.get("name", ""))


def _task(happening: Happening, names: Names) -> str:
    task = f"task {happening.task}"
    title = names.tasks.get(happening.task or 0, "")
    where = names.workspaces.get(happening.workspace or 0, "")
    said = f"{task} “{clip(title, 80)}”" if title else task
    return f"{said} in {where}" if where else said


def _name(names: Mapping[int, str], pk: int | None) -> str:
    return names.get(pk or 0) or str(pk)


def grew_words(*, added: int, ended: int, active: int, troubles: int) -> str:
    """What changed of a group, in numbers."""
    said = [f"{added:,} more" if added else "", f"{ended:,} ended" if ended else ""]
    counted = f"{active:,} of {troubles:,} go on" if troubles > 1 else ""
    return ", ".join(part for part in (*said, counted) if part)
