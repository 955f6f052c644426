"""Going back and forking: what the dialog says beforehand, and what comes of it."""

from __future__ import annotations

from typing import Any

import pytest
from django.db.models.functions import Now

from tests.harness import SEND_INVOICE, check_history, scripted_profile, work
from tests.web.pages import page, words
from tests.web.people import HELD, Desk
from tests.web.worked import finished_task
from workspaces.actions.escalations import answer_escalation
from workspaces.actions.rollbacks import roll_back
from workspaces.domain.escalations import Decision
from workspaces.engine.boxes import sandbox_for
from workspaces.models import Checkpoint, Message, Snapshot, StandingApproval, Task

pytestmark = pytest.mark.django_db(transaction=True)

HX = {"HTTP_HX_REQUEST": "true"}


def checkpoint_after(task: Task, step: int) -> Checkpoint:
    return Checkpoint.objects.filter(task=task, step_number=step).order_by("-seq")[0]


def address(checkpoint: Checkpoint, deed: str = "rollback") -> str:
    return f"/tasks/{checkpoint.task_id}/checkpoints/{checkpoint.seq}/{deed}/"


def test_a_rollback_says_beforehand_what_it_undoes(desk: Desk, signed_in: Any) -> None:
    task = finished_task(desk)
    seen = page(signed_in(desk.operator).get(address(checkpoint_after(task, 1)), **HX))
    assert "2 changed since then" in seen.text(".key-value")
    files = [words(item) for item in seen.all(".file-changes li")]
    assert "changed hello.txt" in files
    assert "added data/noise.bin" in files
    assert seen.one("#rollback-reason").has_attr("required")
    assert "was not saved and goes too" in seen.text("dialog")
    assert "no call since then acted outside" in seen.text("dialog")


def test_an_effect_that_cannot_be_undone_is_named(desk: Desk, signed_in: Any) -> None:
    escalation = desk.held_call()
    answer_escalation(escalation.pk, decision=Decision.APPROVE, actor=desk.operator)
    task = work(escalation.task)
    first = Checkpoint.objects.filter(task=task).order_by("seq")[0]
    seen = page(signed_in(desk.operator).get(address(first), **HX))
    told = seen.text("dialog")
    assert "1 effect outside the sandbox cannot be taken back" in told
    assert "send_invoice irreversible" in told


VOID = {**SEND_INVOICE, "name": "void_invoice", "effect": "external", "command": "echo void"}


@pytest.mark.parametrize(("compensation", "told"), [("void_invoice", "the tool void_invoice"), ("Ask Ann.", "Ask Ann")])
def test_a_declared_compensation_is_named_and_told_the_agent_if_that_is_ticked(
    desk: Desk, signed_in: Any, compensation: str, told: str
) -> None:
    tools = [{**SEND_INVOICE, "compensation": compensation}, VOID]
    desk.version = scripted_profile(desk.owner, HELD, declared_tools=tools)
    escalation = desk.held_call()
    answer_escalation(escalation.pk, decision=Decision.APPROVE, actor=desk.operator)
    task = work(escalation.task)
    first = Checkpoint.objects.filter(task=task).order_by("seq")[0]
    client = signed_in(desk.operator)
    assert f"compensation: {compensation}" in page(client.get(address(first), **HX)).text("dialog")
    dialog = page(client.get(address(first, "fork"), **HX))
    assert f"compensation: {compensation}" in dialog.text("dialog")
    refused = page(client.post(address(first), {"reason": "", "tell": "1"}))
    assert refused.one("[name=tell]").has_attr("checked")
    client.post(address(first, "fork"), {"reason": "try", "tell": "1", "hold": "1"}, **HX)
    assert client.post(address(first), {"reason": "again", "tell": "1"}, **HX).status_code == 200
    for each in (task, Task.objects.get(forked_from=task)):
        message = Message.objects.filter(task=each, content__contains="They stand").get()
        assert message.pinned
        assert f"done. {'Its declared compensation is ' if 'tool' in told else ''}{told}" in message.content
        check_history(each)


