"""The alert list's reads: which alerts, in which order, how many in each state; and how fast people take them up.

Two queries make a page, as in queries/incidents.py: one finds the ids in order, one loads only those rows. Counts stop
at COUNTED_TO, so that a page costs the same with 1,000 alerts and with 100,000.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from django.db.models import Count, OuterRef, Q, QuerySet, Subquery

from workspaces.domain.alerts import AlertKind, AlertState
from workspaces.domain.incidents import Severity
from workspaces.domain.roles import Role, at_least
from workspaces.models import Alert, AlertMember, AlertRule, Membership, User, Workspace

from .access import may_operate, visible_alerts, visible_workspaces
from .bell import OPEN_BELOW, concerning
from .incidents import number

PAGE_SIZE = 50
COUNTED_TO = 10_000
ALL = "all"
TABS = (AlertState.OPEN.value, AlertState.ACKNOWLEDGED.value, AlertState.RESOLVED.value, ALL)
WHOSE = ("mine", "site", "everyone")
RULES_OFFERED = 200
ABOUT = ("task", "workspace", "profile", "pool", "budget", "endpoint", "user")  # what a trouble may be about
_PLACE = {AlertState.OPEN.value: 0, AlertState.ACKNOWLEDGED.value: 1}  # in `attention`
_SINCE = {"open": "opened_at", "acknowledged": "acknowledged_at", "resolved": "resolved_at", ALL: "opened_at"}


@dataclass(frozen=True, slots=True)
class Filters:
    """What the page's address says. Unknown values are dropped, so that an old link still opens.

    `whose`: "" is the site's and one's own; "everyone" is also what others set up for themselves (site staff).
    """

    state: str = AlertState.OPEN.value
    kind: str = ""
    severity: str = ""
    rule: int | None = None
    workspace: int | None = None
    task: int | None = None
    whose: str = ""
    text: str = ""
    page: int = 1

    @classmethod
    def from_query(cls, query: Any) -> Filters:
        def one_of(name: str, allowed: Iterable[str], otherwise: str = "") -> str:
            value = query.get(name, "")
            return value if value in set(allowed) else otherwise

        return cls(
            state=one_of("state", TABS, AlertState.OPEN.value),
            kind=one_of("kind", (kind.value for kind in AlertKind)),
            severity=one_of("severity", (severity.value for severity in Severity)),
            rule=number(query.get("rule")),
            workspace=number(query.get("workspace")),
            task=number(query.get("task")),
            whose=one_of("whose", WHOSE),
            text=str(query.get("q", "")).replace("\x00", "").strip()[:200],
            page=max(1, number(query.get("page")) or 1),
        )

    def address(self, **changes: Any) -> str:
        """The query string of these filters with some changed; back to page 1 unless the page is given."""
        changed = replace(self, **({"page": 1} | changes))
        values = {name: getattr(changed, name) for name in self.__dataclass_fields__}
        values["state"] = "" if changed.state == AlertState.OPEN.value else changed.state
        values["q"] = values.pop("text")
        values["page"] = changed.page if changed.page > 1 else ""
        return "?" + urlencode({name: value for name, value in values.items() if value})

    @property
    def narrows(self) -> bool:
        """Besides its state."""
        return replace(self, page=1, state=AlertState.OPEN.value) != Filters()


@dataclass(frozen=True, slots=True)
class Row:
    """An alert with one of its troubles, which stands for what it is about, and whether the reader may act on it."""

    alert: Alert
    trouble: AlertMember | None
    may_act: bool


@dataclass(frozen=True, slots=True)
class Page:
    rows: Sequence[Row]
    number: int
    pages: int
    total: int

    @property
    def first(self) -> int:
        return (self.number - 1) * PAGE_SIZE + 1

    @property
    def last(self) -> int:
        return min(self.number * PAGE_SIZE, self.total)

    @property
    def total_words(self) -> str:
        return f"{self.total:,}" + ("" if self.total < COUNTED_TO else " or more")


def filtered(user: User, filters: Filters) -> QuerySet[Alert]:
    found = visible_alerts(user) if filters.whose == "everyone" else concerning(user)
    if filters.whose == "mine":
        found = found.filter(user=user)
    elif filters.whose == "site":
        found = found.filter(user=None)
    if filters.state == AlertState.RESOLVED.value:
        found = found.filter(state=filters.state)  # an index of its own, by the time of the end
    elif filters.state != ALL:
        at = _PLACE[filters.state] * OPEN_BELOW
        found = found.filter(attention__gte=at, attention__lt=at + OPEN_BELOW)
    if filters.kind:
        found = found.filter(kind=filters.kind)
    if filters.severity:
        found = found.filter(severity=filters.severity)
    if filters.rule:
        found = found.filter(rule_id=filters.rule)
    if filters.workspace:
        there = AlertMember.objects.filter(workspace_id=filters.workspace).values("alert")
        found = found.filter(Q(workspace_id=filters.workspace) | Q(pk__in=there))
    if filters.task:
        found = found.filter(pk__in=AlertMember.objects.filter(task_id=filters.task).values("alert"))
    if filters.text:
        found = found.filter(Q(title__icontains=filters.text) | Q(words__icontains=filters.text))
    return found


def ordered(found: QuerySet[Alert], filters: Filters) -> QuerySet[Alert]:
    """What needs a person first; what is over, the newest first."""
    if filters.state == AlertState.RESOLVED.value:
        return found.order_by("-resolved_at", "-pk")
    return found.order_by("attention", "-changed_at", "-pk")


def page_of(user: User, filters: Filters) -> Page:
    found = filtered(user, filters)
    total = found.order_by().values("pk")[:COUNTED_TO].count()
    pages = max(1, -(-total // PAGE_SIZE))
    at = min(filters.page, pages)
    start = (at - 1) * PAGE_SIZE
    ids = list(ordered(found, filters).values_list("pk", flat=True)[start : start + PAGE_SIZE])
    loaded = {row.alert.pk: row for row in rows(user, ids)}
    return Page([loaded[pk] for pk in ids if pk in loaded], at, pages, total)


def rows(user: User, ids: Iterable[int]) -> list[Row]:
    """Those of the alerts that the user may see, with all that a row shows. Order is the caller's."""
    related = ("rule", "user", "workspace", "acknowledged_by", "resolved_by")
    alerts = list(visible_alerts(user).filter(pk__in=list(ids)).select_related(*related))
    troubles = _one_trouble_of(user, [alert.pk for alert in alerts])
    acting = _workspaces_to_act_in(user, {alert.workspace_id for alert in alerts if alert.workspace_id})
    return [
        Row(
            alert,
            troubles.get(alert.pk),
            user.is_staff or alert.user_id == user.pk or (alert.user_id is None and alert.workspace_id in acting),
        )
        for alert in alerts
    ]


