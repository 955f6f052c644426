"""What an alert goes through, written down: its row, the entries of its history, and what of them is to be told.

A move is decided in domain/alerting.py; here it is taken over into the row, in memory (`record`), and stored for many
alerts at once (`store`), in the caller's transaction and under the alerts' locks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from workspaces import live
from workspaces.domain import alerting
from workspaces.domain.alerting import Message, Move, Pace, Standing
from workspaces.domain.alerts import AlertState, ChangeKind, Via
from workspaces.domain.endpoints import EndpointState
from workspaces.domain.incidents import Severity
from workspaces.domain.text import clean_text, clip
from workspaces.domain.webhooks import MessageType
from workspaces.models import Alert, AlertChange, AlertRule, Endpoint, User
from workspaces.queries.access import visible_workspaces
from workspaces.queries.alert_messages import ToTell, messages

from . import deliveries

WORDS_CHARS = 2_000
OPENING = (ChangeKind.OPENED, ChangeKind.REOPENED)
_MOVED = (
    *("severity", "state", "words", "troubles", "active", "began_at", "opens_at", "opened_at", "reopened"),
    *("acknowledged_by", "acknowledged_at", "resolved_by", "resolved_at", "resolution"),
    *("changed_at", "last_change", "told", "tell_at"),
)
_ONE_BY_ONE = 4  # up to here a row's own UPDATE is cheaper than one for all


@dataclass(frozen=True, slots=True)
class Entry:
    """A change before it is stored. `shown`: the alert as it was with that change."""

    alert: Alert
    shown: Alert
    change: AlertChange
    message: Message | None


def pace_of(rule: AlertRule) -> Pace:
    return Pace(rule.hold_s, rule.cooldown_s, rule.remind_s, rule.tell_resolved, rule.muted_until)


def standing_of(alert: Alert) -> Standing:
    return alerting.stored(
        alert.told,
        state=AlertState(alert.state),
        severity=Severity(alert.severity),
        began_at=alert.began_at,
        active=alert.active,
        opens_at=alert.opens_at,
        resolved_at=alert.resolved_at,
        reopened=alert.reopened,
        last_change=alert.last_change,
        tell_at=alert.tell_at,
    )


def record(
    alert: Alert,
    move: Move,
    now: datetime,
    *,
    words: str = "",
    actor: User | None = None,
    via: Via = Via.RUNTIME,
    data: dict[str, Any] | None = None,
) -> list[Entry]:
    """Take the move over into `alert`; nothing is stored yet."""
    standing = move.standing
    words = clip(clean_text(words), WORDS_CHARS)
    alert.state = standing.state.value
    alert.severity = standing.severity.value
    alert.began_at = standing.began_at
    alert.active = standing.active
    alert.opens_at = standing.opens_at
    alert.resolved_at = standing.resolved_at
    alert.reopened = standing.reopened
    alert.last_change = standing.last_change
    alert.told = standing.told_json()
    alert.tell_at = standing.tell_at
    entries = []
    for change in move.changes:
        alert.changed_at = now
        said = words
        if change.kind in OPENING:
            alert.opened_at = now
            alert.acknowledged_by = alert.acknowledged_at = alert.resolved_by = None
            alert.resolution = ""
        elif change.kind is ChangeKind.ACKNOWLEDGED:
            alert.acknowledged_by, alert.acknowledged_at = actor, now
        elif change.kind is ChangeKind.RESOLVED:
            alert.resolved_by, alert.resolution = actor, words
        elif change.kind is ChangeKind.REMINDED:
            said = _reminder(alert, change.message)
        row = AlertChange(
            alert=alert,
            number=change.number,
            kind=change.kind.value,
            at=now,
            actor=actor,
            via=via.value,
            words=said,
            data={"active": alert.active, "troubles": alert.troubles, "severity": alert.severity, **(data or {})},
        )
        entries.append(Entry(alert, copy(alert), row, change.message))
    return entries


def _reminder(alert: Alert, message: Message | None) -> str:
    if message is Message.RESOLVED:
        return "It has ended."
    if alert.state == AlertState.RESOLVED.value:
        return f"It has happened again. {alert.words}"
    return f"It goes on. {alert.words}"


def store(alerts: Sequence[Alert]) -> None:
    """The rows that have moved; new ones get their ids."""
    new = [alert for alert in alerts if alert.pk is None]
    old = [alert for alert in alerts if alert.pk is not None]
    Alert.objects.bulk_create(new)
    if len(old) <= _ONE_BY_ONE:
        for alert in old:
            alert.save(update_fields=_MOVED)
    else:
        Alert.objects.bulk_update(old, _MOVED, batch_size=200)
    if alerts:
        live.alerts_changed()


def write_history(rule: AlertRule, entries: Iterable[Entry]) -> None:
    """Their history, and a delivery to each endpoint where somebody is told. After `store` and the members."""
    entries = list(entries)
    for entry in entries:
        entry.change.alert, entry.shown.pk = entry.alert, entry.alert.pk
    told = _may_be_told(rule, [entry for entry in entries if entry.message is not None])
    endpoints = _endpoints(rule) if told else []
    if endpoints:
        for entry, payload in zip(told, messages([_to_tell(rule, entry) for entry in told]), strict=True):
            entry.change.payload = payload
    AlertChange.objects.bulk_create([entry.change for entry in entries])
    if endpoints:
        deliveries.queue([entry.change for entry in told], endpoints)


def _to_tell(rule: AlertRule, entry: Entry) -> ToTell:
    assert entry.message is not None
    change = entry.change
    entry.shown.rule = rule  # a copy without it would ask for it, once an alert
    return ToTell(
        alert=entry.shown,
        type=MessageType(f"alert.{entry.message.value}.v1"),
        number=change.number,
        kind=change.kind,
        at=change.at,
        words=change.words,
        actor=change.actor.get_username() if change.actor else "",
        via=change.via,
    )


def _may_be_told(rule: AlertRule, entries: Sequence[Entry]) -> Sequence[Entry]:
    """Not those of workspaces that the rule's owner has left since: they go on, and are not his matter."""
    places = {entry.alert.workspace_id for entry in entries if entry.alert.workspace_id is not None}
    if rule.owner is None or rule.owner.is_staff or not places:
        return entries
    seen = set(visible_workspaces(rule.owner).filter(pk__in=places).values_list("pk", flat=True))
    return [entry for entry in entries if entry.alert.workspace_id in (None, *seen)]


def _endpoints(rule: AlertRule) -> list[Endpoint]:
    """Those that take messages now, and are its rule's owner's, who may sign in still."""
    if rule.owner is not None and not rule.owner.is_active:
        return []
    return list(rule.endpoints.filter(state=EndpointState.ENABLED.value, owner=rule.owner_id).order_by("pk"))
