"""Links that act: a look changes nothing, a press does it once, as one person, and only while that person may."""

from __future__ import annotations

import json
import logging
import threading
import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.utils import timezone

from agentdesk.scrub import ScrubbingFormatter
from tests.harness import SEND_INVOICE, make_user, scripted_profile
from tests.web.linked import link, links_of, machine, make_alert, make_endpoint
from tests.web.pages import page
from tests.web.people import HELD, Desk
from workspaces.actions.action_links import revoke_links
from workspaces.actions.endpoints import change_endpoint
from workspaces.actions.escalations import answer_escalation
from workspaces.domain.endpoints import EndpointLinks, EndpointState
from workspaces.domain.escalations import Decision
from workspaces.domain.throttle import PATIENCE
from workspaces.models import (
    ActionLink,
    AlertChange,
    AlertMember,
    Approval,
    AuditEntry,
    Endpoint,
    Escalation,
    Event,
    Membership,
    User,
)
from workspaces.queries.action_links import token_of

pytestmark = pytest.mark.django_db(transaction=True)

SignIn = Callable[[User], Client]


@pytest.fixture
def asked(desk: Desk) -> Escalation:
    return desk.held_call()


def sent(desk: Desk, asked: Escalation, owner: User | None = None) -> dict[str, str]:
    """The links of a message about the question to the operator (or `owner`)."""
    person = owner or desk.operator
    return links_of(make_alert(desk.workspace, asked), make_endpoint(person, person))


def footprint() -> Any:
    used = ActionLink.objects.exclude(used_at=None).count()
    return used, Event.objects.count(), Approval.objects.count(), AuditEntry.objects.count()


def standing(path: str, client: Client | None = None) -> tuple[int, str]:
    """What a look at the page says: the status and why nothing can be done."""
    seen = (client or Client()).get(path)
    section = page(seen).one("#link")
    return seen.status_code, str(section["data-standing"])


def test_a_look_shows_exactly_what_it_would_do_and_changes_nothing(desk: Desk, asked: Escalation) -> None:
    paths = sent(desk, asked)
    assert set(paths) == {"approve", "reject", "acknowledge", "resolve"}
    before = footprint()
    for path in paths.values():
        for ask in (Client().get, Client().head):
            seen = ask(path, headers={"Sec-Purpose": "prefetch"})
            assert seen.status_code == 200
            assert seen["Cache-Control"] == "no-store, private"
            assert seen["Referrer-Policy"] == "strict-origin"
            assert "noindex" in seen["X-Robots-Tag"]
    shown = page(Client().get(paths["approve"]))
    assert json.loads(shown.one(".call pre").get_text()) == {"customer": "ACME", "amount": 10}
    assert shown.text(".call code") == "send_invoice"
    assert shown.text("header .badge") == "irreversible"
    assert "once, with exactly these arguments" in shown.text("#does")
    assert desk.operator.username in shown.text("#as")
    assert paths["approve"] not in str(shown.soup), "the page does not repeat its own address"
    assert footprint() == before


def test_an_approval_by_link_runs_once_and_is_written_down(desk: Desk, asked: Escalation) -> None:
    paths = sent(desk, asked)
    done = Client(REMOTE_ADDR="10.9.8.7").post(paths["approve"])
    assert done.status_code == 200
    assert "Approved" in page(done).text("#said")
    asked.refresh_from_db()
    assert (asked.decision, asked.answered_by) == ("approve", desk.operator)
    entry = AuditEntry.objects.get(action="link.approve")
    assert (entry.actor, entry.task, entry.workspace) == (desk.operator, asked.task, desk.workspace)
    assert entry.data | {"by": "link", "address": "10.9.8.7", "endpoint_name": "On call"} == entry.data
    before = footprint()
    assert Client().post(paths["approve"]).status_code == 410
    assert standing(paths["approve"]) == (410, "used")
    assert standing(paths["reject"]) == (410, "decided")
    told = page(Client().get(paths["reject"])).text("#refusal")
    assert desk.operator.username in told
    assert "Approve" in told
    assert footprint() == before


