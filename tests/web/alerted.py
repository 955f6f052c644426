"""Alerts by the real path, for the tests of their pages: a rule, a signal in a task, the digest."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from tests.web.people import Desk
from workspaces.actions.alert_signals import signal
from workspaces.actions.alerts import digest
from workspaces.domain.alerts import AlertKind, Edge
from workspaces.domain.incidents import Severity
from workspaces.models import Alert, AlertRule, Task


def make_rule(**fields: Any) -> AlertRule:
    """The only one that is on: the site's, for every kind."""
    AlertRule.objects.update(enabled=False)
    return AlertRule.objects.create(**{"name": "Every trouble", "kinds": [kind.value for kind in AlertKind]} | fields)


def began(
    subject: str,
    *,
    kind: AlertKind = AlertKind.INCIDENT,
    edge: Edge = Edge.BEGAN,
    task: Task | None = None,
    **more: Any,
) -> None:
    """A trouble, as whoever finds it says so; digested at once."""
    signal(kind, edge, subject, task=task, **{"words": f"{subject} is in trouble."} | more)
    digest()


def alerted(desk: Desk, subject: str, *, severity: Severity = Severity.WARNING, task: Task | None = None) -> Alert:
    """An alert of its own for a task of the desk's workspace."""
    began(subject, severity=severity, task=task or desk.task())
    return Alert.objects.order_by("-pk")[0]


def opened_ago(alert: Alert, seconds: float) -> Alert:
    """As if it had opened so long ago."""
    gone = timedelta(seconds=seconds)
    opened_at = (alert.opened_at or alert.began_at) - gone
    Alert.objects.filter(pk=alert.pk).update(began_at=alert.began_at - gone, opened_at=opened_at)
    alert.refresh_from_db()
    return alert