def may_act(user: User, alert: Alert) -> bool:
    """Whether the user may acknowledge and resolve it: one's own, and those of a workspace that one operates in."""
    if user.is_staff or alert.user_id == user.pk:
        return True
    return alert.user_id is None and alert.workspace is not None and may_operate(user, alert.workspace)


def _workspaces_to_act_in(user: User, workspaces: set[int]) -> set[int]:
    if user.is_staff or not workspaces:
        return workspaces
    roles = Membership.objects.filter(user=user, workspace__in=workspaces).values_list("workspace_id", "role")
    return {workspace for workspace, role in roles if at_least(Role(role), Role.OPERATOR)}


def _one_trouble_of(user: User, alerts: list[int]) -> dict[int, AlertMember]:
    """The first by its subject's name: an index finds it, also of an alert with 10,000 troubles."""
    first = seen_troubles(user).filter(alert=OuterRef("pk")).order_by("subject").values("pk")[:1]
    chosen = Alert.objects.filter(pk__in=alerts).values_list(Subquery(first), flat=True)
    found = AlertMember.objects.filter(pk__in=[pk for pk in chosen if pk])
    return {trouble.alert_id: trouble for trouble in found.select_related(*ABOUT)}


def seen_troubles(user: User) -> QuerySet[AlertMember]:
    """Troubles without a workspace, and of those that the user is in now: membership may have ended since."""
    if user.is_staff:
        return AlertMember.objects.all()
    return AlertMember.objects.filter(Q(workspace=None) | Q(workspace__in=visible_workspaces(user)))


def counts(user: User, filters: Filters) -> dict[str, int]:
    """How many there are in each tab under the other filters, each counted to COUNTED_TO at most."""
    return {
        tab: filtered(user, replace(filters, state=tab)).order_by().values("pk")[:COUNTED_TO].count() for tab in TABS
    }


def open_by_severity(user: User) -> dict[str, int]:
    found = concerning(user).filter(attention__lt=OPEN_BELOW).order_by()
    return dict(found.values_list("severity").annotate(Count("pk")))


def new_since(user: User, filters: Filters, moment: datetime, shown: Iterable[int]) -> int:
    """How many came under these filters after that moment and are not on the page. At most COUNTED_TO."""
    came = filtered(user, filters).filter(**{f"{_SINCE[filters.state]}__gt": moment}).exclude(pk__in=list(shown))
    return came.order_by().values("pk")[:COUNTED_TO].count()


@dataclass(frozen=True, slots=True)
class Choices:
    rules: Sequence[AlertRule]
    workspaces: Sequence[Workspace]


def choices(user: User) -> Choices:
    """What the filters can be set to: the site's rules and one's own, and the workspaces that one sees."""
    rules = AlertRule.objects.filter(Q(owner=None) | Q(owner=user)).order_by("name")[:RULES_OFFERED]
    return Choices(rules=list(rules), workspaces=list(visible_workspaces(user).order_by("name")))
