"""The parts of the alert pages as template contexts. The views and the sockets build them here, so both show the same.

`LIVE` names the parts of one alert's page that its socket sends again when they have changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from django.urls import reverse
from django.utils import timezone

from workspaces.domain.alert_times import DEFINITION
from workspaces.domain.alert_words import CHANGES, GROUPS, KINDS, STATES, VIAS
from workspaces.domain.alerts import AlertKind, AlertState, ChangeKind, GroupBy, Via
from workspaces.domain.incident_words import Words
from workspaces.domain.incidents import Severity
from workspaces.models import Alert, AlertMember, User
from workspaces.queries import alert_page as reads
from workspaces.queries import alerts
from workspaces.queries.access import own_endpoints, own_rules, visible_pools
from workspaces.queries.alert_times import times_of
from workspaces.queries.budget_access import visible_budgets
from workspaces.queries.budgets import name_of
from workspaces.queries.database import database_now
from workspaces.web.fleet_counts import Tile

LIVE = {
    "head": "alerts/_head.html",
    "troubles": "alerts/_troubles.html",
    "history": "alerts/_history.html",
    "related": "alerts/_related.html",
}
TAB_WORDS = {
    AlertState.OPEN.value: "Open",
    AlertState.ACKNOWLEDGED.value: "Acknowledged",
    AlertState.RESOLVED.value: "Resolved",
    alerts.ALL: "All",
}
KIND_CHOICES = [(kind.value, words.name) for kind, words in KINDS.items()]
SEVERITY_CHOICES = [(severity.value, severity.value.capitalize()) for severity in reversed(Severity)]
WHOSE_CHOICES = [("mine", "Mine alone"), ("site", "The site's alone")]
EVERYONE = ("everyone", "Everyone's")
SEVERITY_ICONS = {"critical": "alert", "error": "cross", "warning": "alert", "info": "flag"}


@dataclass(frozen=True, slots=True)
class Link:
    """A thing that an alert is about; without an address where the reader has no page of it."""

    icon: str
    words: str
    address: str = ""


@dataclass(frozen=True, slots=True)
class Reach:
    """Which pools, budgets and endpoints of some troubles have a page for the reader; tasks were looked at before."""

    pools: set[int] = field(default_factory=set)
    budgets: set[int] = field(default_factory=set)
    endpoints: set[int] = field(default_factory=set)

    @classmethod
    def of(cls, user: User, troubles: Iterable[AlertMember | None]) -> Reach:
        known = [trouble for trouble in troubles if trouble is not None]
        pools = {trouble.pool_id for trouble in known if trouble.pool_id}
        budgets = {trouble.budget_id for trouble in known if trouble.budget_id}
        endpoints = {trouble.endpoint_id for trouble in known if trouble.endpoint_id}
        if endpoints:
            endpoints = set(own_endpoints(user).filter(pk__in=endpoints).values_list("pk", flat=True))
        if not user.is_staff and pools:
            pools = set(visible_pools(user).filter(pk__in=pools).values_list("pk", flat=True))
        if not user.is_staff and budgets:
            budgets = set(visible_budgets(user).filter(pk__in=budgets).values_list("pk", flat=True))
        return cls(pools, budgets, endpoints)


def about(alert: Alert, trouble: AlertMember | None, reach: Reach) -> list[Link]:
    """What the alert as a whole is about: the thing that makes one alert of its troubles, else the trouble's own."""
    if trouble is None:
        return []
    group = GroupBy(alert.rule.group_by)
    if group is GroupBy.PROFILE and trouble.profile is not None:
        return [Link("robot", trouble.profile.name, reverse("profile", args=[trouble.profile_id]))]
    if group is GroupBy.USER and trouble.user is not None:
        return [Link("person", trouble.user.get_full_name() or trouble.user.get_username())]
    if group is GroupBy.RULE and alert.troubles > 1:
        return [Link("list", f"{alert.troubles:,} troubles")]
    found = links_of(trouble, reach)
    wanted = {GroupBy.POOL: "bolt", GroupBy.WORKSPACE: "box", GroupBy.TASK: "play"}.get(group)
    if named := [link for link in found if link.icon == wanted]:
        return named
    if group is GroupBy.CAUSE and alert.troubles > 1:
        return [Link("list", f"{alert.troubles:,} troubles of one cause"), *found[-1:]]
    return [link for link in found if link.icon not in ("alert", "hand")][:2]


def links_of(trouble: AlertMember, reach: Reach) -> list[Link]:
    """Every thing that a trouble is about, the narrowest first."""
    found: list[Link] = []
    if trouble.incident_id:
        found.append(Link("alert", f"Incident {trouble.incident_id}", reverse("incident", args=[trouble.incident_id])))
    if trouble.escalation_id and trouble.task_id:
        address = f"{reverse('task', args=[trouble.task_id])}#escalation-{trouble.escalation_id}"
        found.append(Link("hand", "The question", address))
    if trouble.task is not None:
        found.append(Link("play", trouble.task.title, reverse("task", args=[trouble.task_id])))
    if trouble.pool is not None:
        address = _if(trouble.pool_id in reach.pools, "quota-pool", trouble.pool_id)
        found.append(Link("bolt", trouble.pool.name, address))
    if trouble.budget is not None:
        address = _if(trouble.budget_id in reach.budgets, "budget", trouble.budget_id)
        found.append(Link("coins", name_of(trouble.budget), address))
    if trouble.endpoint is not None and trouble.endpoint_id in reach.endpoints:
        found.append(Link("globe", trouble.endpoint.name, reverse("alert-endpoint", args=[trouble.endpoint_id])))
    if trouble.workspace is not None:
        found.append(Link("box", trouble.workspace.name, reverse("workspace", args=[trouble.workspace_id])))
    return found


