"""What is watched becomes alerts: it begins, it ends, within a rule's scope, and of nobody else's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from django.db import connection
from django.db.models.functions import Now
from django.utils import timezone

from tests.harness import make_user, quota_frees, scripted_task, work
from workspaces.actions import alert_watches
from workspaces.domain.alerts import AlertKind, RuleScope
from workspaces.domain.incidents import Severity
from workspaces.domain.states import ProcessRole, UsagePurpose
from workspaces.domain.watched import PACE_S
from workspaces.models import (
    AlertMember,
    AlertRule,
    AlertSignal,
    AlertWatch,
    Heartbeat,
    Node,
    QuotaClaim,
    QuotaMinute,
    QuotaPool,
    Task,
    UsageRollup,
    User,
)
from workspaces.queries import alert_watches as read

pytestmark = pytest.mark.django_db
K = AlertKind
FINISH = "replies: [{calls: [{name: finish, arguments: {summary: done}}]}]"
LIMITED = "replies: [{fault: {kind: rate_limit, retry_after_s: 40}}]"


def rule_for(kind: AlertKind, owner: User | None = None, **fields: Any) -> AlertRule:
    return AlertRule.objects.create(name=f"{kind.value}", kinds=[kind.value], owner=owner, **fields)


def look(*, broker: bool = True, watched_s: float = 10**6) -> None:
    """Every condition, as if somebody had watched for so long."""
    if not AlertWatch.objects.exists():
        alert_watches.look(broker_answers=lambda: broker)
    AlertWatch.objects.exclude(kind="").delete()
    AlertWatch.objects.update(since=ago(watched_s))
    alert_watches.look(broker_answers=lambda: broker)
    assert [watch.error for watch in AlertWatch.objects.all() if watch.error] == []


def ago(seconds: float) -> Any:
    return Now() - timedelta(seconds=seconds)


def goes_on(rule: AlertRule) -> set[str]:
    members = AlertMember.objects.filter(alert__rule=rule, ended_at=None)
    return set(members.values_list("subject", flat=True))


@pytest.fixture
def strangers() -> Iterator[Callable[[AlertKind], None]]:
    """Rules of somebody who sees nothing of it all; none of them may hold anything at the end."""
    somebody = make_user()
    made: list[AlertRule] = []
    yield lambda kind: made.append(rule_for(kind, somebody))
    assert made
    assert [rule for rule in made if AlertMember.objects.filter(alert__rule=rule).exists()] == []


def test_a_task_without_events_is_stuck_until_something_happens(strangers: Callable[[AlertKind], None]) -> None:
    task, other, asks = scripted_task(FINISH), scripted_task(FINISH), scripted_task(FINISH)
    owner = task.workspace.owner
    strangers(K.TASK_STUCK)
    sites, owns = rule_for(K.TASK_STUCK), rule_for(K.TASK_STUCK, owner)
    scoped = rule_for(K.TASK_STUCK, scope=RuleScope.WORKSPACE, workspace=other.workspace)
    patient = rule_for(K.TASK_STUCK, params={"stuck_minutes": 45})
    off = rule_for(K.TASK_STUCK, enabled=False)
    Task.objects.update(status_since=ago(2_000), last_event_at=ago(2_000))
    waits = {"waiting_for": "operator", "waiting_reason": "x", "waiting_since": Now(), "waiting_until": ago(2_000)}
    Task.objects.filter(pk=asks.pk).update(status="waiting", **waits)
    look(watched_s=1_700)
    assert goes_on(sites) == set(), "nobody has watched for half an hour"
    look()
    assert goes_on(sites) == {f"task:{task.pk}", f"task:{other.pk}"}
    assert goes_on(owns) == {f"task:{task.pk}"}
    assert goes_on(scoped) == {f"task:{other.pk}"}
    assert goes_on(patient) == goes_on(off) == set()
    Task.objects.filter(pk=task.pk).update(last_event_at=Now())
    AlertRule.objects.filter(pk=scoped.pk).update(kinds=[K.TASK_FAILED.value])
    look()
    assert goes_on(sites) == {f"task:{other.pk}"}
    assert goes_on(owns) == set()
    assert goes_on(scoped) == set(), "what a rule watches no longer, it does not keep open"


@pytest.mark.django_db(transaction=True)
def test_a_pool_without_room_is_one_trouble_of_all_who_draw_on_it(strangers: Callable[[AlertKind], None]) -> None:
    task = work(scripted_task(LIMITED))
    pool = QuotaClaim.objects.get(task=task).pool
    assert task.waiting_for == "quota"
    assert pool.blocked_until is not None
    strangers(K.QUOTA_EXHAUSTED)
    kind, fast = K.QUOTA_EXHAUSTED, {"exhausted_seconds": 10}
    sites, owns = rule_for(kind, params=fast), rule_for(kind, task.workspace.owner, params=fast)
    scoped = rule_for(kind, scope=RuleScope.WORKSPACE, workspace=task.workspace, params=fast)
    elsewhere = rule_for(kind, scope=RuleScope.USER, user=make_user(), params=fast)
    patient, grave = rule_for(kind), rule_for(kind, min_severity=Severity.ERROR, params=fast)
    look()
    subject = f"pool:{pool.pk}"
    assert [goes_on(rule) for rule in (sites, owns, scoped)] == [{subject}] * 3
    assert AlertMember.objects.get(alert__rule=scoped).alert.workspace == task.workspace
    assert [goes_on(rule) for rule in (elsewhere, patient, grave)] == [set()] * 3
    QuotaPool.objects.filter(pk=pool.pk).update(circuit="open")
    look()
    assert AlertMember.objects.get(alert__rule=sites).severity == Severity.ERROR, "it got worse"
    assert goes_on(grave) == goes_on(patient) == {subject}
    QuotaPool.objects.filter(pk=pool.pk).update(circuit="closed")
    look()
    assert goes_on(grave) == {subject}, "it goes on, if less gravely"
    quota_frees()
    QuotaPool.objects.filter(pk=pool.pk).update(blocked_until=None)
    QuotaClaim.objects.filter(pool=pool).update(state="idle")
    look()
    assert [goes_on(rule) for rule in (sites, owns, scoped, grave)] == [set()] * 4


@pytest.mark.django_db(transaction=True)
def test_a_call_that_waits_long_enough_for_room_exhausts_a_pool() -> None:
    task = work(scripted_task(LIMITED))
    rule = rule_for(K.QUOTA_EXHAUSTED)
    QuotaPool.objects.update(blocked_until=None)
    waiting = QuotaClaim.objects.filter(task=task, state="waiting")
    assert waiting.update(queued_at=ago(50), not_before=None) == 1
    look()
    assert goes_on(rule) == set()
    waiting.update(queued_at=ago(70))
    look()
    assert goes_on(rule) == {f"pool:{waiting.get().pool_id}"}
    waiting.update(not_before=Now() + timedelta(seconds=60))
    look()
    assert goes_on(rule) == set(), "it waits for its own next try, not for room"


@pytest.mark.django_db(transaction=True)
def test_a_day_of_tokens_is_predicted_to_be_used_up(
    strangers: Callable[[AlertKind], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    task = work(scripted_task(LIMITED))
    pool = QuotaClaim.objects.get(task=task).pool
    noon = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0)
    strangers(K.QUOTA_PREDICTED)
    sites, owns = rule_for(K.QUOTA_PREDICTED), rule_for(K.QUOTA_PREDICTED, task.workspace.owner)
    state = pool.state | {"d": [int(noon.timestamp() // 86_400), 950_000]}
    QuotaPool.objects.filter(pk=pool.pk).update(state=state, limits={"tokens_per_day": 1_000_000})
    QuotaMinute.objects.filter(pool=pool).delete()
    for minute in range(1, 6):
        at = noon - timedelta(minutes=minute)
        QuotaMinute.objects.create(pool=pool, minute=at, input_tokens=1_500, output_tokens=500)

    def at(when: datetime) -> None:
        AlertWatch.objects.all().delete()
        monkeypatch.setattr(alert_watches, "_go_on", lambda broker: alert_watches.Moment(when, 0.0, broker))
        alert_watches.look(broker_answers=lambda: True)

    at(noon)
    assert goes_on(sites) == goes_on(owns) == {f"pool-day:{pool.pk}"}
    at(noon + timedelta(minutes=20))
    assert goes_on(sites) == goes_on(owns) == set(), "2,000 a minute were five minutes out of twenty-five"


def test_spending_above_what_is_usual_is_told_to_staff_and_to_whom_it_is_booked(
    strangers: Callable[[AlertKind], None],
) -> None:
    task = scripted_task(FINISH)
    owner = task.workspace.owner
    strangers(K.SPEND_RATE)
    member = make_user()
    task.workspace.memberships.create(user=member, role="viewer")
    sites, owns = rule_for(K.SPEND_RATE), rule_for(K.SPEND_RATE, owner)
    members = rule_for(K.SPEND_RATE, member, scope=RuleScope.WORKSPACE, workspace=task.workspace)
    profile = task.profile_version.profile
    scoped = rule_for(K.SPEND_RATE, scope=RuleScope.PROFILE, profile=profile)
    hour = timezone.now().replace(minute=0, second=0, microsecond=0)

    def spend(before_h: int, usd: float, purpose: UsagePurpose = UsagePurpose.STEP) -> None:
        UsageRollup.objects.create(
            hour=hour - timedelta(hours=before_h),
            user=owner,
            workspace=task.workspace,
            profile=profile if before_h < 20 else None,
            purpose=purpose.value,
            unit="output_tokens",
            records=1,
            quantity=1,
            unpriced_quantity=0,
            cost_usd=usd,
        )

    for before in range(4, 24):
        spend(before, 2.0)
    spend(1, 500, UsagePurpose.STORAGE)
    look()
    assert goes_on(sites) == set(), "storage goes on by itself"
    spend(0, 40)
    look()
    assert goes_on(sites) == goes_on(owns) == goes_on(scoped) == {f"spending:{owner.pk}"}
    assert goes_on(members) == set(), "what another person's hour costs is theirs to know"
    UsageRollup.objects.filter(purpose="step", cost_usd=40).update(cost_usd=3)
    look()
    assert goes_on(sites) == goes_on(owns) == goes_on(scoped) == set()


def beat(role: ProcessRole, seen_ago: float, *, host: str = "h1", lived: float = 1_000) -> Heartbeat:
    return Heartbeat.objects.create(
        key=f"{host}:{role}:{seen_ago}:{lived}",
        role=role.value,
        host=host,
        pid=7,
        started_at=ago(seen_ago + lived),
        seen_at=ago(seen_ago),
    )


def test_silent_workers_and_a_silent_scheduler_are_told_to_the_site_alone(
    strangers: Callable[[AlertKind], None],
) -> None:
    strangers(K.WORKER_UNHEALTHY)
    sites, of_staff = rule_for(K.WORKER_UNHEALTHY), rule_for(K.WORKER_UNHEALTHY, make_user(is_staff=True))
    look(watched_s=10)
    assert goes_on(sites) == set(), "a site that has just started may take a while"
    beat(ProcessRole.WORKER, 200)
    look()
    assert goes_on(sites) == goes_on(of_staff) == {"workers", "worker:h1", "scheduler"}
    beat(ProcessRole.WORKER, 1, lived=2)
    beat(ProcessRole.SCHEDULER, 1)
    look()
    assert goes_on(sites) == goes_on(of_staff) == set()


def test_what_nobody_takes_up_and_a_broker_that_is_away_are_told_to_the_site_alone(
    strangers: Callable[[AlertKind], None],
) -> None:
    strangers(K.QUEUE_UNHEALTHY)
    sites = rule_for(K.QUEUE_UNHEALTHY)
    task = scripted_task(FINISH)
    Task.objects.filter(pk=task.pk).update(status_since=ago(130), last_event_at=ago(130))
    AlertSignal.objects.update(digested_at=Now())
    signal = AlertSignal.objects.create(
        kind=K.TASK_FINISHED.value, edge="happened", subject="x", severity="info", at=ago(130)
    )
    look(broker=False)
    assert goes_on(sites) == {"queue:due", "queue:signals", "queue:broker"}
    Task.objects.filter(pk=task.pk).update(lease_until=Now() + timedelta(seconds=15))
    AlertSignal.objects.filter(pk=signal.pk).update(digested_at=Now())
    look()
    assert goes_on(sites) == set()
    assert read.queue(broker_answers=True).due == 0, "a worker holds it"


def test_a_node_that_does_not_answer_is_told_to_the_site_alone(strangers: Callable[[AlertKind], None]) -> None:
    strangers(K.SANDBOX_UNHEALTHY)
    sites = rule_for(K.SANDBOX_UNHEALTHY)
    node = Node.objects.create(name="n1", looked_at=Now(), failing_since=ago(60), error="no route")
    look()
    assert goes_on(sites) == {"node:n1"}
    Node.objects.filter(pk=node.pk).update(failing_since=None, error="")
    look()
    assert goes_on(sites) == set()


def test_a_trouble_that_a_person_called_resolved_comes_back_only_when_it_was_over() -> None:
    task = scripted_task(FINISH)
    rule = rule_for(K.TASK_STUCK)
    quiet = Task.objects.filter(pk=task.pk)
    quiet.update(status_since=ago(2_000), last_event_at=ago(2_000))
    look()
    alert = AlertMember.objects.get(alert__rule=rule).alert
    rule.alerts.update(state="resolved", resolved_at=Now())
    look()
    alert.refresh_from_db()
    assert alert.state == "resolved"
    quiet.update(last_event_at=Now())
    look()
    quiet.update(last_event_at=ago(2_000))
    look()
    assert rule.alerts.exclude(state="resolved").exists()


# --- how it looks


def test_a_condition_that_cannot_be_read_does_not_stop_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    pools, site = rule_for(K.QUOTA_EXHAUSTED), rule_for(K.WORKER_UNHEALTHY)
    assert next(iter(PACE_S)) is K.QUOTA_EXHAUSTED, "it is read first"
    alert_watches.look(broker_answers=lambda: True)
    AlertWatch.objects.filter(kind="").update(since=ago(1_000))
    AlertWatch.objects.exclude(kind="").update(looked_at=ago(61))

    def broken(**_: object) -> list[Any]:
        raise ValueError("torn")

    with monkeypatch.context() as torn:
        torn.setattr(read, "pressed_pools", broken)
        alert_watches.look(broker_answers=lambda: True)
    row = AlertWatch.objects.get(kind=pools.kinds[0])
    assert row.error == "ValueError: torn"
    assert row.failing_since is not None
    assert goes_on(site) == {"workers", "scheduler"}
    queue = rule_for(K.QUEUE_UNHEALTHY)
    AlertWatch.objects.filter(pk=row.pk).update(failing_since=ago(300))
    AlertWatch.objects.filter(kind=K.QUEUE_UNHEALTHY.value).delete()
    alert_watches.look(broker_answers=lambda: True)
    assert goes_on(queue) == {"queue:watch-quota_exhausted"}, "who would be told nothing is told that"
    AlertWatch.objects.filter(pk=row.pk).update(looked_at=ago(60))
    alert_watches.look(broker_answers=lambda: True)
    row.refresh_from_db()
    assert (row.error, row.failing_since) == ("", None)


def test_each_condition_has_its_own_pace_and_none_is_read_without_a_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    AlertRule.objects.update(enabled=False)
    asked: list[AlertKind] = []
    for kind in PACE_S:
        monkeypatch.setitem(alert_watches._READ, kind, lambda watching, moment, kind=kind: asked.append(kind) or [])
    alert_watches.look(broker_answers=lambda: True)
    assert asked == []
    for kind in PACE_S:
        rule_for(kind)
    AlertWatch.objects.exclude(kind="").update(looked_at=ago(61))
    alert_watches.look(broker_answers=lambda: True)
    assert set(asked) == set(PACE_S)
    asked.clear()
    AlertWatch.objects.exclude(kind="").update(looked_at=ago(20))
    alert_watches.look(broker_answers=lambda: True)
    assert set(asked) == {kind for kind, pace in PACE_S.items() if pace < 20}


def test_a_gap_in_which_nobody_looked_begins_the_watch_anew() -> None:
    alert_watches.look(broker_answers=lambda: True)
    watch = AlertWatch.objects.get(kind="")
    AlertWatch.objects.filter(pk=watch.pk).update(since=ago(500), looked_at=ago(14))
    alert_watches.look(broker_answers=lambda: True)
    watch.refresh_from_db()
    assert watch.looked_at - watch.since > timedelta(seconds=499)
    AlertWatch.objects.filter(pk=watch.pk).update(looked_at=ago(16))
    alert_watches.look(broker_answers=lambda: True)
    watch.refresh_from_db()
    assert watch.since == watch.looked_at


def test_one_process_looks_at_a_time() -> None:
    parameters = {name: value for name, value in connection.get_connection_params().items() if name != "pool"}
    for name in ("context", "cursor_factory", "prepare_threshold"):
        parameters.pop(name, None)
    with psycopg.connect(**parameters, autocommit=True) as other:
        other.execute("SELECT pg_advisory_lock(%s)", [alert_watches._LOOKING])
        alert_watches.look(broker_answers=lambda: True)
        assert not AlertWatch.objects.exists()
        other.execute("SELECT pg_advisory_unlock(%s)", [alert_watches._LOOKING])
    alert_watches.look(broker_answers=lambda: True)
    assert AlertWatch.objects.exists()