def test_an_alert_is_acknowledged_and_resolved_by_link(desk: Desk) -> None:
    alert = make_alert(desk.workspace)
    paths = links_of(alert, make_endpoint(desk.operator, desk.operator))
    assert set(paths) == {"acknowledge", "resolve"}
    assert alert.title in page(Client().get(paths["acknowledge"])).text(".question")
    alert.refresh_from_db()
    assert alert.state == "open"
    assert Client(REMOTE_ADDR="10.9.8.7").post(paths["acknowledge"], {"words": "On it."}).status_code == 200
    alert.refresh_from_db()
    assert (alert.state, alert.acknowledged_by) == ("acknowledged", desk.operator)
    change = AlertChange.objects.filter(alert=alert).order_by("number").last()
    assert change is not None
    assert (change.kind, change.via, change.words, change.actor) == ("acknowledged", "link", "On it.", desk.operator)
    entry = AuditEntry.objects.get(action="link.acknowledge")
    assert (entry.workspace, entry.reason, entry.data["address"]) == (desk.workspace, "On it.", "10.9.8.7")
    assert Client().post(paths["resolve"], {"words": ""}).status_code == 409
    assert Client().post(paths["resolve"], {"words": "Restarted."}).status_code == 200
    alert.refresh_from_db()
    assert (alert.state, alert.resolution) == ("resolved", "Restarted.")
    own = make_alert(None, user=desk.viewer)
    mine = links_of(own, make_endpoint(desk.viewer, desk.viewer))
    other = links_of(own, make_endpoint(desk.operator, desk.operator))
    assert standing(other["resolve"]) == (403, "forbidden"), "another's alert"
    assert Client().post(mine["resolve"], {"words": "Seen."}).status_code == 200
    assert standing(mine["acknowledge"]) == (410, "decided")


def test_a_rejection_needs_words_and_a_refused_form_keeps_them(desk: Desk, asked: Escalation) -> None:
    path = sent(desk, asked)["reject"]
    refused = Client().post(path, {"words": " "})
    assert refused.status_code == 409
    assert "few words" in page(refused).text("[role=alert]")
    long = "w" * 100_001
    kept = Client().post(path, {"words": long})
    assert kept.status_code == 409
    assert page(kept).one("#words").get_text() == long
    assert link("reject").used_at is None, "what was refused has used nothing up"
    assert Client().post(path, {"words": "Not this customer."}).status_code == 200
    asked.refresh_from_db()
    assert (asked.decision, asked.words) == ("reject", "Not this customer.")


def test_a_form_needs_its_token_and_a_machine_acts_as_the_link_whoever_is_signed_in(
    desk: Desk, asked: Escalation
) -> None:
    path = sent(desk, asked)["approve"]
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(desk.staff)
    assert strict.post(path).status_code == 403
    assert link("approve").used_at is None
    robot = machine()
    robot.force_login(desk.staff)
    told = robot.get(path).json()
    assert told["acts_as"] == desk.operator.username
    assert told["call"] == {
        "tool": "send_invoice", "effect": "irreversible", "arguments": {"customer": "ACME", "amount": 10},
    }  # fmt: skip
    assert robot.post(path, b"[1]", content_type="application/json").status_code == 409
    done = robot.post(path, b"{}", content_type="application/json")
    assert (done.status_code, done.json()["done"]) == (200, True)
    assert link("approve").used_by == desk.operator
    again = robot.post(path)
    assert (again.status_code, again.json()["standing"]) == (410, "used")
    assert machine().post("/act/nothing/").status_code == 404


def test_who_is_signed_in_acts_as_themselves(desk: Desk, asked: Escalation, signed_in: SignIn) -> None:
    path = sent(desk, asked)["approve"]
    assert standing(path, signed_in(desk.viewer)) == (403, "forbidden")
    told = page(signed_in(desk.outsider).get(path))
    assert "signed in as" in told.text("#refusal")
    told.none(".call")
    assert signed_in(desk.outsider).post(path).status_code == 403
    assert signed_in(desk.owner).post(path).status_code == 200
    assert link("approve").used_by == desk.owner


