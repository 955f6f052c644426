"""Signals become alerts: grouped, counted, told once; late, double, bad and simultaneous ones too."""

from __future__ import annotations

import time
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from tests.harness import make_user, quota_pool, scripted_profile
from workspaces.actions.alerts import digest
from workspaces.domain.alerts import AlertKind, AlertState, ChangeKind, Edge, GroupBy
from workspaces.domain.endpoints import EndpointKind
from workspaces.domain.incidents import Severity
from workspaces.models import Alert, AlertMember, AlertRule, AlertSignal, Delivery, Endpoint, QuotaPool

pytestmark = pytest.mark.django_db

K, E, S = AlertKind, Edge, AlertState


@pytest.fixture(autouse=True)
def no_other_rules(db: None) -> None:
    AlertRule.objects.update(enabled=False)


def rule(**fields: Any) -> AlertRule:
    made = AlertRule.objects.create(
        **{"name": "the rule", "kinds": [K.INCIDENT.value], "cooldown_s": 600, "group_by": GroupBy.POOL.value} | fields
    )
    endpoint = Endpoint.objects.create(
        name="hook", kind=EndpointKind.WEBHOOK.value, address="https://hook.test/", created_by=make_user()
    )
    made.endpoints.add(endpoint)
    return made


def pool() -> QuotaPool:
    return quota_pool(scripted_profile(make_user(), "replies: []"))


def signalled(edge: Edge, subjects: Iterable[str], **fields: Any) -> list[AlertSignal]:
    values: dict[str, Any] = {
        "kind": K.INCIDENT.value,
        "edge": edge.value,
        "severity": Severity.WARNING.value,
        "words": "The same again.",
        "detail": "loop",
        "at": timezone.now(),
    }
    return AlertSignal.objects.bulk_create([AlertSignal(subject=subject, **values | fields) for subject in subjects])


def later(seconds: float) -> None:
    """So much time has passed for every alert."""
    gone = timedelta(seconds=seconds)
    for alert in Alert.objects.all():
        for name in ("began_at", "opens_at", "resolved_at", "tell_at"):
            if (at := getattr(alert, name)) is not None:
                setattr(alert, name, at - gone)
        for name in ("at", "resolved_before"):
            if alert.told.get(name):
                alert.told[name] = (datetime.fromisoformat(alert.told[name]) - gone).isoformat()
        alert.save()


def kinds_of(alert: Alert) -> list[str]:
    return list(alert.changes.order_by("number").values_list("kind", flat=True))


def sent() -> list[str]:
    return list(Delivery.objects.order_by("pk").values_list("type", flat=True))


def test_ten_thousand_incidents_on_one_pool_are_one_alert_and_one_message() -> None:
    rule()
    one = pool()
    signalled(E.BEGAN, (f"incident:{n}" for n in range(10_000)), pool=one)
    began = time.monotonic()
    assert digest(most=100) == 10_000
    took_s = time.monotonic() - began
    alert = Alert.objects.get()
    assert (alert.state, alert.active, alert.troubles) == (S.OPEN.value, 10_000, 10_000)
    assert alert.members.count() == 10_000
    assert sent() == ["alert.opened.v1"]
    assert kinds_of(alert) == [ChangeKind.OPENED.value, *[ChangeKind.GREW.value] * 19]
    assert digest() == 0
    assert took_s < 15, took_s
    signalled(E.ENDED, (f"incident:{n}" for n in range(10_000)), pool=one)
    digest(most=100)
    alert.refresh_from_db()
    assert (alert.state, alert.active, alert.troubles) == (S.RESOLVED.value, 0, 10_000)
    assert sent() == ["alert.opened.v1", "alert.resolved.v1"]


def test_what_begins_and_ends_in_its_own_alert_and_an_end_that_was_read_first() -> None:
    made = rule(group_by=GroupBy.TROUBLE.value)
    signalled(E.BEGAN, ["incident:1", "incident:2"])
    digest()
    assert Alert.objects.filter(state=S.OPEN.value).count() == 2
    late = signalled(E.BEGAN, ["incident:3"])
    signalled(E.ENDED, ["incident:1", "incident:3"])
    AlertSignal.objects.filter(pk__in=[row.pk for row in late]).update(digested_at=timezone.now())
    digest()  # its beginning is not visible yet
    AlertSignal.objects.filter(pk__in=[row.pk for row in late]).update(digested_at=None)
    digest()
    states = dict(AlertMember.objects.values_list("subject", "alert__state"))
    assert states == {"incident:1": "resolved", "incident:2": "open", "incident:3": "resolved"}
    assert made.alerts.count() == 3
    assert sorted(sent()) == ["alert.opened.v1"] * 3 + ["alert.resolved.v1"] * 2
