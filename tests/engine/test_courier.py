"""The courier against real receivers: what is due goes out, in order, and again when it must."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from tests.domain.test_webhooks import CLOSED
from tests.harness import courier_runs_once, eventually
from tests.receiver import Receiver
from tests.sending import Mailroom
from tests.tools.http_server import RawServer
from tests.web.people import make_desk
from tests.web.troubled import looped, reported
from workspaces.actions import deliveries
from workspaces.actions.incidents import resolve_incident
from workspaces.domain.endpoints import AttemptOutcome as Out
from workspaces.domain.endpoints import DeliveryState as S
from workspaces.domain.webhooks import MessageType
from workspaces.engine.courier import Courier
from workspaces.models import AlertRule, Delivery, Endpoint
from workspaces.queries.integrity import verify
from workspaces.queries.integrity.deliveries import RULES

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(scope="module")
def receiver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Receiver]:
    with Receiver(tmp_path_factory.mktemp("receiver")) as made:
        yield made


@pytest.fixture
def room(receiver: Receiver, settings: Any) -> Mailroom:
    settings.WEBHOOK_PRIVATE = ["127.0.0.0/8"]
    return Mailroom(receiver)


def test_a_test_message_arrives_and_verifies(room: Mailroom) -> None:
    endpoint = room.endpoint("first")
    made = deliveries.send_test(endpoint, actor=room.boss)
    courier_runs_once()
    made.refresh_from_db()
    (arrived,) = room.receiver.accepted("first")
    assert made.state == S.DELIVERED.value
    assert arrived.id == made.message_id
    assert arrived.body["type"] == "endpoint.test.v1"
    (attempt,) = made.attempts.all()
    assert (attempt.outcome, attempt.status, attempt.address) == (Out.DELIVERED.value, 200, "127.0.0.1")
    assert attempt.request_headers["webhook-signature"] == "v1,…"


@pytest.mark.parametrize("back_s", [0.0, 0.05])
def test_a_commit_is_heard_of_without_a_look_at_the_clock(room: Mailroom, back_s: float) -> None:
    endpoint = room.endpoint("heard")
    looks: list[None] = []

    def look() -> int:
        looks.append(None)
        return 0

    courier = Courier(look=look, poll_s=3_600)
    courier.start(back_s=back_s)
    try:
        eventually(lambda: len(looks) >= 2, within_s=30)  # at its start, and as soon as it listens
        room.tell(room.alert(), [endpoint])
        eventually(lambda: room.receiver.accepted("heard"), within_s=30)
    finally:
        courier.end()
        assert courier.join()


def test_the_thread_sends_what_was_queued_and_ends_when_told(room: Mailroom) -> None:
    endpoint = room.endpoint("threaded")
    alert = room.alert()
    room.tell(alert, [endpoint])
    courier = Courier(look=lambda: 0)
    courier.start()
    try:
        eventually(lambda: room.receiver.accepted("threaded"), within_s=30)
        (made,) = room.tell(alert, [endpoint], MessageType.RESOLVED)
        courier.nudge()
        eventually(lambda: Delivery.objects.filter(pk=made.pk, state=S.DELIVERED.value).exists(), within_s=30)
    finally:
        courier.end()
        assert courier.join()
    assert [one.body["type"] for one in room.receiver.accepted("threaded")] == ["alert.opened.v1", "alert.resolved.v1"]
    assert not courier.running


def hanging() -> RawServer:
    def say_nothing(connection: socket.socket, _: bytes) -> None:
        connection.recv(1)

    return RawServer(x=say_nothing)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A courier that is told to end does not wait long for what is in the air."""
    monkeypatch.setattr("workspaces.engine.courier.ENDING_S", 0.5)