def test_a_link_ends_with_the_right_of_whom_it_acts_as(desk: Desk, asked: Escalation) -> None:
    paths = sent(desk, asked)
    Membership.objects.filter(user=desk.operator).update(role="viewer")
    for path in paths.values():
        assert standing(path) == (403, "forbidden")
        assert Client().post(path, {"words": "w"}).status_code == 403
    Membership.objects.filter(user=desk.operator).update(role="operator")
    User.objects.filter(pk=desk.operator.pk).update(is_active=False)
    assert standing(paths["approve"]) == (403, "forbidden")
    assert standing(paths["acknowledge"]) == (403, "forbidden")


def test_a_link_approves_only_the_arguments_that_it_was_sent_with(desk: Desk, asked: Escalation) -> None:
    paths = sent(desk, asked)
    call = asked.tool_call
    assert call is not None
    call.arguments, call.arguments_hash = {"customer": "ACME", "amount": 10_000}, "f" * 64
    call.save()
    assert standing(paths["approve"]) == (410, "changed")
    assert Client().post(paths["approve"]).status_code == 410
    assert not Approval.objects.exists()
    assert standing(paths["reject"]) == (200, "good")


def test_links_expire_and_end_with_their_endpoint(desk: Desk, asked: Escalation) -> None:
    paths = sent(desk, asked)
    assert link("approve").expires_at <= asked.deadline
    row = link("approve")
    row.expires_at = timezone.now() - timedelta(seconds=1)
    row.save()
    assert standing(paths["approve"]) == (410, "expired")
    assert Client().post(paths["approve"]).status_code == 410
    for state in (EndpointState.DISABLED, EndpointState.FAILED, EndpointState.REMOVED):
        Endpoint.objects.update(state=state.value)
        assert standing(paths["reject"]) == (410, "revoked")
    Endpoint.objects.update(state=EndpointState.ENABLED.value)
    assert standing(paths["reject"]) == (200, "good")
    assert revoke_links(Endpoint.objects.get()) == 4
    for path in paths.values():
        assert Client().post(path, {"words": "w"}).status_code == 410
    asked.refresh_from_db()
    assert asked.status == "open"


def test_what_the_endpoint_may_not_is_not_in_the_message(desk: Desk, asked: Escalation) -> None:
    alert, person = make_alert(desk.workspace, asked), desk.operator
    assert links_of(alert, make_endpoint(person, person, EndpointLinks.NONE)) == {}
    assert set(links_of(alert, make_endpoint(person, person, EndpointLinks.ACKNOWLEDGE))) == {"acknowledge", "resolve"}
    assert set(links_of(alert, make_endpoint(desk.viewer, desk.viewer))) == {"acknowledge", "resolve"}
    assert "approve" in links_of(alert, make_endpoint(None, desk.staff)), "a site endpoint acts as who made it"
    member = AlertMember.objects.get(alert=alert)
    member.pk, member.subject, member.escalation = None, "incident:1", None
    member.save()
    assert "approve" in links_of(alert, make_endpoint(person, person)), "an incident besides changes nothing"
    now = timezone.now()
    member.pk, member.subject = None, "escalation:0"
    member.escalation = Escalation.objects.create(task=asked.task, kind="limit", opened_at=now, deadline=now)
    member.save()
    assert "approve" not in links_of(alert, make_endpoint(person, person)), "of two questions it is not known which"
    member.delete()
    answer_escalation(asked.pk, decision=Decision.APPROVE, actor=desk.owner)
    assert set(links_of(alert, make_endpoint(person, person))) == {"acknowledge", "resolve"}


def test_a_tampered_token_tells_nothing_and_guessing_has_to_wait(desk: Desk, asked: Escalation) -> None:
    path = sent(desk, asked)["approve"]
    good = path.split("/")[2]
    unknown = token_of(uuid.uuid4())
    wrong = [
        good[:-1] + ("A" if good[-1] != "A" else "B"),
        good.replace(".", ":"),
        good[1:],
        "x" * 5_000,
        unknown,
        "%00",
    ]
    told = {page(Client().get(f"/act/{token}/")).text("#nothing") for token in wrong}
    assert len(told) == 1
    assert all(Client().post(f"/act/{token}/").status_code == 404 for token in wrong)
    for _ in range(PATIENCE["links"].free - 2 * len(wrong)):
        Client().get("/act/guess/")
    held = Client().get(path)
    assert held.status_code == 429
    assert int(held["Retry-After"]) >= 1
    assert machine().post(path).status_code == 429
    assert Client(REMOTE_ADDR="10.0.0.9").get(path).status_code == 200
    assert link("approve").used_at is None


