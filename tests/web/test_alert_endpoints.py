"""Endpoints and deliveries on their pages: made, tried at a real receiver, given new secrets, sent again, removed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from standardwebhooks import Webhook

from tests.harness import courier_runs_once
from tests.mail_server import mail_server
from tests.receiver import Receiver
from tests.sending import Mailroom
from tests.web.pages import Page, page
from tests.web.people import Desk
from workspaces.actions.endpoints import make_endpoint
from workspaces.domain.endpoints import DeliveryState, EndpointKind, EndpointLinks, EndpointState
from workspaces.models import ActionLink, AlertSignal, AuditEntry, Delivery, Endpoint, EndpointSecret, User
from workspaces.queries.database import database_now
from workspaces.queries.endpoints import secrets_of

pytestmark = pytest.mark.django_db

NEW = "/alerts/endpoints/new/"
PRIVATE = ["127.0.0.0/8"]


@pytest.fixture(autouse=True)
def private(settings: Any) -> None:
    settings.WEBHOOK_PRIVATE = PRIVATE


@pytest.fixture(scope="module")
def receiver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Receiver]:
    with Receiver(tmp_path_factory.mktemp("receiver")) as made:
        yield made


def hook(owner: User | None, actor: User, **fields: Any) -> Endpoint:
    given: dict[str, Any] = {
        "kind": EndpointKind.WEBHOOK,
        "name": "ops-hook",
        "address": "http://127.0.0.1:9/hook",
        "owner": owner,
        "actor": actor,
    }
    return make_endpoint(**(given | fields))[0]


def typed(**changes: Any) -> dict[str, Any]:
    return {
        "of": "me",
        "kind": "webhook",
        "name": "ops-hook",
        "address": "http://127.0.0.1:9/hook",
        "links": "acknowledge",
    } | changes


def shown(client: Client, address: str) -> Page:
    response = client.get(address)
    assert response.status_code == 200
    return page(response)


@pytest.mark.django_db(transaction=True)
def test_an_endpoint_is_made_its_secret_shown_once_a_test_sent_and_a_message_sent_again(
    desk: Desk, signed_in: Any, receiver: Receiver
) -> None:
    client = signed_in(desk.viewer)
    receiver.trust("mine", "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA")
    made = client.post(NEW, typed(address=receiver.url("mine")))
    endpoint = Endpoint.objects.get()
    here = f"/alerts/endpoints/{endpoint.pk}/"
    assert (made.status_code, made["Location"]) == (302, here)
    assert (endpoint.owner, endpoint.state) == (desk.viewer, "enabled")

    client.head(here)
    first = shown(client, here)
    secret = first.text("#secret")
    assert first.one("#fresh-secret [data-copy]")["data-copy"] == secret
    assert Webhook(secret)
    again = client.get(here)
    page(again).none("#fresh-secret")
    assert secret not in again.content.decode()
    assert secret not in str(EndpointSecret.objects.values_list("sealed"))

    receiver.trust("mine", secret)
    sent = client.post(f"{here}test/", headers={"HX-Request": "true"})
    assert page(sent).one("#endpoint-test")["hx-trigger"] == "every 1s"
    courier_runs_once()
    settled = page(client.get(f"{here}test/result/", headers={"HX-Request": "true"}))
    assert "delivered" in settled.text("#endpoint-test")
    assert "answered with 200" in settled.text("#endpoint-test")
    assert not settled.one("#endpoint-test").has_attr("hx-trigger")
    assert settled.one("#endpoint-facts").has_attr("hx-swap-oob"), "the rest of the page learns of it"
    assert "Last success now" in settled.text("#endpoint-facts")
    assert "endpoint.test.v1" in settled.text("#endpoint-newest")

    delivery = Delivery.objects.get()
    one = shown(client, f"/alerts/deliveries/{delivery.pk}/")
    assert '"type": "endpoint.test.v1"' in one.text("#delivery-body")
    assert "webhook-id" in one.text("#attempt-1")
    assert "HTTP 200" in one.text("#attempt-1 summary")
    assert client.post(f"/alerts/deliveries/{delivery.pk}/resend/").status_code == 302
    courier_runs_once()
    assert [arrived.id for arrived in receiver.accepted("mine")] == [delivery.message_id] * 2
    listed = shown(client, f"{here}deliveries/")
    assert "resent 1×" in listed.text(f"#delivery-row-{delivery.pk}")


@pytest.mark.django_db(transaction=True)
def test_a_test_that_fails_says_why(desk: Desk, signed_in: Any) -> None:
    endpoint = hook(None, desk.staff)
    client = signed_in(desk.staff)
    here = f"/alerts/endpoints/{endpoint.pk}/"
    assert client.post(f"{here}test/").status_code == 302
    courier_runs_once()
    told = shown(client, here).text("#endpoint-test")
    assert "failed after 1 try" in told
    assert "127.0.0.1:9" in told
    assert "given up" not in shown(client, here).text("#endpoint-facts"), "there is nothing to send again"
    endpoint.refresh_from_db()
    assert endpoint.failing_since is None, "a test says nothing of alerts"


REFUSED: list[tuple[dict[str, str], str, str]] = [
    ({"address": ""}, "address", "Say where messages go"),
    ({"address": "https://me:secret@127.0.0.1/"}, "address", "must not hold a name or password"),
    ({"address": "https://127.0.0.1/ x"}, "address", "percent-encoded"),
    ({"address": "ftp://127.0.0.1/"}, "address", "must begin with https://"),
    ({"address": "https://10.1.2.3/hook"}, "address", "inside a private network"),
    ({"address": "https://169.254.169.254/latest"}, "address", "inside a private network"),
    ({"address": "https://[::1]/hook"}, "address", "inside a private network"),
    ({"address": "http://93.184.216.34/hook"}, "address", "must begin with https://"),
    ({"address": "https://no-such-name.invalid/hook"}, "address", "does not resolve"),
    ({"kind": "email", "address": "two@a.example, b@a.example"}, "address", "e-mail address"),
    ({"name": ""}, "name", "Give the endpoint a name"),
    ({"kind": ""}, "kind", "Choose what it is"),
]


def test_a_refused_form_says_why_and_keeps_what_was_typed(desk: Desk, signed_in: Any) -> None:
    client = signed_in(desk.owner)
    for changes, field, words in REFUSED:
        response = client.post(NEW, typed(links="answer") | changes)
        assert response.status_code == 422, changes
        seen = page(response)
        assert words in seen.text(f".field:has(#id_{field}), fieldset:has([name={field}])"), changes
        for name in ("name", "address"):
            assert seen.one(f"#id_{name}")["value"] == (typed() | changes)[name]
        assert seen.one("[name=links][checked]")["value"] == "answer"
    assert not Endpoint.objects.exists()


def test_a_chats_address_is_a_secret(desk: Desk, signed_in: Any) -> None:
    client = signed_in(desk.staff)
    address = "http://127.0.0.1:9/services/T000/B000/c0ffeec0ffee1234"
    assert client.post(NEW, typed(of="site", kind="slack", address=address)).status_code == 302
    endpoint = Endpoint.objects.get()
    assert endpoint.owner is None
    assert endpoint.open_address() == address
    here = f"/alerts/endpoints/{endpoint.pk}/"
    for path in (here, f"{here}change/", "/alerts/endpoints/"):
        seen = client.get(path)
        assert b"c0ffee" not in seen.content, path
        assert b"127.0.0.1:9/\xe2\x80\xa61234" in seen.content, path
    assert not endpoint.secrets.exists(), "a chat verifies nothing"
    assert client.post(f"{here}change/", typed(name="chat", address="")).status_code == 302
    endpoint.refresh_from_db()
    assert (endpoint.name, endpoint.open_address()) == ("chat", address), "an empty field keeps it"
    assert "c0ffee" not in str(list(AuditEntry.objects.values_list("data", flat=True)))


def test_a_mailbox_is_written_to_once_somebody_there_said_yes(desk: Desk, signed_in: Any, settings: Any) -> None:
    client = signed_in(desk.owner)
    sent = typed(kind="email", address="ann@example.com")
    refused = client.post(NEW, sent)
    assert refused.status_code == 422
    assert "E-mail is not set up" in page(refused).text(".field:has(#id_address)")
    with mail_server() as server:
        settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
        settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", server.port
        settings.EMAIL_USE_TLS = settings.EMAIL_USE_SSL = False
        settings.EMAIL_FROM = "desk@example.com"
        server.to_message = "451 not now"
        assert client.post(NEW, sent).status_code == 302
        endpoint = Endpoint.objects.get()
        here = f"/alerts/endpoints/{endpoint.pk}/"
        seen = shown(client, here)
        assert "could not be sent" in seen.text("#notice")
        seen.none("#send-test")
        assert client.post(f"{here}test/").status_code == 409
        assert client.post(f"{here}confirm/").status_code == 409, "not twice in a minute"
        ActionLink.objects.update(created_at=database_now() - timedelta(minutes=2))
        server.to_message = "250 OK"
        assert client.post(f"{here}confirm/").status_code == 302
    ((to, message),) = server.came
    body = message.get_body(("plain",))
    assert body is not None
    link = re.search(r"/act/[^\s]+/", body.get_content())
    assert link is not None
    assert (to, endpoint.state) == ("ann@example.com", EndpointState.UNCONFIRMED.value)
    assert Client().post(link[0]).status_code == 200
    endpoint.refresh_from_db()
    assert endpoint.state == EndpointState.ENABLED.value
    shown(client, here).none("#endpoint-unconfirmed")
    assert client.post(f"{here}change/", typed(name="other", address="bob@example.com")).status_code == 302
    endpoint.refresh_from_db()
    assert (endpoint.address, endpoint.state) == ("bob@example.com", EndpointState.UNCONFIRMED.value)


def test_a_new_secret_overlaps_the_old_one_until_that_ends(desk: Desk, signed_in: Any) -> None:
    endpoint, first = make_endpoint(
        kind=EndpointKind.WEBHOOK, name="h", address="http://127.0.0.1:9/h", owner=desk.owner, actor=desk.owner
    )
    client, here = signed_in(desk.owner), f"/alerts/endpoints/{endpoint.pk}/"
    assert client.post(f"{here}rotate/", {"overlap": "12"}).status_code == 409
    assert client.post(f"{here}rotate/", {"overlap": "86400"}).status_code == 302
    second = shown(client, here).text("#secret")
    valid = secrets_of(endpoint)
    assert [secret.open() for secret in valid] == [second, first]
    assert secrets_of(endpoint, database_now() + timedelta(hours=25)) == valid[:1], "the old one ends by itself"

    assert client.post(f"{here}rotate/", {"overlap": "3600"}).status_code == 302
    third = shown(client, here).text("#secret")
    assert [secret.open() for secret in secrets_of(endpoint)] == [third, second], "at most two are valid"
    assert client.post(f"{here}drop-secret/", {"reason": ""}).status_code == 409
    assert client.post(f"{here}drop-secret/", {"reason": "the receiver has the new one"}).status_code == 302
    assert [secret.open() for secret in secrets_of(endpoint)] == [third]
    assert AuditEntry.objects.get(action="endpoint.drop_secret").reason == "the receiver has the new one"
    assert client.post(f"{here}drop-secret/", {"reason": "again"}).status_code == 409


def test_an_endpoint_that_failed_is_switched_on_again_and_what_was_given_up_is_resent(
    desk: Desk, signed_in: Any
) -> None:
    endpoint = hook(None, desk.staff)
    room = Mailroom.__new__(Mailroom)  # its alerts alone: nothing is received here
    room.boss = desk.staff
    alert = room.alert(workspace=desk.workspace)
    first, second = room.tell(alert, [endpoint])[0], room.tell(alert, [endpoint])[0]
    client, here = signed_in(desk.staff), f"/alerts/endpoints/{endpoint.pk}/"
    assert client.post(f"{here}disable/", {"reason": ""}).status_code == 409
    assert client.post(f"{here}disable/", {"reason": "they move house"}).status_code == 302
    endpoint.refresh_from_db()
    assert (endpoint.state, "they move house" in endpoint.state_reason) == (EndpointState.DISABLED.value, True)
    assert set(Delivery.objects.values_list("state", flat=True)) == {DeliveryState.FAILED.value}
    assert not ActionLink.objects.filter(revoked_at=None).exists(), "no link that was sent there acts any more"
    listed = shown(client, f"{here}deliveries/?state=failed&type=alert.opened.v1&alert={alert.pk}")
    assert len(listed.all("[id^=delivery-row-]")) == 2
    listed.none("[data-open='#resend-failed']")
    assert client.post(f"{here}deliveries/resend-failed/").status_code == 409

    Endpoint.objects.update(state=EndpointState.FAILED.value, failing_since=database_now(), failures=9)
    assert client.post(f"{here}enable/").status_code == 302
    endpoint.refresh_from_db()
    assert (endpoint.state, endpoint.failing_since, endpoint.failures) == (EndpointState.ENABLED.value, None, 0)
    ended = AlertSignal.objects.get(kind="endpoint_disabled")
    assert (ended.edge, ended.subject) == ("ended", f"endpoint:{endpoint.pk}")
    assert "(2)" in shown(client, f"{here}deliveries/").text("[data-open='#resend-failed']")
    assert client.post(f"{here}deliveries/resend-failed/").status_code == 302
    for each in (first, second):
        each.refresh_from_db()
        assert (each.state, each.resent) == (DeliveryState.PENDING.value, 1)


def test_a_removed_endpoint_is_sent_nothing_and_what_was_sent_stays_readable(desk: Desk, signed_in: Any) -> None:
    endpoint = hook(desk.owner, desk.owner, links=EndpointLinks.ANSWER)
    room = Mailroom.__new__(Mailroom)
    room.boss = desk.owner
    alert = room.alert(user=desk.owner)
    alert.rule.endpoints.add(endpoint)
    (delivery,) = room.tell(alert, [endpoint])
    client, here = signed_in(desk.owner), f"/alerts/endpoints/{endpoint.pk}/"
    assert client.post(f"{here}remove/", {"reason": "nobody reads it"}).status_code == 302
    endpoint.refresh_from_db()
    delivery.refresh_from_db()
    assert (endpoint.state, delivery.state) == (EndpointState.REMOVED.value, DeliveryState.CANCELLED.value)
    assert not endpoint.secrets.exists()
    assert not alert.rule.endpoints.exists()
    assert AuditEntry.objects.get(action="endpoint.remove").reason == "nobody reads it"
    seen = shown(client, here)
    seen.none("#send-test, [data-open='#endpoint-remove'], [data-open='#endpoint-rotate']")
    one = shown(client, f"/alerts/deliveries/{delivery.pk}/")
    one.none("#resend")
    for path in ("test", "change", "rotate", "enable", "remove"):
        assert client.post(f"{here}{path}/", {"reason": "r"}).status_code == 404, path


def test_tokens_of_links_stand_on_no_page(desk: Desk, signed_in: Any) -> None:
    endpoint = hook(desk.owner, desk.owner)
    room = Mailroom.__new__(Mailroom)
    room.boss = desk.owner
    alert = room.alert(user=desk.owner)
    (delivery,) = room.tell(alert, [endpoint])
    link = ActionLink.objects.filter(delivery=delivery).first()
    assert link is not None
    seen = signed_in(desk.owner).get(f"/alerts/deliveries/{delivery.pk}/")
    assert link.uid.hex not in seen.content.decode()
    assert "not shown" in page(seen).text("#delivery-body")


def test_what_was_sent_of_an_alert_that_one_may_not_see_any_more_is_not_read(desk: Desk, signed_in: Any) -> None:
    endpoint = hook(desk.viewer, desk.viewer)
    room = Mailroom.__new__(Mailroom)
    room.boss = desk.staff
    alert = room.alert(workspace=desk.workspace, title="Kestrel is stuck")
    (delivery,) = room.tell(alert, [endpoint])
    client = signed_in(desk.viewer)
    assert "Kestrel" in shown(client, f"/alerts/deliveries/{delivery.pk}/").text("main")
    desk.workspace.memberships.filter(user=desk.viewer).delete()
    for path in (f"deliveries/{delivery.pk}", f"endpoints/{endpoint.pk}", f"endpoints/{endpoint.pk}/deliveries"):
        assert "Kestrel" not in shown(client, f"/alerts/{path}/").text("main"), path
    assert client.get(f"/alerts/{alert.pk}/deliveries/").status_code == 404


def test_endpoints_are_their_owners_alone(desk: Desk, signed_in: Any) -> None:
    mine, sites = hook(desk.owner, desk.owner), hook(None, desk.staff, name="of the site")
    room = Mailroom.__new__(Mailroom)
    room.boss = desk.staff
    alert = room.alert(workspace=desk.workspace)
    delivery = room.tell(alert, [mine])[0]
    told = room.tell(alert, [sites])[0]
    gets = ("", "change/", "test/result/", "deliveries/")
    posts = ("change", "rotate", "drop-secret", "test", "enable", "disable", "remove", "deliveries/resend-failed")
    before = AuditEntry.objects.count()
    for user, endpoint, one in (
        (desk.operator, mine, delivery),
        (desk.staff, mine, delivery),
        (desk.owner, sites, told),
        (desk.outsider, sites, told),
    ):
        client = signed_in(user)
        for path in gets:
            assert client.get(f"/alerts/endpoints/{endpoint.pk}/{path}").status_code == 404, (user, path)
        for path in posts:
            there = f"/alerts/endpoints/{endpoint.pk}/{path}/"
            assert client.post(there, {"reason": "r", "overlap": "0"}).status_code == 404, (user, path)
        assert client.get(f"/alerts/deliveries/{one.pk}/").status_code == 404
        assert client.post(f"/alerts/deliveries/{one.pk}/resend/").status_code == 404
    assert AuditEntry.objects.count() == before
    assert signed_in(desk.owner).get(f"/alerts/endpoints/{mine.pk}/rotate/").status_code == 405
    listed = shown(signed_in(desk.owner), "/alerts/endpoints/")
    assert [tag["id"] for tag in listed.all("[id^=endpoint-row-]")] == [f"endpoint-row-{mine.pk}"]
    of_alert = shown(signed_in(desk.owner), f"/alerts/{alert.pk}/deliveries/")
    assert [tag["id"] for tag in of_alert.all("[id^=delivery-row-]")] == [f"delivery-row-{delivery.pk}"]
    assert "1 more went to others" in of_alert.text(".lede")
    of_page = shown(signed_in(desk.owner), f"/alerts/{alert.pk}/")
    assert of_page.one(f"[href='/alerts/{alert.pk}/deliveries/']")
    refused = signed_in(desk.owner).post(NEW, typed(of="site"))
    assert refused.status_code == 302
    assert Endpoint.objects.latest("pk").owner == desk.owner, "only site staff make the site's"
