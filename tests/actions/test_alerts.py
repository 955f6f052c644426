"""Signals become alerts: grouped, counted, told once; late, double, bad and simultaneous ones too."""

from __future__ import annotations

import time
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from tests.harness import make_user, quota_pool, scripted_profile, scripted_task
from workspaces.actions import alerts
from workspaces.actions.alerts import acknowledge_alert, digest, due, resolve_alert
from workspaces.actions.errors import Refused
from workspaces.actions.incidents import acknowledge_incident, report, resolve_incident
from workspaces.actions.pen import writing
from workspaces.domain.alerts import AlertKind, AlertState, ChangeKind, Edge, GroupBy, Via
from workspaces.domain.endpoints import EndpointKind
from workspaces.domain.incidents import Evidence, Finding, IncidentKind, Severity
from workspaces.models import (
    Alert,
    AlertMember,
    AlertRule,
    AlertSignal,
    AuditEntry,
    Delivery,
    Endpoint,
    Incident,
    QuotaPool,
)
from workspaces.queries.integrity import verify

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
    assert took_s < 60, took_s  # it is two seconds on a machine that has nothing else to do
    signalled(E.ENDED, (f"incident:{n}" for n in range(2_000)), pool=one)
    digest(most=100)
    alert.refresh_from_db()
    assert (alert.state, alert.active, alert.troubles) == (S.OPEN.value, 8_000, 10_000)
    assert sent() == ["alert.opened.v1"]


def test_one_persons_flood_leaves_half_of_a_batch_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alerts, "BATCH", 10)
    made = rule(group_by=GroupBy.TROUBLE.value)
    ann, ben = make_user(), make_user()
    signalled(E.BEGAN, [f"incident:{number}" for number in range(30)], user=ann)
    signalled(E.BEGAN, ["incident:100"], user=ben)
    signalled(E.BEGAN, ["incident:101"])  # nobody's
    assert digest(most=1) == 10
    assert {"incident:100", "incident:101"} < set(made.alerts.values_list("group_key", flat=True))
    assert made.alerts.count() == 10
    assert digest() == 22
    assert made.alerts.count() == 32


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


