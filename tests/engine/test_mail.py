"""Mail on a real SMTP server: what arrives, what a refusal means, and whose mailbox is written to at all."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from tests.harness import courier_runs_once, make_user, work
from tests.mail_server import MailServer, mail_server
from tests.web.linked import make_endpoint
from tests.web.people import make_desk
from workspaces.actions import deliveries, mailboxes
from workspaces.actions.endpoints import change_endpoint, remove_endpoint
from workspaces.actions.errors import Refused
from workspaces.actions.link_use import NotGood, use_link
from workspaces.domain.action_links import Standing
from workspaces.domain.endpoints import AttemptOutcome, DeliveryState, EndpointKind, EndpointLinks, EndpointState
from workspaces.domain.states import TaskStatus
from workspaces.engine.mail import send_confirmation, tell_owners
from workspaces.engine.transports import NotSent, Parcel
from workspaces.engine.transports.email import Email
from workspaces.models import ActionLink, AlertRule, AuditEntry, Endpoint, User

pytestmark = pytest.mark.django_db(transaction=True)

BODY: dict[str, Any] = {
    "type": "alert.opened.v1",
    "timestamp": "2026-12-01T10:05:00.000Z",
    "data": {
        "alert": {
            "id": 7,
            "url": "http://desk.test/alerts/7/",
            "severity": "critical",
            "title": "Loop in\r\nBcc: all@evil.test <b>task</b>",
            "words": "It does <script>alert(1)</script> again.",
            "rule": {"id": 1, "name": "Loops"},
            "began_at": "2026-12-01T10:00:00.000Z",
        },
        "evidence": [{"type": "incident", "id": 3, "url": "http://desk.test/incidents/3/", "title": "loop"}],
        "links": {"approve": "http://desk.test/act/t0ken/", "acknowledge": "http://desk.test/act/oth3r/"},
    },
}


@pytest.fixture
def server(settings: Any) -> Iterator[MailServer]:
    with mail_server() as running:
        settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
        settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", running.port
        settings.EMAIL_USE_TLS = settings.EMAIL_USE_SSL = False
        settings.EMAIL_FROM = "agentdesk <desk@example.com>"
        yield running


def sent(to: str = "ann@example.com", **changes: Any) -> Any:
    parcel = Parcel(id="msg_01", type="alert.opened.v1", body=BODY | changes, address=to)
    return asyncio.run(Email().send(parcel))


def refused(**more: Any) -> NotSent:
    with pytest.raises(NotSent) as caught:
        sent(**more)
    return caught.value


def mailbox(owner: User, address: str = "ann@example.com") -> Endpoint:
    state = EndpointState.UNCONFIRMED.value
    return make_endpoint(owner, owner, kind=EndpointKind.EMAIL.value, address=address, state=state)


def test_an_alert_arrives_as_text_and_html_with_its_links(server: MailServer) -> None:
    answer = sent()
    assert (answer.status, answer.request_headers["Message-ID"]) == (250, "<msg_01@example.com>")
    sent()
    (to, message), (_, again) = server.came
    assert to == "ann@example.com"
    assert message["Subject"] == "[agentdesk] CRITICAL: Loop in Bcc: all@evil.test <b>task</b>"
    assert message["Bcc"] is None
    assert message["Message-ID"] == again["Message-ID"] == "<msg_01@example.com>", "the same at a retry"
    assert message["Date"].datetime.isoformat() == "2026-12-01T10:05:00+00:00"
    assert message["Auto-Submitted"] == "auto-generated"
    assert message["List-Id"] == "agentdesk alerts <alerts.example.com>"
    assert message["References"] == "<alert-7@example.com>"
    text, html = message.get_body(("plain",)), message.get_body(("html",))
    assert text is not None
    assert html is not None
    for part in (text.get_content(), html.get_content()):
        for shown in ("http://desk.test/act/t0ken/", "http://desk.test/alerts/7/", "2026-12-01 10:00 UTC", "Loops"):
            assert shown in part
    assert "<script>" not in html.get_content()
    assert "&lt;script&gt;" in html.get_content()
    assert not any("act/" in str(value) for value in answer.request_headers.values())


def test_a_refusal_for_good_is_told_from_one_for_now(server: MailServer) -> None:
    server.to_address = "550 5.1.1 no such user"
    error = refused()
    assert (error.permanent, error.heard.status, error.outcome) == (True, 550, AttemptOutcome.REFUSED)
    assert "no such user" in str(error)
    server.to_address = "450 4.2.1 greylisted"
    assert (refused().permanent, refused().heard.status) == (False, 450)
    server.to_address, server.to_message = "250 OK", "554 5.7.1 looks like spam"
    assert refused().permanent
    server.to_message = "452 4.3.1 disk full"
    assert not refused().permanent
    assert not server.came


def test_no_server_no_setting_and_no_address_are_told_apart(server: MailServer, settings: Any) -> None:
    for address in ("ann@example.com\nBcc: all@evil.test", "ann@example.com, ben@example.com", "Ann <ann@example.com>"):
        error = refused(to=address)
        assert (error.permanent, error.outcome) == (True, AttemptOutcome.FORBIDDEN)
    settings.EMAIL_USE_TLS = True
    assert (refused().permanent, refused().outcome) == (False, AttemptOutcome.FAULT), "it speaks no TLS"
    settings.EMAIL_USE_TLS, settings.EMAIL_PORT = False, 1
    assert (refused().permanent, refused().outcome) == (False, AttemptOutcome.CONNECTION)
    settings.EMAIL_HOST = ""
    assert "AGENTDESK_EMAIL_HOST" in str(refused())
    assert not server.came


def test_a_mailbox_is_used_only_after_somebody_there_said_yes(server: MailServer) -> None:
    ann = make_user()
    endpoint = mailbox(ann)
    assert send_confirmation(endpoint.pk, actor=ann) == "ann@example.com"
    ((to, message),) = server.came
    assert to == "ann@example.com"
    body = message.get_body(("plain",))
    assert body is not None
    (path,) = re.findall(r"http://[^/\s]+(/act/[^/\s]+/)", body.get_content())
    assert Client().get(path).status_code == 200
    assert Endpoint.objects.get().state == EndpointState.UNCONFIRMED.value, (
        "a scanner of mail that opens it says no yes"
    )
    assert Client().post(path).status_code == 200
    assert Endpoint.objects.get().state == EndpointState.ENABLED.value
    assert AuditEntry.objects.get(action="link.confirm").actor is None, "whoever reads the mailbox"
    assert Client().post(path).status_code == 410
    Endpoint.objects.update(state=EndpointState.UNCONFIRMED.value)
    assert Client().post(path).status_code == 410, "it confirms once"
    with pytest.raises(Refused, match="moment ago"):
        send_confirmation(endpoint.pk, actor=ann)


def test_a_confirmation_is_of_one_address_and_nobodys_mailbox_is_filled(server: MailServer) -> None:
    ann = make_user()
    endpoint = mailbox(ann)
    with pytest.raises(Refused, match="among your endpoints"):
        mailboxes.ask_to_confirm(endpoint.pk, actor=make_user())
    for _ in range(mailboxes.MOST_A_DAY):
        link = mailboxes.ask_to_confirm(endpoint.pk, actor=ann)
        ActionLink.objects.update(created_at=timezone.now() - mailboxes.BETWEEN * 2)
    with pytest.raises(Refused, match="tomorrow"):
        mailboxes.ask_to_confirm(endpoint.pk, actor=ann)
    other = mailbox(ann, "ANN@example.com")
    with pytest.raises(Refused, match="tomorrow"):
        mailboxes.ask_to_confirm(other.pk, actor=ann)
    assert ActionLink.objects.filter(endpoint=endpoint, revoked_at=None).get() == link
    Endpoint.objects.filter(pk=endpoint.pk).update(address="ben@example.com")
    with pytest.raises(NotGood) as caught:
        use_link(link.uid, actor=None, address="")
    assert caught.value.standing is Standing.CHANGED


def test_an_endpoint_that_is_made_anew_or_leads_elsewhere_frees_no_mailbox_and_no_person(server: MailServer) -> None:
    ann, ben = make_user(), make_user()

    def asked(owner: User, address: str) -> Endpoint:
        made = mailbox(owner, address)
        mailboxes.ask_to_confirm(made.pk, actor=owner)
        ActionLink.objects.update(created_at=timezone.now() - mailboxes.BETWEEN * 2)
        return made

    for number in range(mailboxes.MOST_A_DAY):
        made = asked(ann, "victim@example.com")
        if number % 2:
            remove_endpoint(made.pk, actor=ann, reason="again")
        else:
            Endpoint.objects.filter(pk=made.pk).update(address=f"nobody{number}@example.com")
    with pytest.raises(Refused, match="to this address"):
        asked(ben, "Victim@example.com")
    for number in range(mailboxes.MOST_A_DAY, mailboxes.MOST_OF_ONE):
        asked(ann, f"list{number}@example.com")
    with pytest.raises(Refused, match="You have had"):
        asked(ann, "one.more@example.com")
    asked(ben, "ben@example.com")


def test_a_test_that_waits_is_not_sent_to_a_mailbox_that_nobody_has_confirmed(server: MailServer) -> None:
    ann = make_user()
    endpoint = mailbox(ann)
    Endpoint.objects.update(state=EndpointState.ENABLED.value)
    test = deliveries.send_test(endpoint, actor=ann)
    change_endpoint(endpoint.pk, actor=ann, name="x", links=EndpointLinks.NONE, address="victim@example.com")
    courier_runs_once()
    test.refresh_from_db()
    assert server.came == []
    assert (test.state, test.error) == (DeliveryState.FAILED.value, "Its endpoint leads elsewhere now.")


def test_a_held_call_is_approved_from_the_mail_that_tells_of_it(server: MailServer) -> None:
    """The whole way: the question's signal, a rule, an alert, a mail to a confirmed address, its link, the call."""
    desk = make_desk()
    endpoint = make_endpoint(None, desk.staff, kind=EndpointKind.EMAIL.value, address="oncall@example.com")
    AlertRule.objects.get(builtin="agent").endpoints.add(endpoint)
    asked = desk.held_call()
    courier_runs_once()
    ((to, message),) = server.came
    body = message.get_body(("plain",))
    assert body is not None
    links = dict(re.findall(r"- (\w+): http://[^/\s]+(/act/[^/\s]+/)", body.get_content()))
    assert (to, list(links)) == ("oncall@example.com", ["Approve", "Reject", "Acknowledge", "Resolve"])
    assert Client().post(links["Approve"]).status_code == 200
    task = work(asked.task)
    assert task.status == TaskStatus.SUCCEEDED
    courier_runs_once()
    assert [told["Subject"].strip().split(": ")[0] for _, told in server.came[1:]] == ["[agentdesk] Resolved"]
    assert server.came[1][1]["References"] == message["References"]
    assert Client().get(links["Acknowledge"]).status_code == 410, "it is over"


def test_the_owner_of_a_failed_endpoint_is_told_once_by_mail(server: MailServer) -> None:
    ann = make_user(email="ann@work.example.com")
    failed = {"state": EndpointState.FAILED.value, "state_since": timezone.now(), "state_reason": "It answered 410."}
    make_endpoint(ann, ann, name="Pager", **failed)
    make_endpoint(None, make_user(), **failed)  # nobody to tell: no address
    server.to_address = "451 later"
    assert tell_owners() == 0
    server.to_address = "250 OK"
    assert tell_owners() == 1
    assert tell_owners() == 0
    ((to, message),) = server.came
    assert (to, message["Subject"]) == ("ann@work.example.com", "[agentdesk] The endpoint Pager was switched off")
    assert not mailboxes.untold().exists()
