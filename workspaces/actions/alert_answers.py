"""What people do about an alert: acknowledge it, resolve it. With a reason, and an entry in the audit log.

Who may: queries/alerts.may_act, which whoever calls asks first. Two who answer at once: the second is told who was
quicker. The troubles in the alert are not touched: an incident stays open until it is resolved itself.
"""

from __future__ import annotations

from django.db import transaction

from workspaces.domain import alerting
from workspaces.domain.alerting import LIVE
from workspaces.domain.alerts import AlertState, Via
from workspaces.domain.text import clean_text
from workspaces.models import Alert, AuditEntry, User

from .alert_log import pace_of, record, standing_of, store, write_history
from .clock import database_now
from .errors import Refused
from .words import taken

S = AlertState


def acknowledge_alert(alert_id: int, *, actor: User, reason: str = "", via: Via = Via.PAGE) -> Alert:
    """The actor deals with it: nobody is reminded of it any more. Raises Refused."""
    reason = taken(reason, "reason")
    with transaction.atomic():
        alert = _locked(alert_id)
        if alert.state != S.OPEN.value:
            raise Refused(_why_not(alert, "acknowledge"))
        now = database_now()
        move = alerting.acknowledge(standing_of(alert), pace_of(alert.rule), now)
        words = reason or f"{actor} deals with it."
        entries = record(alert, move, now, words=words, actor=actor, via=via)
        store([alert])
        write_history(alert.rule, entries)
        _audit("alert.acknowledge", alert, actor, reason, via)
        return alert


def resolve_alert(alert_id: int, *, actor: User, reason: str, via: Via = Via.PAGE) -> Alert:
    """The actor closes it, whatever goes on in it. It comes back when something new begins or it gets worse.

    Raises Refused.
    """
    reason = taken(reason, "reason")
    if not reason:
        raise Refused("Say how it was resolved: the words stay with the alert.")
    with transaction.atomic():
        alert = _locked(alert_id)
        standing = standing_of(alert)
        if standing.state not in LIVE:
            raise Refused(_why_not(alert, "resolve"))
        now = database_now()
        move = alerting.resolve(standing, pace_of(alert.rule), now)
        entries = record(alert, move, now, words=reason, actor=actor, via=via)
        store([alert])
        write_history(alert.rule, entries)
        _audit("alert.resolve", alert, actor, reason, via)
        return alert


def _locked(alert_id: int) -> Alert:
    """Who answered is not joined: whoever waited for the row would get the new row with the old join."""
    return Alert.objects.select_for_update(no_key=True, of=("self",)).select_related("rule").get(pk=alert_id)


def _why_not(alert: Alert, what: str) -> str:
    if alert.state == S.PENDING.value:
        return f"This alert has not opened yet: there is nothing to {what}. It opens when it has held long enough."
    if alert.state == S.ACKNOWLEDGED.value:
        at = f" at {alert.acknowledged_at:%H:%M} UTC" if alert.acknowledged_at else ""
        return f"{alert.acknowledged_by} has already acknowledged this alert{at}."
    if alert.resolved_by is not None:
        return f"{alert.resolved_by} has already resolved this alert: {alert.resolution}"
    return "This alert is over: nothing goes on in it any more."


def _audit(action: str, alert: Alert, actor: User, reason: str, via: Via) -> None:
    AuditEntry.objects.create(
        actor=actor,
        action=action,
        workspace_id=alert.workspace_id,
        reason=clean_text(reason),
        data={"alert": alert.pk, "title": alert.title, "rule": alert.rule_id, "via": via.value},
        at=alert.changed_at,
    )
