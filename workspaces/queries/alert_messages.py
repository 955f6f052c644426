"""What messages about alerts say: their evidence, found in a few statements however many there are. Writes nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db.models import Case, Count, F, IntegerField, Q, Value, When, Window
from django.db.models.functions import RowNumber

from workspaces.domain.incidents import Severity
from workspaces.domain.webhooks import (
    MOST_EVIDENCE,
    EvidenceType,
    Found,
    Item,
    MessageType,
    Subject,
    Telling,
    alert_message,
)
from workspaces.models import Alert, AlertMember

E = EvidenceType
# of a trouble: what it is about, the narrowest first
_COLUMNS = {
    E.INCIDENT: "incident_id",
    E.ESCALATION: "escalation_id",
    E.TASK: "task_id",
    E.POOL: "pool_id",
    E.BUDGET: "budget_id",
    E.ENDPOINT: "endpoint_id",
}
_OF_A_WORKSPACE_ALONE = Q(**{f"{column}__isnull": True for column in _COLUMNS.values()})
_RANK = Case(*(When(severity=one.value, then=Value(one.rank)) for one in Severity), output_field=IntegerField())


@dataclass(frozen=True, slots=True)
class ToTell:
    """A change of `alert` (as it stands after it) that is told."""

    alert: Alert
    type: MessageType
    number: int
    kind: str
    at: datetime
    words: str = ""
    actor: str = ""
    via: str = ""


def messages(changes: Sequence[ToTell]) -> list[dict[str, Any]]:
    """The payload of each, in order. Its links are put in for each endpoint (actions/deliveries.py)."""
    found = evidence_of({one.alert.pk for one in changes})
    return [
        alert_message(
            one.type,
            subject_of(one.alert),
            Telling(number=one.number, kind=one.kind, at=one.at, words=one.words, actor=one.actor, via=one.via),
            found.get(one.alert.pk, Found()),
            base=settings.PUBLIC_URL,
        )
        for one in changes
    ]


def subject_of(alert: Alert) -> Subject:
    return Subject(
        id=alert.pk,
        kind=alert.kind,
        severity=alert.severity,
        state=alert.state,
        title=alert.title,
        words=alert.words,
        rule=alert.rule_id,
        rule_name=alert.rule.name,
        group=alert.group_key,
        troubles=alert.troubles,
        active=alert.active,
        reopened=alert.reopened,
        began_at=alert.began_at,
        opened_at=alert.opened_at,
        acknowledged_at=alert.acknowledged_at,
        acknowledged_by=alert.acknowledged_by.get_username() if alert.acknowledged_by else "",
        resolved_at=alert.resolved_at,
        resolved_by=alert.resolved_by.get_username() if alert.resolved_by else "",
        resolution=alert.resolution,
    )


def evidence_of(alerts: set[int]) -> dict[int, Found]:
    """Of each alert: its troubles that go on first, the gravest and newest of them first."""
    of_alerts = AlertMember.objects.filter(alert__in=alerts)
    order = [F("ended_at").asc(nulls_first=True), _RANK.desc(), F("id").desc()]
    rows = (
        of_alerts.annotate(place=Window(RowNumber(), partition_by=[F("alert_id")], order_by=order))
        .filter(place__lte=MOST_EVIDENCE)
        .select_related("incident")
        .order_by("alert_id", "place")
    )
    items: dict[int, dict[tuple[str, int], Item]] = {}
    for row in rows:
        mine = items.setdefault(row.alert_id, {})
        for item in _items(row):
            mine[item.type, item.id] = _joined(mine.get((item.type, item.id)), item)
    sums: Any = of_alerts.values("alert_id").annotate(
        **{one.value: Count(column, distinct=True) for one, column in _COLUMNS.items()},
        workspace=Count("workspace_id", distinct=True, filter=_OF_A_WORKSPACE_ALONE),
    )
    totals = {one["alert_id"]: Counter({kind: one[kind.value] for kind in (*_COLUMNS, E.WORKSPACE)}) for one in sums}
    return {alert: Found(list(mine.values()), totals[alert]) for alert, mine in items.items()}


def _items(row: AlertMember) -> Iterator[Item]:
    seqs = _seqs(row)
    if all(getattr(row, column) is None for column in _COLUMNS.values()) and row.workspace_id is not None:
        yield Item(type=E.WORKSPACE, id=row.workspace_id, title=row.words, active=row.ended_at is None)
    for kind, column in _COLUMNS.items():
        id_ = getattr(row, column)
        if id_ is not None:
            is_first = kind is not E.TASK or row.incident_id is row.escalation_id is None
            yield Item(
                type=kind,
                id=id_,
                title=row.words if is_first else "",
                task=row.task_id,
                seqs=seqs if kind in (E.INCIDENT, E.ESCALATION, E.TASK) else (),
                active=row.ended_at is None,
            )


def _seqs(row: AlertMember) -> tuple[int, ...]:
    """Where in the trace of its task it is told of."""
    if row.incident is not None:
        return tuple(sorted({row.incident.first_seq, row.incident.last_seq}))
    said = row.data.get("seqs") or row.data.get("seq") or ()
    return tuple(one for one in (said if isinstance(said, list) else [said]) if isinstance(one, int))


def _joined(before: Item | None, item: Item) -> Item:
    """The same thing in two troubles: a task in each of its incidents."""
    if before is None:
        return item
    return Item(
        type=item.type,
        id=item.id,
        title=before.title or item.title,
        task=before.task if before.task is not None else item.task,
        seqs=tuple(sorted({*before.seqs, *item.seqs})),
        active=before.active or item.active,
    )
