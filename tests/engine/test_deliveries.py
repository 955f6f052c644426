"""How a delivery lives: tried again, in order, given up, sent again; and what becomes of an endpoint that fails."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.utils import timezone

from tests.harness import courier_runs_once, make_user
from tests.receiver import Receiver
from tests.sending import Mailroom
from workspaces.actions import deliveries, sendings
from workspaces.actions.endpoints import disable_endpoint, remove_endpoint
from workspaces.actions.errors import Refused
from workspaces.actions.sendings import Result
from workspaces.domain.alerts import AlertKind
from workspaces.domain.endpoints import AttemptOutcome as Out
from workspaces.domain.endpoints import DeliveryState as S
from workspaces.domain.endpoints import EndpointState
from workspaces.domain.webhooks import MessageType
from workspaces.models import ActionLink, AlertSignal, AuditEntry, Delivery, DeliveryAttempt, Endpoint, User

pytestmark = pytest.mark.django_db
OK = Result(Out.DELIVERED, status=200)
BAD = Result(Out.REFUSED, status=500, error="HTTP 500")


@pytest.fixture(scope="module")
def receiver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Receiver]:
    with Receiver(tmp_path_factory.mktemp("deliveries")) as made:
        yield made


@pytest.fixture
def room(receiver: Receiver, settings: Any) -> Mailroom:
    settings.WEBHOOK_PRIVATE = ["127.0.0.0/8"]
    return Mailroom(receiver)


def until(delivery: Delivery) -> float:
    """Seconds to its next try."""
    delivery.refresh_from_db()
    return (delivery.next_at - timezone.now()).total_seconds()


def test_what_fails_is_tried_again_later_with_the_same_id_until_it_arrives(room: Mailroom) -> None:
    endpoint = room.endpoint("shaky")
    room.receiver.behave("shaky", status=500, body="out of <b>order</b>")
    (made,) = room.tell(room.alert(), [endpoint])
    courier_runs_once()
    assert 2 < until(made) <= 6.5
    assert made.error == "HTTP 500"
    courier_runs_once(deliveries_fall_due=True)
    assert 10 < until(made) <= 25
    room.receiver.behave("shaky")
    courier_runs_once(deliveries_fall_due=True)
    made.refresh_from_db()
    assert (made.state, made.error, made.attempts_made) == (S.DELIVERED.value, "", 3)
    tries = made.attempts.order_by("number")
    assert [(one.number, one.outcome, one.status) for one in tries] == [
        (1, Out.REFUSED.value, 500),
        (2, Out.REFUSED.value, 500),
        (3, Out.DELIVERED.value, 200),
    ]
    assert tries[0].response_body == "out of <b>order</b>"
    assert {one.id for one in room.receiver.refused("shaky")} == {made.message_id}
    endpoint.refresh_from_db()
    assert (endpoint.failures, endpoint.failing_since) == (0, None)


def test_nothing_of_an_alert_goes_before_what_came_earlier_and_other_alerts_do_not_wait(room: Mailroom) -> None:
    endpoint = room.endpoint("ordered")
    alert, other = room.alert(), room.alert()
    (first,) = room.tell(alert, [endpoint])
    (second,) = room.tell(alert, [endpoint], MessageType.RESOLVED)
    (elsewhere,) = room.tell(other, [endpoint])
    taken = sendings.claim(10)
    assert {one.delivery for one in taken} == {first.pk, elsewhere.pk}
    assert sendings.claim(10) == []
    by_id = {one.delivery: one for one in taken}
    sendings.finished(by_id[first.pk], BAD)
    sendings.finished(by_id[elsewhere.pk], OK)
    assert until(second) == pytest.approx(until(first), abs=0.5), "it waits with the one before it"
    courier_runs_once(deliveries_fall_due=True)
    assert [one.body["type"] for one in room.receiver.accepted("ordered")] == ["alert.opened.v1", "alert.resolved.v1"]


def test_at_most_four_of_an_endpoint_are_in_the_air_one_while_it_fails_and_endpoints_take_turns(room: Mailroom) -> None:
    busy, calm = room.endpoint("busy"), room.endpoint("calm")
    for _ in range(6):
        room.tell(room.alert(), [busy])
    room.tell(room.alert(), [calm])
    assert [one.endpoint for one in sendings.claim(2)].count(calm.pk) == 1, "its one goes before the other's second"
    flying = sendings.claim(10)
    assert [one.endpoint for one in flying] == [busy.pk] * 3
    sendings.finished(flying[0], BAD)
    assert sendings.claim(10) == []


def test_one_persons_many_slow_endpoints_leave_room_for_others(room: Mailroom, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sendings, "OF_ONE_OWNER", 3)
    ann = make_user()
    hers = [room.endpoint(f"slow{number}", owner=ann) for number in range(4)]
    for endpoint in hers:
        room.tell(room.alert(), [endpoint])
        room.tell(room.alert(), [endpoint])
    flying = sendings.claim(8)
    assert [one.owner for one in flying] == [ann.pk] * 3
    assert sendings.claim(8, flying={ann.pk: 3}) == []
    bens = room.endpoint("quick", owner=make_user())
    room.tell(room.alert(), [bens])
    room.tell(room.alert(), [sites := room.endpoint("sites")])
    assert {one.endpoint for one in sendings.claim(2, flying={ann.pk: 3})} == {bens.pk, sites.pk}
    assert [one.owner for one in sendings.claim(8, flying={ann.pk: 1})] == [ann.pk] * 2


def test_who_may_not_sign_in_any_more_is_sent_nothing_that_still_waits(room: Mailroom) -> None:
    ann = make_user()
    (made,) = room.tell(room.alert(), [room.endpoint("left", owner=ann)])
    User.objects.filter(pk=ann.pk).update(is_active=False)
    courier_runs_once()
    made.refresh_from_db()
    assert (made.state, made.attempts.get().outcome) == (S.PENDING.value, Out.FAULT.value)
    assert room.receiver.accepted("left") == []
    User.objects.filter(pk=ann.pk).update(is_active=True)
    courier_runs_once(deliveries_fall_due=True)
    assert len(room.receiver.accepted("left")) == 1


@pytest.mark.django_db(transaction=True)
def test_what_is_queued_while_its_endpoint_is_switched_off_is_not_left_waiting(room: Mailroom) -> None:
    off, gone = room.endpoint("off"), room.endpoint("gone")
    queued, ended = threading.Event(), threading.Event()

    def queue() -> None:
        try:
            with transaction.atomic():
                room.tell(room.alert(), [off, gone])
                queued.set()
                assert ended.wait(60)
        finally:
            connection.close()

    digester = threading.Thread(target=queue)
    digester.start()
    try:
        assert queued.wait(60)
        disable_endpoint(off.pk, actor=room.boss, reason="tidying")
        remove_endpoint(gone.pk, actor=room.boss, reason="tidying")
    finally:
        ended.set()
        digester.join()
    courier_runs_once()
    found = dict(Delivery.objects.values_list("endpoint__name", "state"))
    assert found == {"off": S.FAILED.value, "gone": S.CANCELLED.value}
    assert room.receiver.accepted("off") == []


def test_a_worker_that_dies_leaves_a_try_of_unknown_end_and_the_message_is_sent_again(room: Mailroom) -> None:
    endpoint = room.endpoint("widowed")
    (made,) = room.tell(room.alert(), [endpoint])
    (lost,) = sendings.claim(1)
    assert sendings.claim(1) == []
    Delivery.objects.update(leased_until=timezone.now())
    (mine,) = sendings.claim(1)
    assert (mine.delivery, mine.message_id) == (lost.delivery, lost.message_id)
    assert sendings.finished(lost, BAD) is S.PENDING, "who lost it decides nothing any more"
    made.refresh_from_db()
    assert made.leased_until is not None
    assert sendings.finished(mine, OK) is S.DELIVERED
    assert list(made.attempts.order_by("number").values_list("number", "outcome")) == [(1, "refused"), (2, "delivered")]


def test_a_worker_that_ends_gives_back_what_it_holds(room: Mailroom) -> None:
    (made,) = room.tell(room.alert(), [room.endpoint("closing")])
    sendings.put_back(sendings.claim(1), "told to end")
    (attempt,) = made.attempts.all()
    assert (attempt.outcome, attempt.error) == (Out.BEGUN.value, "told to end")
    assert len(sendings.claim(1)) == 1


def test_one_that_is_gone_is_switched_off_at_once_and_told_of(room: Mailroom) -> None:
    endpoint = room.endpoint("gone", owner=make_user())
    room.receiver.behave("gone", status=410)
    made = [*room.tell(room.alert(), [endpoint]), *room.tell(room.alert(), [endpoint])]
    (first,) = sendings.claim(1)
    sendings.finished(first, Result(Out.GONE, status=410, error="HTTP 410"))
    endpoint.refresh_from_db()
    assert endpoint.state == EndpointState.FAILED.value
    assert "410" in endpoint.state_reason
    for one in made:
        one.refresh_from_db()
        assert one.state == S.FAILED.value
    signal = AlertSignal.objects.get(kind=AlertKind.ENDPOINT_DISABLED.value)
    assert (signal.subject, signal.user_id) == (f"endpoint:{endpoint.pk}", endpoint.owner_id)
    assert sendings.claim(10) == []
    assert room.tell(room.alert(), [endpoint]) == [], "nothing more is queued"


def test_one_that_fails_for_a_day_is_switched_off(room: Mailroom) -> None:
    endpoint = room.endpoint("dead")
    (made,) = room.tell(room.alert(), [endpoint])
    a_day_ago = timezone.now() - timedelta(hours=24)
    Endpoint.objects.filter(pk=endpoint.pk).update(failing_since=a_day_ago + timedelta(minutes=16), failures=9)
    sendings.finished(sendings.claim(1)[0], BAD)
    endpoint.refresh_from_db()
    assert endpoint.state == EndpointState.ENABLED.value
    Endpoint.objects.filter(pk=endpoint.pk).update(failing_since=a_day_ago)
    courier_runs_once(deliveries_fall_due=True)  # it answers now: that saves it
    endpoint.refresh_from_db()
    assert (endpoint.state, endpoint.failures) == (EndpointState.ENABLED.value, 0)

    (made,) = room.tell(room.alert(), [endpoint])
    Endpoint.objects.filter(pk=endpoint.pk).update(failing_since=a_day_ago, failures=9)
    sendings.finished(sendings.claim(1)[0], BAD)
    endpoint.refresh_from_db()
    made.refresh_from_db()
    assert (endpoint.state, made.state) == (EndpointState.FAILED.value, S.FAILED.value)
    assert "HTTP 500" in endpoint.state_reason


def test_a_message_is_given_up_after_its_day_and_the_next_of_its_alert_goes_on(room: Mailroom) -> None:
    endpoint = room.endpoint("picky")
    alert = room.alert()
    (made,) = room.tell(alert, [endpoint])
    (after,) = room.tell(alert, [endpoint], MessageType.RESOLVED)
    Delivery.objects.filter(pk=made.pk).update(expires_at=timezone.now())
    sendings.finished(sendings.claim(1)[0], BAD)
    made.refresh_from_db()
    assert (made.state, made.error) == (S.FAILED.value, "Given up after 24 hours. HTTP 500")
    assert [one.delivery for one in sendings.claim(9)] == [after.pk]


def test_who_has_too_much_is_left_alone_as_long_as_asked(room: Mailroom) -> None:
    endpoint = room.endpoint("full")
    room.receiver.behave("full", status=429, headers={"Retry-After": "300"})
    (made,) = room.tell(room.alert(), [endpoint])
    courier_runs_once()
    assert until(made) >= 299
    room.tell(room.alert(), [endpoint])
    assert courier_runs_once() == []
    endpoint.refresh_from_db()
    assert endpoint.held_until is not None


def test_an_answer_after_a_long_silence_makes_due_what_waits(room: Mailroom) -> None:
    endpoint = room.endpoint("back")
    waiting = [room.tell(room.alert(), [endpoint])[0] for _ in range(3)]
    Delivery.objects.filter(pk__in=[one.pk for one in waiting[1:]]).update(next_at=timezone.now() + timedelta(hours=4))
    Endpoint.objects.filter(pk=endpoint.pk).update(failing_since=timezone.now() - timedelta(hours=3), failures=7)
    courier_runs_once()
    assert len(room.receiver.accepted("back")) == 3


def test_a_message_that_is_refused_for_itself_is_not_tried_at_each_success_of_others(room: Mailroom) -> None:
    endpoint = room.endpoint("choosy")
    (bad,) = room.tell(room.alert(), [endpoint])
    sendings.finished(sendings.claim(1)[0], BAD)
    room.tell(room.alert(), [endpoint])
    sendings.finished(sendings.claim(1)[0], OK)
    assert until(bad) > 1


def test_what_was_given_up_or_has_arrived_is_sent_again_by_hand(room: Mailroom) -> None:
    endpoint = room.endpoint("again")
    alert = room.alert()
    (first,) = room.tell(alert, [endpoint])
    (second,) = room.tell(alert, [endpoint], MessageType.RESOLVED)
    courier_runs_once()
    assert len(room.receiver.accepted("again")) == 2
    deliveries.resend(first, actor=room.boss)
    courier_runs_once()
    assert [one.id for one in room.receiver.accepted("again")] == [
        first.message_id,
        second.message_id,
        first.message_id,
    ]
    assert (first.resent, AuditEntry.objects.get(action="delivery.resend").data["delivery"]) == (1, first.pk)

    Delivery.objects.update(state=S.FAILED.value)
    assert deliveries.resend_failed(endpoint, actor=room.boss) == 2
    courier_runs_once()
    assert [one.id for one in room.receiver.accepted("again")][3:] == [first.message_id, second.message_id]
    assert list(first.attempts.order_by("number").values_list("number", flat=True)) == [1, 2, 3]
    Endpoint.objects.update(state=EndpointState.FAILED.value)
    with pytest.raises(Refused, match="Enable it first"):
        deliveries.resend(first, actor=room.boss)
    with pytest.raises(Refused, match="Enable it first"):
        deliveries.resend_failed(endpoint, actor=room.boss)


def test_what_waits_for_its_next_try_is_sent_now_by_hand_and_not_while_it_is_sent(room: Mailroom) -> None:
    endpoint = room.endpoint("waiting")
    (made,) = room.tell(room.alert(), [endpoint])
    (flying,) = sendings.claim(1)
    with pytest.raises(Refused, match="at this moment"):
        deliveries.resend(made, actor=room.boss)
    sendings.finished(flying, BAD)
    deliveries.resend(made, actor=room.boss)
    assert len(sendings.claim(1)) == 1


def test_a_test_is_tried_once_counts_for_nothing_and_reaches_what_is_switched_off(room: Mailroom) -> None:
    endpoint = room.endpoint("tried", state=EndpointState.FAILED.value)
    room.receiver.behave("tried", status=500)
    made = deliveries.send_test(endpoint, actor=room.boss)
    with pytest.raises(Refused, match="under way"):
        deliveries.send_test(endpoint, actor=room.boss)
    courier_runs_once()
    made.refresh_from_db()
    endpoint.refresh_from_db()
    assert (made.state, made.error, endpoint.failures) == (S.FAILED.value, "HTTP 500", 0)
    room.receiver.behave("tried")
    made = deliveries.send_test(endpoint, actor=room.boss)
    courier_runs_once()
    made.refresh_from_db()
    endpoint.refresh_from_db()
    assert (made.state, endpoint.state) == (S.DELIVERED.value, EndpointState.FAILED.value)
    assert room.receiver.accepted("tried")[0].body["type"] == "endpoint.test.v1"


def test_what_was_sent_is_kept_for_ninety_days_and_the_alerts_history_longer(room: Mailroom) -> None:
    endpoint, alert = room.endpoint("kept"), room.alert()
    old, new = room.tell(alert, [endpoint])[0], room.tell(alert, [endpoint], MessageType.RESOLVED)[0]
    assert ActionLink.objects.filter(delivery=old).exists()
    courier_runs_once()
    long_ago = timezone.now() - deliveries.KEPT - timedelta(hours=1)
    Delivery.objects.filter(pk=old.pk).update(finished_at=long_ago)
    assert [deliveries.forget_old(), deliveries.forget_old()] == [1, 0]
    assert not Delivery.objects.filter(pk=old.pk).exists()
    assert not DeliveryAttempt.objects.filter(delivery=old.pk).exists()
    assert not ActionLink.objects.filter(delivery=old.pk).exists()
    assert Delivery.objects.filter(pk=new.pk).exists()
    assert alert.changes.count() == 2


def test_what_waits_for_a_mailbox_that_nobody_confirms_is_given_up_after_its_day(room: Mailroom) -> None:
    (made,) = room.tell(room.alert(), [endpoint := room.endpoint("unconfirmed")])
    Endpoint.objects.filter(pk=endpoint.pk).update(state=EndpointState.UNCONFIRMED.value)
    assert sendings.give_up_stranded() == 0
    Delivery.objects.filter(pk=made.pk).update(expires_at=timezone.now() - timedelta(seconds=1))
    assert sendings.give_up_stranded() == 1
    made.refresh_from_db()
    assert made.state == S.FAILED.value
    assert "nobody had confirmed" in made.error


def test_a_secret_that_cannot_be_opened_is_our_fault_not_the_endpoints(room: Mailroom) -> None:
    endpoint = room.endpoint("sealed")
    endpoint.secrets.update(sealed=b"of another installation")
    (made,) = room.tell(room.alert(), [endpoint])
    courier_runs_once()
    made.refresh_from_db()
    endpoint.refresh_from_db()
    assert made.state == S.PENDING.value
    assert "encryption key" in made.error
    assert endpoint.failures == 0
    assert DeliveryAttempt.objects.get(delivery=made).outcome == Out.FAULT.value