def test_an_effect_is_named_with_the_arguments_that_an_operator_made_of_it(desk: Desk, signed_in: Any) -> None:
    escalation = desk.held_call()
    edited = {"customer": "ACME", "amount": 999}
    answer_escalation(escalation.pk, decision=Decision.EDIT, arguments=edited, actor=desk.operator)
    task = work(escalation.task)
    first = Checkpoint.objects.filter(task=task).order_by("seq")[0]
    client = signed_in(desk.operator)
    assert '"amount": 999' in page(client.get(address(first), **HX)).text("dialog")
    client.post(address(first), {"reason": "again", "tell": "1"}, **HX)
    assert '"amount": 999' in Message.objects.get(task=task, content__contains="They stand").content


def test_without_the_tick_the_agent_is_told_nothing(desk: Desk, signed_in: Any) -> None:
    escalation = desk.held_call()
    answer_escalation(escalation.pk, decision=Decision.APPROVE, actor=desk.operator)
    task = work(escalation.task)
    first = Checkpoint.objects.filter(task=task).order_by("seq")[0]
    signed_in(desk.operator).post(address(first), {"reason": "again"}, **HX)
    assert not Message.objects.filter(content__contains="They stand").exists()


def test_what_is_allowed_for_always_is_listed_and_revoked(desk: Desk, signed_in: Any) -> None:
    escalation = desk.held_call()
    answer_escalation(escalation.pk, decision=Decision.ALWAYS, actor=desk.operator, words="monthly")
    task = work(escalation.task)
    standing = StandingApproval.objects.get()
    shown = page(signed_in(desk.viewer).get(f"/tasks/{task.pk}/?panel=checkpoints"))
    assert "monthly" in shown.text("#standing-approvals")
    shown.none("#standing-approvals form")
    revoke = f"/tasks/{task.pk}/approvals/{standing.pk}/revoke/"
    assert signed_in(desk.viewer).post(revoke, {"reason": "x"}).status_code == 403
    assert signed_in(desk.outsider).post(revoke, {"reason": "x"}).status_code == 404
    client = signed_in(desk.operator)
    assert client.get(revoke).status_code == 405
    assert client.post(revoke, {"reason": " "}, **HX).status_code == 409
    other = desk.task()
    assert client.post(f"/tasks/{other.pk}/approvals/{standing.pk}/revoke/", {"reason": "x"}).status_code == 404
    assert StandingApproval.objects.get().revoked_at is None
    assert client.post(revoke, {"reason": "enough"}).status_code == 302
    page(client.get(f"/tasks/{task.pk}/?panel=checkpoints")).none("#standing-approvals")
    assert client.post(revoke, {"reason": "enough"}, **HX).status_code == 409


def test_a_rollback_happens_with_a_reason_only(desk: Desk, signed_in: Any) -> None:
    task = finished_task(desk)
    client = signed_in(desk.operator)
    target = checkpoint_after(task, 1)
    refused = client.post(address(target), {"reason": " "}, **HX)
    assert refused.status_code == 409
    assert refused["HX-Retarget"] == "#notice", "the dialog stays as it is, with what was typed"
    kept = client.post(address(target), {"reason": ""})
    assert kept.status_code == 409
    assert not page(kept).one("dialog[open] form").has_attr("hx-post"), "on a page of its own it is a plain form"
    done = client.post(address(target), {"reason": "try again"}, **HX)
    assert page(done).text("#task-header #task-status") == "paused"
    work(task)
    assert sandbox_for(task.workspace).read("hello.txt") == b"one\n"
    seen = page(client.get(f"/tasks/{task.pk}/"))
    assert any("abandoned" in words(row) for row in seen.all(".event"))
    assert [words(option) for option in seen.all("#filter-branch option")][1:] == ["branch 1", "branch 2"]
    old = page(client.get(f"/tasks/{task.pk}/trace/?branch=1&before={target.seq + 1}", **HX))
    assert not [row for row in old.all(".event") if "abandoned" in words(row)], "what came before is still history"


def test_two_operators_at_once_get_a_clear_word(desk: Desk, signed_in: Any) -> None:
    task = finished_task(desk)
    first, second = signed_in(desk.operator), signed_in(desk.owner)
    first.post(address(checkpoint_after(task, 1)), {"reason": "me"}, **HX)
    first.post(f"/tasks/{task.pk}/resume/", **HX)
    late = second.post(address(checkpoint_after(task, 2)), {"reason": "me too"}, **HX)
    assert late.status_code == 409
    assert "Pause it first" in page(late).text(".notice")


