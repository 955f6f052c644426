"""The courier against real receivers: what is due goes out, in order, and again when it must."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.harness import courier_runs_once, eventually
from tests.receiver import Receiver
from tests.sending import Mailroom
from workspaces.actions import deliveries
from workspaces.domain.endpoints import AttemptOutcome as Out
from workspaces.domain.endpoints import DeliveryState as S
from workspaces.domain.webhooks import MessageType
from workspaces.engine.courier import Courier
from workspaces.models import Delivery

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
