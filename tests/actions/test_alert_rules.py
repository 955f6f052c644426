"""Rules of alerts: made, changed, muted, switched and retired, with what becomes of the alerts that are open."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from tests.actions.test_alerts import E, K, S, kinds_of, later, no_other_rules, rule, sent, signalled
from tests.harness import add_member, make_user, make_workspace
from workspaces.actions import alert_rules
from workspaces.actions.alert_rules import (
    change_rule,
    install_defaults,
    make_rule,
    mute_rule,
    restore_default,
    retire_rule,
    switch_rule,
    unmute_rule,
)
from workspaces.actions.alerts import digest, due
from workspaces.actions.errors import Refused
from workspaces.domain.alert_defaults import DEFAULTS
from workspaces.domain.alerts import GroupBy
from workspaces.domain.endpoints import EndpointKind
from workspaces.domain.incidents import Severity
from workspaces.domain.roles import Role
from workspaces.models import Alert, AlertRule, AuditEntry, Endpoint, User
from workspaces.queries.access import visible_alerts

pytestmark = pytest.mark.django_db
__all__ = ["no_other_rules"]


@pytest.fixture
def staff() -> User:
    return make_user(is_staff=True)


def test_the_default_rules_are_there_and_are_put_in_once() -> None:
    assert set(AlertRule.objects.exclude(builtin="").values_list("builtin", flat=True)) == {d.slug for d in DEFAULTS}
    assert install_defaults() == 0
    AlertRule.objects.filter(builtin="quota").delete()
    assert install_defaults() == 1


def opened(**fields: Any) -> tuple[AlertRule, Alert]:
    """A rule on incidents with one open alert of two troubles, which was told."""
    made = rule(group_by=GroupBy.RULE.value, **fields)
    signalled(E.BEGAN, ["incident:1", "incident:2"])
    digest()
    return made, made.alerts.get()


def test_a_rule_is_made_with_checks_that_say_what_to_do(staff: User) -> None:
    alice = make_user()
    good = {"name": "mine", "kinds": [K.INCIDENT], "owner": alice, "actor": alice}
    made = make_rule(**good, cooldown_s=60, severity=Severity.CRITICAL)
    assert (made.kinds, made.severity, made.enabled) == (["incident"], "critical", True)
    theirs = make_workspace(make_user())
    hook = Endpoint.objects.create(
        name="the site's", kind=EndpointKind.WEBHOOK.value, address="https://x.test", created_by=staff
    )
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"owner": None}, "Only site staff"),
        ({"name": "  "}, "a name"),
        ({"kinds": []}, "at least one"),
        ({"kinds": ["flood"]}, "no such kind of alert: flood"),
        ({"incident_kinds": ["x"]}, "no such kind of incident"),
        ({"scope": "workspace"}, "Say which workspace"),
        ({"scope": "workspace", "workspace": theirs}, "does not see this workspace"),
        ({"scope": "user", "user": staff}, "does not see this user"),
        ({"kinds": [K.WORKER_UNHEALTHY]}, "for its staff"),
        ({"cooldown_s": 0}, "pause between"),
        ({"hold_s": 10**6}, "one day"),
        ({"remind_s": 5}, "Remind"),
        ({"kinds": [K.TASK_STUCK], "params": {"stuck_minutes": 0}}, "a number from 1 to"),
        ({"endpoints": [hook]}, "leave out the site's"),
    ]
    for other, said in wrong:
        with pytest.raises(Refused, match=said):
            make_rule(**good | other)
    assert AlertRule.objects.filter(builtin="").count() == 1
    assert AuditEntry.objects.get(action="alert_rule.make").data["rule"] == made.pk


def test_only_its_owner_and_staff_change_a_rule_and_each_change_is_written_down(staff: User) -> None:
    alice = make_user()
    made = make_rule(owner=alice, actor=alice, name="mine", kinds=[K.INCIDENT])
    with pytest.raises(Refused, match="Only its owner"):
        switch_rule(made.pk, on=False, actor=make_user(), reason="why not")
    with pytest.raises(Refused, match="Say why"):
        change_rule(made.pk, actor=alice, reason=" ", name="ours")
    with pytest.raises(Refused, match="nothing was changed"):
        change_rule(made.pk, actor=alice, reason="again", name="mine")
    change_rule(made.pk, actor=staff, reason="clearer", name="loops")
    entry = AuditEntry.objects.get(action="alert_rule.change")
    assert (entry.data["old"]["name"], entry.data["new"]["name"], entry.reason) == ("mine", "loops", "clearer")
    retire_rule(made.pk, actor=alice, reason="no longer")
    with pytest.raises(Refused, match="was removed"):
        switch_rule(made.pk, on=True, actor=alice)
    builtin = AlertRule.objects.get(builtin="agent")
    with pytest.raises(Refused, match="switch it off"):
        retire_rule(builtin.pk, actor=staff, reason="noise")
    change_rule(builtin.pk, actor=staff, reason="quieter", min_severity=Severity.ERROR.value)
    restore_default(builtin.pk, actor=staff, reason="as it was")
    builtin.refresh_from_db()
    assert builtin.min_severity == Severity.WARNING.value


def test_while_a_rule_is_muted_nobody_is_told_and_then_of_what_is_open(staff: User) -> None:
    made, _ = opened()
    mute_rule(made.pk, until=timezone.now() + timedelta(hours=1), actor=staff, reason="maintenance")
    AlertRule.objects.filter(pk=made.pk).update(group_by=GroupBy.TROUBLE.value)
    signalled(E.BEGAN, ["incident:3"])
    digest()
    assert due() == 0
    assert sent() == ["alert.opened.v1"]
    unmute_rule(made.pk, actor=staff)
    assert sent() == ["alert.opened.v1"] * 2
    with pytest.raises(Refused, match="not muted"):
        unmute_rule(made.pk, actor=staff)
    with pytest.raises(Refused, match="still to come"):
        mute_rule(made.pk, until=timezone.now(), actor=staff, reason="x")


def test_switched_off_its_alerts_end_and_say_who_did_it(staff: User) -> None:
    made, alert = opened()
    pending = rule(hold_s=600, group_by=GroupBy.RULE.value)
    signalled(E.BEGAN, ["incident:4"])
    digest()
    for each in (made, pending):
        switch_rule(each.pk, on=False, actor=staff, reason="too loud")
    alert.refresh_from_db()
    assert (alert.state, alert.active) == (S.RESOLVED.value, 0)
    assert alert.resolution == f"{staff} has switched the rule off: too loud"
    assert sent() == ["alert.opened.v1", "alert.resolved.v1"]
    assert not pending.alerts.exists(), "it had not opened: nothing is kept of it"
    signalled(E.BEGAN, ["incident:5"])
    digest()
    switch_rule(made.pk, on=True, actor=staff)
    assert digest() == 0
    assert made.alerts.count() == 1, "what began while it was off is not dug up"


def test_what_a_changed_rule_does_not_match_leaves_and_what_is_of_another_group_moves(staff: User) -> None:
    made, alert = opened()
    signalled(E.BEGAN, ["incident:9"], severity=Severity.ERROR.value)
    digest()
    change_rule(made.pk, actor=staff, reason="only what is grave", min_severity=Severity.ERROR.value)
    alert.refresh_from_db()
    assert (alert.state, alert.active, alert.troubles) == (S.OPEN.value, 1, 3)
    change_rule(made.pk, actor=staff, reason="one by one", group_by=GroupBy.TROUBLE.value)
    alert.refresh_from_db()
    assert alert.state == S.RESOLVED.value
    other = made.alerts.exclude(pk=alert.pk).get()
    assert (other.state, other.active, other.group_key) == (S.OPEN.value, 1, "incident:9")


def test_another_pace_holds_for_what_is_open_at_once(staff: User) -> None:
    made = rule(hold_s=600, group_by=GroupBy.RULE.value)
    signalled(E.BEGAN, ["incident:1"])
    digest()
    later(100)
    assert due() == 0
    change_rule(made.pk, actor=staff, reason="sooner", hold_s=60)
    assert sent() == ["alert.opened.v1"]
    assert kinds_of(made.alerts.get()) == ["opened"]


def test_a_rule_of_a_person_matches_only_what_that_person_sees() -> None:
    alice, bob = make_user(), make_user()
    hers, his = make_workspace(alice), make_workspace(bob)
    made = make_rule(owner=alice, actor=alice, name="mine", kinds=[K.INCIDENT, K.SPEND_RATE, K.SANDBOX_UNHEALTHY])
    signalled(E.BEGAN, ["incident:1"], workspace=hers)
    signalled(E.BEGAN, ["incident:2"], workspace=his)
    signalled(E.BEGAN, ["node:a"], kind=K.SANDBOX_UNHEALTHY.value)
    signalled(E.BEGAN, [f"spending:{bob.pk}"], kind=K.SPEND_RATE.value, user=bob)
    signalled(E.BEGAN, [f"spending:{alice.pk}"], kind=K.SPEND_RATE.value, user=alice)
    digest()
    assert set(made.alerts.values_list("group_key", flat=True)) == {"incident:1", f"spending:{alice.pk}"}
    assert set(made.alerts.values_list("user", flat=True)) == {alice.pk}
    add_member(his, alice, Role.VIEWER)
    signalled(E.BEGAN, ["incident:3"], workspace=his)
    digest()
    assert made.alerts.filter(group_key="incident:3", workspace=his).exists()
    User.objects.filter(pk=alice.pk).update(is_active=False)
    signalled(E.BEGAN, ["incident:4"], workspace=hers)
    digest()
    assert not made.alerts.filter(group_key="incident:4").exists(), "who may not sign in is told nothing"


def test_who_leaves_a_workspace_sees_and_is_told_nothing_more_of_it() -> None:
    alice, bob = make_user(), make_user()
    his, other = make_workspace(bob), make_workspace(bob)
    for place in (his, other):
        add_member(place, alice, Role.VIEWER)
    there = Endpoint.objects.create(
        name="hers", kind=EndpointKind.WEBHOOK.value, address="https://a.example/x", owner=alice, created_by=alice
    )
    each = make_rule(owner=alice, actor=alice, name="each", kinds=[K.INCIDENT], endpoints=[there])
    group = make_rule(
        owner=alice, actor=alice, name="all", kinds=[K.INCIDENT], endpoints=[there], group_by=GroupBy.RULE
    )
    signalled(E.BEGAN, ["incident:1"], workspace=his)
    signalled(E.BEGAN, ["incident:2"], workspace=other)
    digest()
    assert visible_alerts(alice).count() == 3
    told = there.deliveries.count()
    assert told == 3
    his.memberships.filter(user=alice).delete()
    assert not visible_alerts(alice).filter(workspace=his).exists()
    signalled(E.WORSE, ["incident:1"], workspace=his, words="Kestrel is worse")
    signalled(E.ENDED, ["incident:2"], workspace=other, words="The other one has ended")
    digest()
    assert there.deliveries.count() == told + 1
    signalled(E.ENDED, ["incident:1"], workspace=his, words="Kestrel has ended")  # the last one of the group
    digest()
    assert set(each.alerts.values_list("state", flat=True)) == {S.RESOLVED.value}
    assert there.deliveries.count() == told + 2
    later(700)
    due()
    said = [str(body) for body in there.deliveries.values_list("body", flat=True)]
    assert not any("Kestrel" in text for text in said)
    assert any("The other one" in text for text in said)
    assert group.alerts.get().changes.filter(words__contains="Kestrel").count() == 0
    add_member(his, alice, Role.VIEWER)
    assert visible_alerts(alice).filter(workspace=his).exists()


def test_one_person_has_a_limited_number_of_rules(monkeypatch: pytest.MonkeyPatch, staff: User) -> None:
    monkeypatch.setattr(alert_rules, "MOST_OF_ONE_OWNER", 2)
    alice = make_user()
    first = make_rule(owner=alice, actor=alice, name="1", kinds=[K.INCIDENT])
    make_rule(owner=alice, actor=alice, name="2", kinds=[K.INCIDENT])
    with pytest.raises(Refused, match="2 rules already"):
        make_rule(owner=alice, actor=staff, name="3", kinds=[K.INCIDENT])
    make_rule(owner=None, actor=staff, name="the site has its own", kinds=[K.INCIDENT])
    retire_rule(first.pk, actor=alice, reason="no need")
    make_rule(owner=alice, actor=alice, name="3", kinds=[K.INCIDENT])