def test_a_fork_goes_its_own_way_with_what_was_added(desk: Desk, signed_in: Any) -> None:
    task = finished_task(desk)
    target = checkpoint_after(task, 2)
    client = signed_in(desk.operator)
    page(client.get(address(target, "fork"), **HX)).one("#fork-dialog textarea[name=instruction]")
    refused = client.post(address(target, "fork"), {"reason": "", "instruction": "keep me"})
    assert page(refused).one("textarea").get_text().strip() == "keep me"
    made = client.post(address(target, "fork"), {"reason": "b", "instruction": "Speak French.", "hold": "1"}, **HX)
    fork = Task.objects.get(forked_from=task)
    assert made["HX-Redirect"] == f"/tasks/{fork.pk}/"
    assert fork.status == "paused"
    assert "Speak French." in fork.messages.get(role="user").content


@pytest.mark.parametrize("deed", ["rollback", "fork"])
def test_only_operators_may(desk: Desk, signed_in: Any, deed: str) -> None:
    task = finished_task(desk)
    target = address(checkpoint_after(task, 1), deed)
    for method in ("get", "post"):
        assert getattr(signed_in(desk.viewer), method)(target, {"reason": "x"}, **HX).status_code == 403
        assert getattr(signed_in(desk.outsider), method)(target, {"reason": "x"}, **HX).status_code == 404
    assert signed_in(desk.operator).get(f"/tasks/{task.pk}/checkpoints/999999/{deed}/", **HX).status_code == 404
    task.refresh_from_db()
    assert task.status == "succeeded"


def test_the_list_marks_what_a_rollback_left_behind(desk: Desk, signed_in: Any) -> None:
    task = finished_task(desk)
    roll_back(checkpoint_after(task, 2).pk, reason="back", actor=desk.operator)
    seen = page(signed_in(desk.viewer).get(f"/tasks/{task.pk}/panels/checkpoints/", **HX))
    left = [words(row.select_one("td:nth-of-type(3)")) for row in seen.all("tr.abandoned")]
    after = Checkpoint.objects.filter(task=task, branch__number=1, step_number__gt=2)
    assert sorted(left) == sorted(f"#{each.seq}" for each in after)
    assert "back" in seen.text(".branch-list")


def test_another_checkpoint_can_be_picked_in_the_dialog(desk: Desk, signed_in: Any) -> None:
    task = finished_task(desk)
    client = signed_in(desk.operator)
    target = checkpoint_after(task, 3)
    response = client.get(f"/tasks/{task.pk}/rollback/", {"to": target.seq, "reason": "so far"}, follow=True, **HX)
    seen = page(response)
    assert seen.one("form")["hx-post"] == address(target)
    assert seen.one("#rollback-reason")["value"] == "so far"
    assert len(seen.all("#rollback-to option")) == Checkpoint.objects.filter(task=task).count()
    assert client.get(f"/tasks/{task.pk}/rollback/?to=x", **HX).status_code == 404


def test_a_checkpoint_whose_files_are_no_longer_kept_is_told_and_not_offered(desk: Desk, signed_in: Any) -> None:
    task = finished_task(desk)
    gone = checkpoint_after(task, 1)
    Snapshot.objects.filter(pk=gone.snapshot_id).update(dropped_at=Now())
    client = signed_in(desk.operator)
    listed = page(client.get(f"/tasks/{task.pk}/panels/checkpoints/", **HX))
    rows = [words(row) for row in listed.all(".checkpoint-table tbody tr")]
    kept = Checkpoint.objects.filter(task=task).exclude(snapshot=gone.snapshot_id)
    assert sum("no longer kept" in row for row in rows) == len(rows) - kept.count() > 0
    assert sum("back…" in row for row in rows) == kept.count()
    for deed in ("rollback", "fork"):
        refused = client.get(address(gone, deed), **HX)
        assert refused.status_code == 409
        assert "no longer kept" in refused.content.decode()
        assert client.post(address(gone, deed), {"reason": "back"}, **HX).status_code == 409
    choices = page(client.get(address(kept.order_by("-seq")[0]), **HX)).all("#rollback-to option")
    assert str(gone.seq) not in {option["value"] for option in choices}
    files = page(client.get(f"/tasks/{task.pk}/panels/files/", **HX)).all("#files-at option")
    assert str(gone.seq) not in {option["value"] for option in files}
