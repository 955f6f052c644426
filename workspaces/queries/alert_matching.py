"""What the matching of rules has to know: which rules there are, what their owners see, what was signalled, what things
are called."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from django.db.models import Q

from workspaces.domain.alert_rules import Matcher, Names, Sight
from workspaces.domain.alerts import IDS, AlertKind, Edge, GroupBy, Happening, RuleScope
from workspaces.domain.incidents import IncidentKind, Severity
from workspaces.models import (
    AgentProfile,
    AlertRule,
    AlertSignal,
    Endpoint,
    Membership,
    QuotaPool,
    Task,
    User,
    Workspace,
)

from .access import visible_pools

_OF_POOLS = {AlertKind.QUOTA_EXHAUSTED.value, AlertKind.QUOTA_PREDICTED.value}


def enabled_rules() -> list[AlertRule]:
    """Not those of people who may not sign in any more."""
    rules = AlertRule.objects.filter(enabled=True, retired_at=None).exclude(owner__is_active=False)
    return list(rules.select_related("owner").order_by("pk"))


def matchers_of(rules: Sequence[AlertRule], *, with_pools: bool = True) -> dict[int, Matcher | Exception]:
    """By the rule's id. Of a rule that cannot be read, why. Which pools an owner sees is dear to find out: it may be
    left out where nothing is to be matched that is of a pool alone.
    """
    owners = {rule.owner_id: rule.owner for rule in rules if rule.owner is not None and not rule.owner.is_staff}
    pools = {rule.owner_id for rule in rules if with_pools and _OF_POOLS & set(rule.kinds)}
    sights = _sights([owner for owner in owners.values() if owner is not None], pools)
    made: dict[int, Matcher | Exception] = {}
    for rule in rules:
        try:
            made[rule.pk] = _matcher(rule, sights.get(rule.owner_id or 0))
        except (ValueError, TypeError) as why:
            made[rule.pk] = why
    return made


def matcher_of(rule: AlertRule) -> Matcher:
    """Raises ValueError or TypeError where the rule cannot be read."""
    found = matchers_of([rule])[rule.pk]
    if isinstance(found, Exception):
        raise found
    return found


def _matcher(rule: AlertRule, sight: Sight | None) -> Matcher:
    return Matcher(
        kinds=frozenset(AlertKind(kind) for kind in rule.kinds),
        sight=sight,
        scope=RuleScope(rule.scope),
        scope_id=rule.user_id or rule.workspace_id or rule.profile_id,
        incident_kinds=frozenset(IncidentKind(kind) for kind in rule.incident_kinds),
        min_severity=Severity(rule.min_severity),
        severity=Severity(rule.severity) if rule.severity else None,
        group_by=GroupBy(rule.group_by),
    )


def _sights(owners: Iterable[User], pools: set[int | None]) -> dict[int, Sight]:
    """Of owners who are not staff: staff see everything."""
    people = {owner.pk: owner for owner in owners}
    if not people:
        return {}
    workspaces: dict[int, set[int]] = defaultdict(set)
    for user, workspace in Membership.objects.filter(user__in=people).values_list("user", "workspace"):
        workspaces[user].add(workspace)
    endpoints: dict[int, set[int]] = defaultdict(set)
    for pk, owner in Endpoint.objects.filter(owner__in=people).values_list("pk", "owner"):
        endpoints[owner].add(pk)
    profiles: dict[int, set[int]] = defaultdict(set)
    theirs = {workspace for each in workspaces.values() for workspace in each}
    for pk, workspace in AgentProfile.objects.filter(workspace__in=theirs).values_list("pk", "workspace"):
        for user, each in workspaces.items():
            if workspace in each:
                profiles[user].add(pk)
    return {
        pk: Sight(
            user=pk,
            workspaces=frozenset(workspaces[pk]),
            pools=frozenset(visible_pools(owner).values_list("pk", flat=True)) if pk in pools else frozenset(),
            endpoints=frozenset(endpoints[pk]),
            profiles=frozenset(profiles[pk]),
        )
        for pk, owner in people.items()
    }


def happening_of(signal: AlertSignal) -> Happening:
    """Raises ValueError or TypeError."""
    if not isinstance(signal.data, dict):
        raise TypeError(f"its data is {type(signal.data).__name__}, not an object")
    return Happening(
        kind=AlertKind(signal.kind),
        edge=Edge(signal.edge),
        subject=signal.subject,
        at_s=signal.at.timestamp(),
        severity=Severity(signal.severity),
        words=signal.words,
        detail=signal.detail,
        cause=signal.cause,
        data=signal.data,
        signal=signal.pk,
        **{name: getattr(signal, f"{name}_id") for name in IDS},
    )


def names_of(happenings: Sequence[Happening]) -> Names:
    """Of all that the happenings point at; a query a table."""

    def ids(name: str) -> set[int]:
        return {pk for each in happenings if (pk := getattr(each, name)) is not None}

    tasks, workspaces, users, profiles = ids("task"), ids("workspace"), ids("user"), ids("profile")
    pools, endpoints = ids("pool"), ids("endpoint")

    def named(model: type, pks: set[int], field: str = "name") -> dict[int, str]:
        if not pks:
            return {}
        rows = model._default_manager.filter(Q(pk__in=pks)).values_list("pk", field)  # type: ignore[attr-defined]
        return dict(rows)

    return Names(
        tasks=named(Task, tasks, "title"),
        workspaces=named(Workspace, workspaces),
        users=named(User, users, "username"),
        profiles=named(AgentProfile, profiles),
        pools=named(QuotaPool, pools),
        endpoints=named(Endpoint, endpoints),
    )
