"""A receiver that is written with the official verification library takes what we send, and nothing else."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.urls import resolve
from django.utils import timezone

from tests.domain.test_webhooks import CLOSED
from tests.harness import courier_runs_once
from tests.receiver import Arrival, Receiver
from tests.sending import Mailroom, new_secret
from workspaces.actions import deliveries
from workspaces.domain.endpoints import AttemptOutcome as Out
from workspaces.domain.endpoints import DeliveryState as S
from workspaces.domain.webhooks import PATHS, MessageType
from workspaces.engine.transports.base import Parcel
from workspaces.engine.transports.webhook import signed_headers
from workspaces.models import EndpointSecret

pytestmark = pytest.mark.django_db


@pytest.fixture(scope="module")
def receiver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Receiver]:
    with Receiver(tmp_path_factory.mktemp("signatures")) as made:
        yield made


@pytest.fixture
def room(receiver: Receiver, settings: Any) -> Mailroom:
    settings.WEBHOOK_PRIVATE = ["127.0.0.0/8"]
    return Mailroom(receiver)


def again(receiver: Receiver, arrival: Arrival, *, raw: str = "", **headers: str) -> int:
    """What somebody sends who has seen the request on its way. Returns the status."""
    sent = {key: value for key, value in arrival.headers.items() if key.startswith(("webhook-", "content-type"))}
    connection = http.client.HTTPConnection("127.0.0.1", receiver.port, timeout=30)
    sent |= {key.replace("_", "-"): value for key, value in headers.items()}
    connection.request("POST", f"/{arrival.endpoint}", body=(raw or arrival.raw).encode(), headers=sent)
    status = connection.getresponse().status
    connection.close()
    return status


def test_every_type_verifies_has_its_published_shape_and_an_id_of_its_own(room: Mailroom) -> None:
    endpoint = room.endpoint("every")
    alert = room.alert()
    for type_ in (MessageType.OPENED, MessageType.UPDATED, MessageType.ACKNOWLEDGED, MessageType.RESOLVED):
        room.tell(alert, [endpoint], type_)
    deliveries.send_test(endpoint, actor=room.boss)
    courier_runs_once()
    arrived = room.receiver.accepted("every")
    assert sorted(one.body["type"] for one in arrived) == sorted(one.value for one in MessageType)
    assert len({one.id for one in arrived}) == len(MessageType)
    assert not room.receiver.refused("every")
    for one in arrived:
        CLOSED[one.body["type"]].validate(one.body)
        assert one.headers["content-type"] == "application/json"


def test_a_tampered_an_old_and_a_repeated_message_are_refused(room: Mailroom) -> None:
    endpoint = room.endpoint("careful")
    room.receiver.behave("careful", once=True)
    room.tell(room.alert(), [endpoint])
    courier_runs_once()
    (arrival,) = room.receiver.accepted("careful")

    assert again(room.receiver, arrival, raw=arrival.raw.replace('"active":1', '"active":2')) == 400
    assert again(room.receiver, arrival, webhook_id="msg_other") == 400
    assert again(room.receiver, arrival, webhook_timestamp=str(int(arrival.headers["webhook-timestamp"]) + 1)) == 400
    secret = endpoint.secrets.get().open()
    old = signed_headers(
        Parcel(arrival.id, "", {}, "", secrets=(secret,)), arrival.raw, datetime.now(UTC) - timedelta(minutes=6)
    )
    assert again(room.receiver, arrival, **{key.replace("-", "_"): value for key, value in old.items()}) == 400
    assert again(room.receiver, arrival) == 200  # it verifies, so its id is what tells
    why = [one.refused for one in room.receiver.refused("careful")]
    assert why[:3] == ["No matching signature found"] * 3
    assert why[3:] == ["Message timestamp too old", "seen before"]
    assert len(room.receiver.accepted("careful")) == 1


def test_what_a_killed_sender_had_begun_to_say_is_no_message(receiver: Receiver) -> None:
    receiver.trust("cut", new_secret())
    with socket.create_connection(("127.0.0.1", receiver.port), timeout=30) as killed:
        killed.sendall(b'POST /cut HTTP/1.1\r\nHost: x\r\nwebhook-id: msg_1\r\nContent-Length: 100\r\n\r\n{"type":')
        killed.shutdown(socket.SHUT_WR)
        assert killed.recv(1) == b"", "nobody is answered"
    assert receiver.accepted("cut") + receiver.refused("cut") == []


def test_what_is_signed_with_another_secret_is_refused_and_tried_again(room: Mailroom) -> None:
    endpoint = room.endpoint("wary")
    room.receiver.trust("wary", new_secret())
    (made,) = room.tell(room.alert(), [endpoint])
    courier_runs_once()
    made.refresh_from_db()
    assert made.state == S.PENDING.value
    assert made.attempts.get().outcome == Out.REFUSED.value
    room.receiver.trust("wary", endpoint.secrets.get().open())
    courier_runs_once(deliveries_fall_due=True)
    (arrived,) = room.receiver.accepted("wary")
    assert arrived.id == made.message_id == room.receiver.refused("wary")[0].id


def test_while_a_secret_is_replaced_both_verify_and_then_only_the_new_one(room: Mailroom) -> None:
    endpoint = room.endpoint("turning")
    old = endpoint.secrets.get()
    EndpointSecret.objects.filter(pk=old.pk).update(expires_at=timezone.now() + timedelta(hours=1))
    new = room.add_secret(endpoint)
    alert = room.alert()
    for trusted in (old.open(), new):
        room.receiver.trust("turning", trusted)
        room.tell(alert, [endpoint], MessageType.UPDATED)
        courier_runs_once()
    arrived = room.receiver.accepted("turning")
    assert len(arrived) == 2
    assert all(len(one.headers["webhook-signature"].split(" ")) == 2 for one in arrived)

    EndpointSecret.objects.filter(pk=old.pk).update(expires_at=timezone.now() - timedelta(seconds=1))
    room.receiver.trust("turning", old.open())
    room.tell(alert, [endpoint], MessageType.RESOLVED)
    courier_runs_once()
    (refused,) = room.receiver.refused("turning")
    assert len(refused.headers["webhook-signature"].split(" ")) == 1
    assert json.loads(refused.raw)["type"] == "alert.resolved.v1"


def test_every_address_in_a_message_is_that_of_a_page() -> None:
    for path in PATHS.values():
        assert resolve(path.format(id=1).partition("#")[0]).view_name, path