def test_what_flaps_for_an_hour_is_one_alert_and_told_twice_a_cooldown() -> None:
    """Two hundred times: tests/domain/test_alerting.py."""
    rule(group_by=GroupBy.RULE.value, cooldown_s=600)
    for _ in range(20):
        for edge in (E.BEGAN, E.ENDED):
            signalled(edge, ["incident:1"])
            digest()
            later(90)
            due()
    alert = Alert.objects.get()
    assert 10 <= len(sent()) <= 2 * (3600 // 600 + 1)
    assert (alert.troubles, alert.members.get().times) == (1, 20)
    numbers = list(alert.changes.order_by("number").values_list("number", flat=True))
    assert numbers == list(range(1, alert.last_change + 1))
    assert alert_rules_broken() == []


def alert_rules_broken() -> list[str]:
    return [result.rule.name for result in verify() if result.broken and result.rule.name.startswith("alert-")]


def test_what_has_to_hold_opens_when_it_has_and_leaves_nothing_when_it_ended_before() -> None:
    made = rule(hold_s=60, group_by=GroupBy.RULE.value)
    signalled(E.BEGAN, ["incident:1"])
    digest()
    assert made.alerts.get().state == S.PENDING.value
    signalled(E.ENDED, ["incident:1"])
    digest()
    assert not made.alerts.exists()
    signalled(E.BEGAN, ["incident:2"])
    signalled(E.ENDED, ["incident:2"])
    digest()
    assert not made.alerts.exists(), "it began and ended within one batch"
    signalled(E.BEGAN, ["incident:3"])
    digest()
    later(61)
    assert (due(), due()) == (1, 0)
    assert sent() == ["alert.opened.v1"]


def test_growth_and_reminders_wait_for_the_cooldown_and_a_rise_does_not() -> None:
    rule(group_by=GroupBy.RULE.value, remind_s=3600)
    signalled(E.BEGAN, ["incident:1"])
    digest()
    signalled(E.BEGAN, ["incident:2"])
    digest()
    assert sent() == ["alert.opened.v1"]
    signalled(E.WORSE, ["incident:2"], severity=Severity.CRITICAL.value)
    digest()
    assert sent() == ["alert.opened.v1", "alert.updated.v1"]
    later(3601)
    due()
    alert = Alert.objects.get()
    assert kinds_of(alert) == ["opened", "grew", "worse", "reminded"]
    assert alert.severity == Severity.CRITICAL.value
    assert len(sent()) == 3


def test_a_question_about_an_incident_and_the_incident_are_one_alert() -> None:
    incident = reported()
    rule(kinds=[K.INCIDENT.value, K.ESCALATION_OPENED.value], group_by=GroupBy.TROUBLE.value)
    AlertSignal.objects.all().delete()
    signalled(E.BEGAN, [f"incident:{incident.pk}"], incident=incident)
    signalled(E.BEGAN, ["escalation:5"], kind=K.ESCALATION_OPENED.value, incident=incident)
    digest()
    assert Alert.objects.get().troubles == 2
    assert sent() == ["alert.opened.v1"]


def test_many_alerts_at_once_are_told_in_a_few_statements(django_assert_max_num_queries: Any) -> None:
    rule(group_by=GroupBy.TROUBLE.value)
    signalled(E.BEGAN, [f"incident:{number}" for number in range(60)])
    with django_assert_max_num_queries(40):
        digest()
    assert sent() == ["alert.opened.v1"] * 60


def test_a_message_about_a_sandbox_leads_to_its_workspace() -> None:
    rule(kinds=[K.SANDBOX_UNHEALTHY.value])
    workspace = scripted_task("replies: []").workspace
    signalled(E.BEGAN, [f"wake:{workspace.pk}"], kind=K.SANDBOX_UNHEALTHY.value, workspace=workspace)
    digest()
    data = Delivery.objects.get().body["data"]
    assert [(item["type"], item["id"]) for item in data["evidence"]] == [("workspace", workspace.pk)]
    assert data["evidence_totals"] == {"workspace": 1}


def test_what_only_happens_is_told_once_and_is_over() -> None:
    rule(kinds=[K.TASK_FINISHED.value], group_by=GroupBy.TROUBLE.value)
    signalled(E.HAPPENED, ["finished:1", "finished:2"], kind=K.TASK_FINISHED.value)
    digest()
    assert list(Alert.objects.values_list("state", "active", "troubles")) == [("resolved", 0, 1)] * 2
    assert sent() == ["alert.opened.v1"] * 2
    assert alert_rules_broken() == []


def test_a_signal_or_a_rule_that_cannot_be_taken_is_set_aside_and_the_others_go_on() -> None:
    AlertRule.objects.create(name="from another version", kinds=["flood"])
    made = rule(group_by=GroupBy.TROUBLE.value)
    signalled(E.BEGAN, ["incident:1"])
    (unread,) = signalled(E.BEGAN, ["incident:2"], data=[1])
    (bad,) = signalled(E.BEGAN, ["incident:3"])
    signalled(E.BEGAN, ["incident:4"])
    refuse_in_the_database("incident:3")
    assert digest() == 4
    assert set(made.alerts.values_list("group_key", flat=True)) == {"incident:1", "incident:4"}
    errors = dict(AlertSignal.objects.exclude(error="").values_list("subject", "error"))
    assert errors.keys() == {"incident:2", "incident:3"}
    assert "cannot be read" in errors[unread.subject]
    assert f"Rule {made.pk}" in errors[bad.subject]
    assert not AlertSignal.objects.filter(digested_at=None).exists()


def refuse_in_the_database(subject: str) -> None:
    """No member of this subject can be stored in this test."""
    with connection.cursor() as cursor:
        cursor.execute(f"ALTER TABLE workspaces_alertmember ADD CONSTRAINT no_such CHECK (subject <> '{subject}')")


def reported() -> Incident:
    task = scripted_task("replies: []")
    finding = Finding(
        kind=IncidentKind.FALSE_CLAIM,
        severity=Severity.ERROR,
        pattern="by_a_test",
        first_seq=1,
        last_seq=1,
        evidence=(Evidence(1, None, "it says so"),),
        words="It claims what it did not do.",
        cause="false_claim/x",
        fingerprint="f" * 64,
    )
    with writing(task.pk) as pen:
        return report(pen, finding).incident


def test_people_answer_once_and_the_second_is_told_who_was_quicker() -> None:
    rule(group_by=GroupBy.TROUBLE.value)
    alice, bob = make_user("alice"), make_user("bob")
    signalled(E.BEGAN, ["incident:1"])
    digest()
    pk = Alert.objects.get().pk
    with pytest.raises(Refused, match="Say how it was resolved"):
        resolve_alert(pk, actor=alice, reason=" ")
    acknowledge_alert(pk, actor=alice, via=Via.LINK)
    with pytest.raises(Refused, match="alice has already acknowledged"):
        acknowledge_alert(pk, actor=bob)
    resolve_alert(pk, actor=bob, reason="restarted it")
    with pytest.raises(Refused, match="bob has already resolved this alert: restarted it"):
        resolve_alert(pk, actor=alice, reason="me too")
    alert = Alert.objects.get()
    assert (alert.state, alert.active, alert.resolved_by, alert.resolution) == ("resolved", 1, bob, "restarted it")
    assert sent() == ["alert.opened.v1", "alert.acknowledged.v1", "alert.resolved.v1"]
    vias = AuditEntry.objects.filter(action__startswith="alert.").order_by("pk").values_list("action", "data__via")
    assert list(vias) == [("alert.acknowledge", "link"), ("alert.resolve", "page")]
    assert alert_rules_broken() == []
    signalled(E.WORSE, ["incident:1"], severity=Severity.CRITICAL.value)
    digest()
    alert.refresh_from_db()
    assert (alert.state, alert.resolved_by, alert.reopened) == ("open", None, 1)


def test_an_alert_is_acknowledged_with_its_incidents_and_ends_with_them() -> None:
    incident = reported()
    AlertRule.objects.filter(builtin="agent").update(enabled=True)
    alice = incident.task.created_by
    digest()
    alert = Alert.objects.get(group_key=f"task:{incident.task_id}")
    assert alert.title == f"False claim: task {incident.task_id} “Do the work.” in {incident.task.workspace}"
    assert (alert.state, alert.workspace_id) == ("open", incident.task.workspace_id)
    acknowledge_incident(incident.pk, actor=alice)
    assert (due(), due()) == (1, 0)
    alert.refresh_from_db()
    assert (alert.state, alert.acknowledged_by) == ("acknowledged", alice)
    resolve_incident(incident.pk, actor=alice, reason="it did after all")
    digest()
    alert.refresh_from_db()
    assert (alert.state, alert.resolved_by, alert.resolution) == ("resolved", None, "it did after all")
    assert alert_rules_broken() == []