def _if(reached: bool, name: str, pk: int | None) -> str:
    return reverse(name, args=[pk]) if reached else ""


# --- the list


@dataclass(frozen=True, slots=True)
class ShownRow:
    """A row of the list. `taken_s`: after how many seconds a person took it up."""

    alert: Alert
    kind: Words
    about: Sequence[Link]
    may_act: bool
    muted: bool
    taken_s: float | None


def shown_rows(user: User, rows: Sequence[alerts.Row]) -> list[ShownRow]:
    reach = Reach.of(user, [row.trouble for row in rows])
    return [shown_row(row, reach) for row in rows]


def shown_row(row: alerts.Row, reach: Reach) -> ShownRow:
    alert = row.alert
    return ShownRow(
        alert,
        KINDS[AlertKind(alert.kind)],
        about(alert, row.trouble, reach),
        row.may_act,
        is_muted(alert),
        taken_s(alert),
    )


def taken_s(alert: Alert) -> float | None:
    """Since it opened last; None when no person took it up (yet)."""
    taken_at = alert.acknowledged_at or (alert.resolved_at if alert.resolved_by_id else None)
    if taken_at is None or alert.opened_at is None or taken_at < alert.opened_at:
        return None
    return (taken_at - alert.opened_at).total_seconds()


def is_muted(alert: Alert) -> bool:
    return alert.rule.muted_until is not None and alert.rule.muted_until > timezone.now()


@dataclass(frozen=True, slots=True)
class Tab:
    value: str
    words: str
    count: str
    address: str
    current: bool


def tabs(counts: dict[str, int], filters: alerts.Filters) -> list[Tab]:
    return [
        Tab(
            value,
            words,
            f"{counts[value]:,}" if counts[value] < alerts.COUNTED_TO else f"{alerts.COUNTED_TO:,}+",
            filters.address(state=value),
            filters.state == value,
        )
        for value, words in TAB_WORDS.items()
    ]


def head_context(user: User, filters: alerts.Filters) -> dict[str, Any]:
    """What stands above the list: tabs with their counts, how many are open, how fast they are taken up."""
    severities = alerts.open_by_severity(user)
    return {
        "tabs": tabs(alerts.counts(user, filters), filters),
        "tiles": [
            Tile(
                f"{severity.value}, open",
                severities.get(severity.value, 0),
                alerts.Filters(severity=severity.value).address(),
                f"Open alerts of severity {severity.value}",
                icon=SEVERITY_ICONS[severity.value],
                current=filters.severity == severity.value and filters.state == AlertState.OPEN.value,
                urgent=severity is Severity.CRITICAL and severities.get(severity.value, 0) > 0,
            )
            for severity in reversed(Severity)
        ],
        "times": times_of(user),
        "definition": DEFINITION,
    }


def list_context(user: User, filters: alerts.Filters) -> dict[str, Any]:
    made = database_now()
    page = alerts.page_of(user, filters)
    return {
        "filters": filters,
        "page": page,
        "rows": shown_rows(user, page.rows),
        "made": made.timestamp(),
        "previous_address": filters.address(page=page.number - 1) if page.number > 1 else "",
        "next_address": filters.address(page=page.number + 1) if page.number < page.pages else "",
        "any_to_act_on": any(row.may_act and row.alert.state != AlertState.RESOLVED.value for row in page.rows),
    }


# --- one alert


@dataclass(frozen=True, slots=True)
class Trouble:
    member: AlertMember
    kind: Words
    links: Sequence[Link]


def page_context(alert: Alert, user: User, query: Any) -> dict[str, Any]:
    """Everything on the page. A bounded number of queries, whatever the number of troubles and changes."""
    troubles = reads.troubles_of(alert, user, alerts.number(query.get("troubles")) or 1)
    before = alerts.number(query.get("before"))
    history = reads.history_of(alert, user, before)
    reach = Reach.of(user, troubles.rows)
    oldest = history[-1].change.number if history else 1
    return {
        "alert": alert,
        "kind": KINDS[AlertKind(alert.kind)],
        "state_line": STATES[AlertState(alert.state)],
        "group_line": GROUPS[GroupBy(alert.rule.group_by)],
        "muted": is_muted(alert),
        "may_act": alerts.may_act(user, alert),
        "rule_is_mine": own_rules(user).filter(pk=alert.rule_id).exists(),
        "taken_s": taken_s(alert),
        "definition": DEFINITION,
        "troubles": troubles,
        "rows": [Trouble(member, KINDS[AlertKind(member.kind)], links_of(member, reach)) for member in troubles.rows],
        "trouble_pages": _pages(troubles, before),
        "history": [
            {
                "change": entry.change,
                "kind": CHANGES[ChangeKind(entry.change.kind)],
                "via": VIAS[Via(entry.change.via)],
                "told": entry.told,
                "others": entry.others,
            }
            for entry in history
        ],
        "older": f"?{urlencode({'before': oldest})}#alert-history" if oldest > 1 else "",
        "newest": before is not None,
        "related": reads.related_to(alert, user),
        "socket_query": urlencode(
            {name: value for name, value in (("troubles", troubles.number), ("before", before)) if value}
        ),
    }


def _pages(troubles: reads.Troubles, before: int | None) -> dict[str, str]:
    def at(page: int) -> str:
        return f"?{urlencode({'troubles': page} | ({'before': before} if before else {}))}#alert-troubles"

    return {
        "previous": at(troubles.number - 1) if troubles.number > 1 else "",
        "next": at(troubles.number + 1) if troubles.number < troubles.pages else "",
    }
