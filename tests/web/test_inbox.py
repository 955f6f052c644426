"""The inbox: open questions by deadline, answered once, with what was typed kept when refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from tests.harness import SEND_INVOICE, scripted_profile, work
from tests.web.pages import page
from tests.web.people import HELD, Desk
from workspaces.domain.states import EscalationKind, TaskStatus
from workspaces.models import Approval, Escalation, StandingApproval, ToolCall, User

pytestmark = pytest.mark.django_db(transaction=True)  # the engine opens connections of its own

SignIn = Callable[[User], Client]
HTMX = {"HX-Request": "true"}


def answer(client: Client, escalation: Escalation, **form: Any) -> Any:
    return client.post(f"/escalations/{escalation.pk}/answer/", form, headers=HTMX)


def test_an_operator_gets_the_card_with_its_controls_and_a_viewer_without(desk: Desk, signed_in: SignIn) -> None:
    escalation = desk.held_call()
    card = f"#escalation-{escalation.pk}"
    operators = page(signed_in(desk.operator).get("/inbox/"))
    assert json.loads(operators.one(f"{card} .call pre").get_text()) == {"customer": "ACME", "amount": 10}
    assert [tag["value"] for tag in operators.all(f"{card} [name=decision]")] == [
        "approve",
        "edit",
        "always",
        "reject",
        "answer",
    ]
    assert operators.text("#open-count") == "1 open"
    viewers = page(signed_in(desk.viewer).get("/inbox/"))
    viewers.one(card)
    viewers.none(f"{card} form")


@pytest.mark.parametrize("kind", list(EscalationKind))
def test_a_question_of_every_kind_has_its_card(kind: EscalationKind, desk: Desk, signed_in: SignIn) -> None:
    now = timezone.now()
    task = desk.task()
    Escalation.objects.create(task=task, kind=kind.value, question="What now?", opened_at=now, deadline=now)
    client = signed_in(desk.operator)
    for address in ("/inbox/", f"/tasks/{task.pk}/"):
        card = page(client.get(address)).one("article.escalation")
        assert card.find("h2").get_text().strip()


def test_an_outsider_sees_no_question_and_cannot_answer_one(desk: Desk, signed_in: SignIn) -> None:
    escalation = desk.held_call()
    outside = signed_in(desk.outsider)
    page(outside.get("/inbox/")).none("article.escalation")
    page(outside.get("/inbox/?tab=closed")).none("article.escalation")
    assert answer(outside, escalation, decision="approve").status_code == 404
    assert Escalation.objects.get().status == "open"


def test_a_viewer_may_not_answer(desk: Desk, signed_in: SignIn) -> None:
    response = answer(signed_in(desk.viewer), desk.held_call(), decision="approve")
    assert response.status_code == 403
    assert "viewer" in page(response).text(".notice")
    assert Escalation.objects.get().status == "open"


def test_answers_are_posts(desk: Desk, signed_in: SignIn) -> None:
    escalation = desk.held_call()
    assert signed_in(desk.operator).get(f"/escalations/{escalation.pk}/answer/").status_code == 405


def test_approving_answers_the_card_and_the_task_goes_on(desk: Desk, signed_in: SignIn) -> None:
    escalation = desk.held_call()
    response = answer(signed_in(desk.operator), escalation, decision="approve")
    assert response.status_code == 200
    card = page(response)
    assert f"{desk.operator} answered Approve" in card.text(".answered")
    card.none("form")
    assert work(escalation.task).status == TaskStatus.SUCCEEDED.value
    assert Approval.objects.get().used_at is not None


def test_the_second_operator_is_told_who_was_first(desk: Desk, signed_in: SignIn) -> None:
    escalation = desk.held_call()
    answer(signed_in(desk.operator), escalation, decision="approve")
    response = answer(signed_in(desk.owner), escalation, decision="reject", words="No!")
    assert response.status_code == 409
    assert str(desk.operator) in page(response).text(".notice-error")
    assert "already answered" in page(response).text(".notice-error")
    assert Escalation.objects.get().decision == "approve"


def test_an_edit_runs_with_the_edited_arguments(desk: Desk, signed_in: SignIn) -> None:
    escalation = desk.held_call()
    edited = {"customer": "ACME", "amount": 7.5}
    assert (
        answer(signed_in(desk.operator), escalation, decision="edit", arguments=json.dumps(edited)).status_code == 200
    )
    call = ToolCall.objects.get(pk=escalation.tool_call_id)
    assert call.arguments == edited
    assert call.proposed_arguments == {"customer": "ACME", "amount": 10}


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ('{"customer": ', "not JSON"),
        ("[1]", "one JSON object"),
        ('{"customer": "ACME", "amount": -1}', "amount"),
        ('{"customer": "ACME", "amount": NaN}', "not JSON"),
        ("[" * 100_000, "not JSON"),
        ('{"customer": "ACME", "amount": 1e999}', "finite"),
        ('{"customer": ' + "[" * 900 + "]" * 900 + "}", "nested too deeply"),
    ],
)
def test_a_refused_edit_keeps_what_was_typed(desk: Desk, signed_in: SignIn, typed: str, told: str) -> None:
    escalation = desk.held_call()
    response = answer(signed_in(desk.operator), escalation, decision="edit", arguments=typed)
    assert response.status_code == 409
    assert response.headers["HX-Retarget"] == f"#escalation-{escalation.pk}"
    card = page(response)
    assert told in card.text(".notice-error")
    assert card.one("textarea[name=arguments]").get_text() == typed
    assert card.one("details[open]")["id"] == f"decide-{escalation.pk}-edit"
    assert Escalation.objects.get().status == "open"


@pytest.mark.parametrize("decision", ["reject", "answer", "continue", "nonsense", ""])
def test_an_answer_that_does_not_fit_is_refused(desk: Desk, signed_in: SignIn, decision: str) -> None:
    response = answer(signed_in(desk.operator), desk.held_call(), decision=decision)
    assert response.status_code == 409
    assert Escalation.objects.get().status == "open"


def test_rejected_words_reach_the_agent_and_the_closed_tab(desk: Desk, signed_in: SignIn) -> None:
    escalation = desk.held_call()
    answer(signed_in(desk.operator), escalation, decision="reject", words="Ask <b>sales</b> first.")
    closed = page(signed_in(desk.viewer).get("/inbox/?tab=closed"))
    assert closed.text(f"#escalation-{escalation.pk} blockquote") == "Ask <b>sales</b> first."
    assert "Nothing waits for you" in page(signed_in(desk.viewer).get("/inbox/")).text("#inbox-list .empty h2")


def two_persons(desk: Desk) -> Escalation:
    policy = [{"tool": "send_invoice", "verdict": "hold", "approver": "two_persons", "on_expiry": "escalate"}]
    desk.version = scripted_profile(desk.owner, HELD, declared_tools=[SEND_INVOICE], policy=policy)
    return desk.held_call()


def test_two_persons_approve_on_the_same_card(desk: Desk, signed_in: SignIn) -> None:
    escalation = two_persons(desk)
    first = page(answer(signed_in(desk.operator), escalation, decision="approve"))
    assert "Two persons have to approve it" in first.text(".notice-inline")
    assert f"{desk.operator} approved exactly these arguments" in first.text(".notice-inline")
    first.none("button[value=always], input[value=always]")
    first.none("button[value=approve]")
    assert "an owner is asked, with a new deadline" in first.text(".expiry")
    again = answer(signed_in(desk.operator), escalation, decision="approve")
    assert (again.status_code, "second person" in page(again).text(".notice-error")) == (409, True)
    second = page(answer(signed_in(desk.owner), escalation, decision="approve"))
    assert f"{desk.owner} answered Approve , after {desk.operator}" in second.text(".answered")
    assert work(escalation.task).status == TaskStatus.SUCCEEDED.value


def test_nobody_approves_arguments_that_were_edited_under_their_eyes(desk: Desk, signed_in: SignIn) -> None:
    escalation = two_persons(desk)
    seen = page(signed_in(desk.owner).get("/inbox/")).all("input[name=seen]")[0]["value"]
    edited = json.dumps({"customer": "ACME", "amount": 999})
    card = page(answer(signed_in(desk.operator), escalation, decision="edit", arguments=edited))
    assert card.text("pre.diff .diff-add") == '+ "amount": 999,'
    late = answer(signed_in(desk.owner), escalation, decision="approve", seen=seen)
    assert late.status_code == 409
    assert "edited the arguments meanwhile" in page(late).text(".notice-error")
    now_seen = page(late).all("input[name=seen]")[0]["value"]
    assert answer(signed_in(desk.owner), escalation, decision="approve", seen=now_seen).status_code == 200
    assert work(escalation.task).status == TaskStatus.SUCCEEDED.value


def test_always_allowing_an_irreversible_call_says_what_that_means(desk: Desk, signed_in: SignIn) -> None:
    escalation = desk.held_call()
    card = page(signed_in(desk.operator).get("/inbox/"))
    said = card.text(f"#decide-{escalation.pk}-always .help")
    assert "cannot be undone, and it will be done each time without a person" in said
    assert answer(signed_in(desk.operator), escalation, decision="always").status_code == 409
    assert answer(signed_in(desk.operator), escalation, decision="always", words="monthly").status_code == 200
    assert StandingApproval.objects.get().given_by == desk.operator
