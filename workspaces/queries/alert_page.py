"""What one alert's page reads: its troubles, its history with what was told to whom, and the alerts around it.

And the other way round: which alerts an incident, a task, a question, a pool or a budget is in. Writes nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from django.contrib.auth.models import AnonymousUser
from django.db.models import F, Q, QuerySet

from workspaces.models import Alert, AlertChange, AlertMember, Delivery, User

from .access import own_endpoints, visible_alerts
from .alerts import ABOUT, seen_troubles
from .bell import OPEN_BELOW, concerning

TROUBLES_SHOWN = 50
CHANGES_SHOWN = 60
RELATED_SHOWN = 8
OF_NOUN_SHOWN = 5
OVER = 2 * OPEN_BELOW  # of `attention`: what is smaller is open or acknowledged


@dataclass(frozen=True, slots=True)
class Troubles:
    """A page of an alert's troubles: those that go on first, then the newest. `hidden`: of workspaces left since."""

    rows: Sequence[AlertMember]
    number: int
    pages: int
    total: int
    hidden: int

    @property
    def first(self) -> int:
        return (self.number - 1) * TROUBLES_SHOWN + 1

    @property
    def last(self) -> int:
        return min(self.number * TROUBLES_SHOWN, self.total)


def troubles_of(alert: Alert, user: User, page: int = 1) -> Troubles:
    found = seen_troubles(user).filter(alert=alert)
    total = found.count()
    hidden = 0 if user.is_staff else alert.members.count() - total
    pages = max(1, -(-total // TROUBLES_SHOWN))
    at = min(max(1, page), pages)
    start = (at - 1) * TROUBLES_SHOWN
    inorder = found.order_by(F("ended_at").desc(nulls_first=True), "-began_at", "-pk")
    related = (*ABOUT, "incident", "escalation")
    return Troubles(list(inorder.select_related(*related)[start : start + TROUBLES_SHOWN]), at, pages, total, hidden)


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of the history with its deliveries. `others`: how many went where the reader may not look."""

    change: AlertChange
    told: Sequence[Delivery] = ()
    others: int = 0


def history_of(alert: Alert, user: User, before: int | None = None) -> list[Entry]:
    """The newest first; those before the change with that number."""
    found = alert.changes.select_related("actor").order_by("-number")
    if before is not None:
        found = found.filter(number__lt=before)
    changes = list(found[:CHANGES_SHOWN])
    mine = set(own_endpoints(user).values_list("pk", flat=True))
    told: dict[int, list[Delivery]] = defaultdict(list)
    others: dict[int, int] = defaultdict(int)
    sent = Delivery.objects.filter(change__in=changes).select_related("endpoint").order_by("pk")
    for delivery in sent:
        if delivery.change_id is None:
            continue
        if delivery.endpoint_id in mine:
            told[delivery.change_id].append(delivery)
        else:
            others[delivery.change_id] += 1
    return [Entry(change, told[change.pk], others[change.pk]) for change in changes]


def related_to(alert: Alert, user: User) -> list[Alert]:
    """Of the same group before, or about the same task, pool or budget; what is not over first."""
    troubles = list(alert.members.order_by("subject")[:TROUBLES_SHOWN])
    shared = Q(task__in={trouble.task_id for trouble in troubles} - {None})
    shared |= Q(pool__in={trouble.pool_id for trouble in troubles} - {None})
    shared |= Q(budget__in={trouble.budget_id for trouble in troubles} - {None})
    around = AlertMember.objects.filter(shared).values("alert")
    found = visible_alerts(user).filter(Q(rule=alert.rule_id, group_key=alert.group_key) | Q(pk__in=around))
    return list(in_order(found.exclude(pk=alert.pk))[:RELATED_SHOWN])


def alerts_of(user: User | AnonymousUser, *, over: bool = True, **what: int) -> list[Alert]:
    """The few that need a person most, with a trouble of this `task`, `incident`, `pool` or `budget`. One query.

    `over`: also those that are resolved.
    """
    troubles = AlertMember.objects.filter(**{f"{name}_id": pk for name, pk in what.items()})
    found = concerning(user).filter(pk__in=troubles.values("alert"))
    return list(in_order(found if over else found.filter(attention__lt=OVER))[:OF_NOUN_SHOWN])


def alerts_of_escalations(user: User | AnonymousUser, escalations: Iterable[int]) -> dict[int, Alert]:
    """By escalation, the newest alert that it is in. One query."""
    found = AlertMember.objects.filter(escalation__in=list(escalations), alert__in=concerning(user))
    rows = found.select_related("alert").order_by("alert")
    return {trouble.escalation_id: trouble.alert for trouble in rows if trouble.escalation_id}


def in_order(found: QuerySet[Alert]) -> QuerySet[Alert]:
    return found.order_by("attention", "-changed_at", "-pk")