def test_by_links_too_two_persons_are_two(desk: Desk) -> None:
    policy = [{"tool": "send_invoice", "verdict": "hold", "approver": "two_persons"}]
    desk.version = scripted_profile(desk.owner, HELD, declared_tools=[SEND_INVOICE], policy=policy)
    asked = desk.held_call()
    alert = make_alert(desk.workspace, asked)
    first, again, other = (
        links_of(alert, make_endpoint(person, person))["approve"]
        for person in (desk.operator, desk.operator, desk.owner)
    )
    assert "first of two" in page(Client().post(first)).text("#said")
    assert standing(again) == (410, "decided")
    assert Client().post(again).status_code == 410
    asked.refresh_from_db()
    assert asked.status == "open"
    assert "You are the second" in page(Client().get(other)).text("#does")
    assert Client().post(other).status_code == 200
    assert Approval.objects.get().also_by == desk.operator


def test_one_person_is_not_two_by_a_link_that_many_read(desk: Desk, signed_in: SignIn) -> None:
    policy = [{"tool": "send_invoice", "verdict": "hold", "approver": "two_persons"}]
    desk.version = scripted_profile(desk.owner, HELD, declared_tools=[SEND_INVOICE], policy=policy)
    asked = desk.held_call()
    path = links_of(make_alert(desk.workspace, asked), make_endpoint(None, desk.staff))["approve"]
    answer_escalation(asked.pk, decision=Decision.APPROVE, actor=desk.operator)
    assert standing(path) == (403, "forbidden")
    assert Client().post(path).status_code == 403
    assert machine().post(path).status_code == 403
    assert "Sign in" in page(Client().get(path)).text("#refusal")
    assert signed_in(desk.operator).post(path).status_code == 410, "has approved already"
    assert not Approval.objects.exists()
    assert signed_in(desk.staff).post(path).status_code == 200
    assert Approval.objects.get().also_by == desk.operator


def test_a_link_of_the_sites_endpoint_acts_as_who_said_where_it_goes(desk: Desk, asked: Escalation) -> None:
    other = make_user(is_staff=True)
    site = make_endpoint(None, desk.staff, links=EndpointLinks.ACKNOWLEDGE)
    change_endpoint(site.pk, actor=other, name="renamed", links=EndpointLinks.ACKNOWLEDGE)
    site.refresh_from_db()
    assert site.created_by == desk.staff
    change_endpoint(site.pk, actor=other, name="renamed", links=EndpointLinks.ANSWER)
    site.refresh_from_db()
    links_of(make_alert(desk.workspace, asked), site)
    assert {each.acts_as for each in ActionLink.objects.all()} == {other}


def test_of_two_who_press_at_once_one_is_the_first(desk: Desk, asked: Escalation) -> None:
    path = sent(desk, asked)["approve"]
    together, seen = threading.Barrier(6), []

    def press() -> None:
        together.wait(30)
        seen.append(machine().post(path).status_code)
        connection.close()

    threads = [threading.Thread(target=press) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seen) == [200] + [410] * 5
    assert AuditEntry.objects.filter(action="link.approve").count() == 1


def test_no_line_of_a_log_holds_a_token(desk: Desk, asked: Escalation, caplog: pytest.LogCaptureFixture) -> None:
    path = sent(desk, asked)["approve"]
    token = path.split("/")[2]
    with caplog.at_level(logging.DEBUG), caplog.at_level(logging.INFO, logger="uvicorn.access"):
        Client().put(path)  # 405, told with its path
        Client().post(path)
        Client().post(path)  # 410
        Client(enforce_csrf_checks=True).post(path)
        logging.getLogger("uvicorn.access").info(
            '%s - "%s %s HTTP/%s" %d', "10.0.0.1:5000", "GET", f"{path}?a=1", "1.1", 200
        )
    line = ScrubbingFormatter("%(message)s")
    written = [line.format(record) for record in caplog.records]
    assert sum("/act/[secret]" in text for text in written) >= 4
    assert not any(token in text or token.split(".")[1] in text for text in written)