def test_a_healthy_endpoint_does_not_wait_for_many_that_hang(
    room: Mailroom, impatient: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More than the courier has room for, several messages for each, and none of them ever gives up here."""
    monkeypatch.setattr("workspaces.engine.transports.http.TOTAL_S", 600.0)
    monkeypatch.setattr("workspaces.engine.courier.TOTAL_S", 600.0)
    monkeypatch.setattr("workspaces.actions.sendings.LEASE", timedelta(hours=1))
    server = hanging()
    alerts = [room.alert() for _ in range(3)]
    stuck = [room.endpoint(f"stuck{n}", url=server.url("x")) for n in range(24)]
    for alert in alerts:
        room.tell(alert, stuck)
    Endpoint.objects.update(failures=3)
    healthy = room.endpoint("healthy")
    courier = Courier(look=lambda: 0, in_the_air=16, failing_in_the_air=8)
    courier.start()
    try:
        eventually(lambda: len(server.seen) >= 8, within_s=30)
        threads = threading.active_count()
        for alert in alerts:
            room.tell(alert, [healthy])
        courier.nudge()
        eventually(lambda: len(room.receiver.accepted("healthy")) == 3, within_s=60)
        assert len(server.seen) == 8, "those that fail take half of the room, each one place of it"
        assert threading.active_count() <= threads + 12, "no thread waits for a receiver"
    finally:
        courier.end()
        assert courier.join()
        server.close()


def backends() -> set[int]:
    """Of the database's server, by their process ids."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pid FROM pg_stat_activity WHERE datname = current_database()")
        return {pid for (pid,) in cursor.fetchall()}


def test_it_goes_on_when_the_database_is_back(room: Mailroom) -> None:
    endpoint = room.endpoint("returning")
    others = backends()
    courier = Courier(look=lambda: 0, poll_s=0.1)
    courier.start()
    try:
        room.tell(room.alert(), [endpoint])
        eventually(lambda: len(room.receiver.accepted("returning")) == 1, within_s=30)
        with connection.cursor() as cursor:
            for pid in backends() - others:
                cursor.execute("SELECT pg_terminate_backend(%s)", [pid])
        room.tell(room.alert(), [endpoint])
        eventually(lambda: len(room.receiver.accepted("returning")) == 2, within_s=30)
        eventually(lambda: not Delivery.objects.filter(state=S.PENDING.value).exists(), within_s=30)
    finally:
        courier.end()
        assert courier.join()


def test_one_that_is_told_to_end_waits_for_what_is_in_the_air_and_gives_back_the_rest(
    room: Mailroom, impatient: None
) -> None:
    server = hanging()
    (made,) = room.tell(room.alert(), [room.endpoint("silent", url=server.url("x"))])
    courier = Courier(look=lambda: 0)
    courier.start()
    eventually(lambda: server.seen, within_s=30)
    courier.end()
    assert courier.join()
    made.refresh_from_db()
    assert (made.state, made.leased_until) == (S.PENDING.value, None), "another one may send it at once"
    (attempt,) = made.attempts.all()
    assert attempt.outcome == Out.BEGUN.value
    assert "not known" in attempt.error
    server.close()


def test_two_couriers_send_each_message_once_and_in_order(room: Mailroom) -> None:
    endpoints = [room.endpoint(f"both{n}") for n in range(3)]
    alerts = [room.alert() for _ in range(4)]
    for type_ in (MessageType.OPENED, MessageType.UPDATED, MessageType.RESOLVED):
        for alert in alerts:
            room.tell(alert, endpoints, type_)
    couriers = [Courier(look=lambda: 0, poll_s=0.05) for _ in range(2)]
    for courier in couriers:
        courier.start()
    try:
        eventually(lambda: not Delivery.objects.filter(state=S.PENDING.value).exists(), within_s=60)
    finally:
        for courier in couriers:
            courier.end()
            assert courier.join()
    for endpoint in endpoints:
        arrived = room.receiver.accepted(endpoint.name)
        assert len(arrived) == len({one.id for one in arrived}) == 12
        for alert in alerts:
            numbers = [
                one.body["data"]["change"]["number"] for one in arrived if one.body["data"]["alert"]["id"] == alert.pk
            ]
            assert numbers == [1, 2, 3]
    assert broken_rules() == {}


def broken_rules() -> dict[str, list[str]]:
    """Of sending."""
    names = {rule.name for rule in RULES}
    return {one.rule.name: [row.what for row in one.rows] for one in verify() if one.rule.name in names and one.broken}


def test_what_an_agent_runs_into_reaches_a_receiver_with_its_evidence(room: Mailroom) -> None:
    """The whole way: an incident's signal, a rule, an alert, a message; and its end."""
    rule = AlertRule.objects.get(builtin="agent")
    rule.endpoints.add(room.endpoint("whole"))
    incident = reported(looped(make_desk()))
    courier_runs_once()
    (opened,) = room.receiver.accepted("whole")
    assert opened.body["type"] == "alert.opened.v1"
    evidence = {(one["type"], one["id"]) for one in opened.body["data"]["evidence"]}
    assert ("incident", incident.pk) in evidence
    assert ("task", incident.task_id) in evidence
    assert opened.body["data"]["links"]["acknowledge"].startswith("http://localhost:")
    resolve_incident(incident.pk, actor=room.boss, reason="mended")
    courier_runs_once()
    _, resolved = room.receiver.accepted("whole")
    assert resolved.body["type"] == "alert.resolved.v1"
    CLOSED[resolved.body["type"]].validate(resolved.body)
    CLOSED[opened.body["type"]].validate(opened.body)
    assert "/act/" not in str(list(Delivery.objects.values_list("body", flat=True)))
