"""The dialog of a task's limits: what holds and who says so, what is refused, and who may."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client

from tests.harness import add_member, events, make_user, make_workspace, scripted_task, work
from tests.providers.servers import KEY, MODEL, OTHER_MODEL, Plan, Server
from tests.web.pages import Page, page
from tests.web.people import Desk, sign_in
from workspaces.actions.clock import database_now
from workspaces.actions.profiles import create_profile
from workspaces.actions.retune import retune_task
from workspaces.actions.tasks import cancel_task, create_task
from workspaces.domain.roles import Role
from workspaces.models import Escalation, Task

pytestmark = pytest.mark.django_db(transaction=True)

HTMX = {"HTTP_HX_REQUEST": "true"}


def typed_in(found: Page, **changes: Any) -> dict[str, Any]:
    """What a browser would send of the dialog, with some fields changed."""
    sent = {
        field["name"]: field.get("value", "")
        for field in found.all("#limits-dialog input[name]")
        if field.get("type") != "checkbox" or field.has_attr("checked")
    }
    return {**sent, **changes}


def test_the_dialog_says_what_holds_and_where_it_comes_from(desk: Desk) -> None:
    task = desk.task()
    client = sign_in(desk.operator)
    found = page(client.get(f"/tasks/{task.pk}/limits/", **HTMX))
    assert found.one("#limits-steps")["value"] == str(task.max_steps)
    assert found.one("#limits-model")["placeholder"] == "scripted"
    assert "As the profile says" in found.text("#limits-steps-help")
    retune_task(task.pk, {"max_steps": 7, "model": "other"}, reason="short leash", actor=desk.owner)
    found = page(client.get(f"/tasks/{task.pk}/limits/"))  # without scripts: a page of its own
    assert found.one("#limits-model")["value"] == "other"
    told = found.text("#limits-steps-help")
    assert "This task’s own; the profile says 100" in told
    assert f"by {desk.owner.username}: short leash" in told
    assert "steps 7, model other" in page(client.get(f"/tasks/{task.pk}/")).text("#task-own-limits dd")


def test_a_change_lands_and_only_what_was_changed(desk: Desk) -> None:
    task = desk.task()
    client = sign_in(desk.operator)
    address = f"/tasks/{task.pk}/limits/"
    sent = typed_in(page(client.get(address)), max_output_tokens="777", interactive="1", reason="for a person")
    retune_task(task.pk, {"max_steps": 9}, reason="by somebody else meanwhile", actor=desk.owner)
    answer = client.post(address, sent, **HTMX)
    assert answer.status_code == 200
    assert "777" in page(answer).text("#task-header #task-own-limits")
    task.refresh_from_db()
    assert (task.max_output_tokens_override, task.interactive, task.max_steps) == (777, True, 9)
    assert {change["what"] for change in events(task, "task.retuned")[-1]["changes"]} == {
        "max_output_tokens",
        "interactive",
    }
    # an empty field is the profile's again
    sent = typed_in(page(client.get(address)), max_output_tokens="", reason="back")
    assert client.post(address, sent).status_code == 302
    task.refresh_from_db()
    assert task.max_output_tokens_override is None


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("max_steps", "0", "how many steps"),
        ("max_steps", "a few", "whole number"),
        ("deadline", "2001-01-01T00:00", "past already"),
        ("deadline", "soon", "date and a time"),
        ("max_output_tokens", "9999999", "less than the window"),
        ("reason", "", "Say why"),
    ],
)
def test_a_refused_form_keeps_what_was_typed(desk: Desk, field: str, value: str, words: str) -> None:
    task = desk.task()
    client = sign_in(desk.operator)
    address = f"/tasks/{task.pk}/limits/"
    base = {"max_steps": "12", "model": "other", "reason": "to see"}
    sent = typed_in(page(client.get(address)), **{**base, field: value})
    answer = client.post(address, sent, **HTMX)
    assert (answer.status_code, answer["HX-Retarget"]) == (422, "#dialog-slot")
    found = page(answer)
    assert words in found.text("#limits-dialog .errors")
    for name, kept in {**base, field: value}.items():
        assert found.one(f"#limits-dialog input[name={name}]")["value"] == kept
    assert page(client.post(address, sent)).one("#limits-dialog")["open"] == ""
    task.refresh_from_db()
    assert (task.max_steps, task.model_override) == (100, "")


def test_nothing_changed_or_changed_by_another_is_said_and_kept(desk: Desk) -> None:
    task = desk.task()
    client = sign_in(desk.operator)
    address = f"/tasks/{task.pk}/limits/"
    sent = typed_in(page(client.get(address)), reason="nothing")
    assert "Nothing was changed" in page(client.post(address, sent, **HTMX)).text("#form-errors")
    retune_task(task.pk, {"max_steps": 9}, reason="meanwhile", actor=desk.owner)
    found = page(client.post(address, {**sent, "max_steps": "11"}, **HTMX))
    assert "meanwhile, to 9" in found.text("#form-errors")
    assert found.one("#limits-steps")["value"] == "11"
    for nonsense in ("{", "[]", "null", '{"deadline": 5}', "[" * 5_000, json.dumps({"deadline": "x", "max_steps": {}})):
        answer = client.post(address, {**sent, "seen": nonsense}, **HTMX)
        assert answer.status_code in (200, 422), nonsense


def test_another_model_is_asked_first_whether_it_is_there() -> None:
    owner = make_user()
    with Server("openai") as server:
        version = create_profile(
            name="remote",
            workspace=None,
            actor=owner,
            api_key=KEY,
            provider="openai",
            base_url=server.base_url,
            model=MODEL,
            tools=["finish"],
            local_allowed=True,
        )
        task = create_task(
            workspace=make_workspace(owner), profile_version=version, instruction="Go.", actor=owner, hold=True
        )
        client, address = sign_in(owner), f"/tasks/{task.pk}/limits/"
        sent = typed_in(page(client.get(address)), model="nobody", reason="try")
        found = page(client.post(address, {**sent, "unchecked": "1"}, **HTMX))
        assert "knows no such model" in found.text("#limits-dialog .errors")
        assert "nobody does not exist" in found.text("#limits-dialog .errors")
        assert client.post(address, {**sent, "model": OTHER_MODEL}, **HTMX).status_code == 200
        task.refresh_from_db()
        assert task.model_override == OTHER_MODEL

        server.plans = [Plan(status=529, error={"message": "overloaded"})]
        sent = typed_in(page(client.get(address)), model=MODEL + "-2", reason="it is down")
        found = page(client.post(address, sent, **HTMX))
        assert "cannot be asked now" in found.text("#limits-dialog label.check:has([name=unchecked])")
        assert client.post(address, {**sent, "unchecked": "1"}, **HTMX).status_code == 200
        task.refresh_from_db()
        assert task.model_override == MODEL + "-2"


def test_operators_may_viewers_may_not_outsiders_see_nothing_and_an_ended_task_has_none(desk: Desk) -> None:
    task = desk.task()
    address = f"/tasks/{task.pk}/limits/"
    asked = {"max_steps": "5", "reason": "to see"}
    for user, status in ((desk.viewer, 403), (desk.outsider, 404), (desk.operator, 302), (desk.staff, 302)):
        client = sign_in(user)
        assert client.get(address).status_code == (200 if status == 302 else status)
        assert client.post(address, {**asked, "max_steps": str(5 + user.pk)}).status_code == status
    assert Client().post(address, asked).status_code == 302
    assert page(sign_in(desk.viewer).get(f"/tasks/{task.pk}/")).all("#control-limits") == []
    cancel_task(task.pk, reason="over", actor=desk.owner)
    client = sign_in(desk.operator)
    assert page(client.get(f"/tasks/{task.pk}/")).all("#control-limits") == []
    refused = page(client.post(address, asked, **HTMX))
    assert "it was cancelled" in refused.text("#form-errors")


def test_the_card_of_a_passed_deadline_gives_more_time(desk: Desk) -> None:
    task = desk.task(hold=False)
    Task.objects.filter(pk=task.pk).update(deadline=database_now() - timedelta(seconds=1))
    task = work(task)
    asked = Escalation.objects.get(task=task)
    client = sign_in(desk.operator)
    card = page(client.get("/inbox/"))
    assert card.text(f"#escalation-{asked.pk} h2") == "The time is up"
    assert card.one("[name=extra_minutes]")["value"] == "60"
    address = f"/escalations/{asked.pk}/answer/"
    refused = page(client.post(address, {"decision": "extend", "extra_minutes": "²"}, **HTMX))
    assert "whole minutes" in refused.text("[role=alert]")
    assert refused.one("[name=extra_minutes]")["value"] == "²"
    assert client.post(address, {"decision": "extend", "extra_minutes": "30"}, **HTMX).status_code == 200
    task.refresh_from_db()
    assert task.status == "queued"
    assert task.deadline is not None
    assert task.deadline > database_now() + timedelta(minutes=29)


def test_the_rollback_says_which_own_limits_stay(desk: Desk, django_assert_max_num_queries: Any) -> None:
    task = work(scripted_task("replies: [{calls: [{name: ask_operator, arguments: {question: what}}]}]"))
    add_member(task.workspace, desk.operator, Role.OPERATOR)
    retune_task(task.pk, {"max_output_tokens": 500}, reason="short", actor=desk.owner)
    client = sign_in(desk.operator)
    seq = page(client.get(f"/tasks/{task.pk}/")).one("#control-rollback")["href"]
    assert "output limit 500 tokens" in page(client.get(seq)).text("#rollback-limits")
    with django_assert_max_num_queries(17):
        client.get(f"/tasks/{task.pk}/limits/")


def test_a_new_task_may_be_given_limits_of_its_own(desk: Desk) -> None:
    client = sign_in(desk.operator)
    asked = {"workspace": desk.workspace.pk, "profile": desk.version.pk, "instruction": "Go.", "hold": "1"}
    deadline = database_now() + timedelta(hours=3)
    own = {"max_steps": "12", "deadline": f"{deadline:%Y-%m-%dT%H:%M}", "interactive": "1"}
    refused = client.post("/tasks/new/", {**asked, **own, "max_steps": "-1", "deadline": "1999-01-01T00:00"})
    assert refused.status_code == 422
    found = page(refused)
    assert found.one("details.more-fields").has_attr("open")
    assert found.one("[name=deadline]")["value"] == "1999-01-01T00:00"
    assert {"past" in error.text or "how many steps" in error.text for error in found.all(".more-fields .errors")} == {
        True
    }
    assert not Task.objects.exists()

    assert client.post("/tasks/new/", {**asked, **own}).status_code == 302
    task = Task.objects.get()
    assert (task.max_steps, task.interactive) == (12, True)
    assert task.deadline is not None
    assert abs(task.deadline - deadline) < timedelta(minutes=1)
    assert [change["what"] for change in events(task, "task.retuned")[0]["changes"]] == [
        "max_steps",
        "deadline",
        "interactive",
    ]
    assert client.post("/tasks/new/", asked).status_code == 302
    plain = Task.objects.exclude(pk=task.pk).get()
    assert (plain.max_steps, plain.deadline, events(plain, "task.retuned")) == (100, None, [])
