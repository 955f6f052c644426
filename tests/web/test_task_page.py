"""A task's page and its controls, for everyone who may and may not."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from tests.harness import work
from tests.web.pages import page, words
from tests.web.people import Desk
from tests.web.worked import finished_task, with_many_events
from workspaces.models import AuditEntry, Message, Task

pytestmark = pytest.mark.django_db(transaction=True)

HX = {"HTTP_HX_REQUEST": "true"}


def test_the_head_says_state_hold_and_sums(desk: Desk, signed_in: Any) -> None:
    task = desk.task("Do the work.")
    seen = page(signed_in(desk.operator).get(f"/tasks/{task.pk}/"))
    assert seen.text("#task-status") == "paused"
    assert "created on hold" in seen.text("#task-waiting")
    assert seen.text("h1") == "Do the work."
    assert "0 / 100" in seen.text(".task-facts")


def test_controls_fit_the_state(desk: Desk, signed_in: Any) -> None:
    held = page(signed_in(desk.operator).get(f"/tasks/{desk.task().pk}/"))
    assert held.one("#control-pause").has_attr("disabled")
    assert not held.one("#control-resume").has_attr("disabled")
    ended = page(signed_in(desk.operator).get(f"/tasks/{finished_task(desk).pk}/"))
    ended.none("#control-pause")
    ended.none("#control-cancel")
    assert ended.one("#control-rollback").has_attr("href")


def test_a_finished_task_shows_its_result_and_its_whole_trace(desk: Desk, signed_in: Any) -> None:
    task = finished_task(desk)
    seen = page(signed_in(desk.viewer).get(f"/tasks/{task.pk}/"))
    assert "hello.txt says two" in seen.text("#task-result")
    rows = [int(str(row["data-seq"])) for row in seen.all("#trace > .event")]
    assert rows == list(range(task.last_seq, task.last_seq - len(rows), -1)), "newest first, without gaps"
    assert seen.one("#live")["data-after"] == str(task.last_seq)
    assert "branch" not in seen.text(".trace-filters"), "one branch needs no filter"


def test_an_open_question_stands_on_top_of_the_page(desk: Desk, signed_in: Any) -> None:
    escalation = desk.held_call()
    seen = page(signed_in(desk.operator).get(f"/tasks/{escalation.task_id}/"))
    assert "send_invoice" in seen.text(f"#task-escalations #escalation-{escalation.pk}")
    assert "operator" in seen.text("#task-waiting")


@pytest.mark.parametrize("address", ["", "header/", "panels/context/", "usage.json", "trace/", "files/", "diff/"])
def test_an_outsider_finds_nothing(desk: Desk, signed_in: Any, address: str) -> None:
    task = desk.task()
    assert signed_in(desk.outsider).get(f"/tasks/{task.pk}/{address}", **HX).status_code == 404


@pytest.mark.parametrize("deed", ["pause", "resume", "cancel", "message", "note"])
def test_steering_is_for_operators_and_by_post(desk: Desk, signed_in: Any, deed: str) -> None:
    task = desk.task()
    fields = {"reason": "why", "text": "words", "section": "plan"}
    address = f"/tasks/{task.pk}/{deed}/"
    assert signed_in(desk.operator).get(address).status_code == 405
    assert signed_in(desk.viewer).post(address, fields, **HX).status_code == 403
    assert signed_in(desk.outsider).post(address, fields, **HX).status_code == 404
    task.refresh_from_db()
    assert task.status == "paused"
    assert not Message.objects.filter(task=task, author=desk.viewer).exists()


def test_a_viewer_sees_no_controls(desk: Desk, signed_in: Any) -> None:
    seen = page(signed_in(desk.viewer).get(f"/tasks/{finished_task(desk).pk}/"))
    seen.none(".task-controls")
    seen.none("#cancel-dialog")
    assert not [link for link in seen.all("#trace a") if "roll back" in words(link)]
    assert "viewing only" in seen.text("#task-header")


def test_resume_and_pause_answer_with_the_fresh_head(desk: Desk, signed_in: Any) -> None:
    task = desk.task()
    client = signed_in(desk.operator)
    resumed = page(client.post(f"/tasks/{task.pk}/resume/", **HX))
    assert resumed.text("#task-header #task-status") == "queued"
    paused = page(client.post(f"/tasks/{task.pk}/pause/", {"mode": "now"}, **HX))
    assert paused.text("#task-header #task-status") == "paused"
    again = client.post(f"/tasks/{task.pk}/pause/", **HX)
    assert again.status_code == 409
    assert "already paused" in page(again).text(".notice")
    assert again["HX-Retarget"] == "#notice"


def test_the_head_says_how_long_and_at_which_step_of_its_branch(desk: Desk, signed_in: Any) -> None:
    task = finished_task(desk)
    steps = task.steps_taken
    Task.objects.filter(pk=task.pk).update(
        status_since=timezone.now() - timedelta(seconds=90), steps_taken=steps + 5
    )  # as a rollback leaves it: more were taken than this branch has
    head = page(signed_in(desk.viewer).get(f"/tasks/{task.pk}/header/"))
    assert "for 1 min" in head.text(".task-title")
    assert f"Step {steps} / {task.max_steps}" in head.text(".task-facts")


def test_without_scripts_a_control_leads_back_to_the_page(desk: Desk, signed_in: Any) -> None:
    task = desk.task()
    response = signed_in(desk.operator).post(f"/tasks/{task.pk}/resume/")
    assert response.status_code == 302
    assert response["Location"] == f"/tasks/{task.pk}/"


def test_cancel_needs_a_reason_and_keeps_it(desk: Desk, signed_in: Any) -> None:
    task = desk.task()
    client = signed_in(desk.operator)
    refused = client.post(f"/tasks/{task.pk}/cancel/", {"reason": "  "}, **HX)
    assert refused.status_code == 409
    assert page(client.post(f"/tasks/{task.pk}/cancel/", {"reason": "wrong plan"}, **HX)).text("#task-status") == (
        "cancelled"
    )
    assert AuditEntry.objects.get(task=task, action="task.cancel").reason == "wrong plan"
    ended = client.post(f"/tasks/{task.pk}/message/", {"text": "hello?"}, **HX)
    assert ended.status_code == 409
    assert "cancelled" in page(ended).text(".notice")


def test_a_message_and_a_note_reach_the_agent(desk: Desk, signed_in: Any) -> None:
    task = desk.task()
    client = signed_in(desk.operator)
    assert client.post(f"/tasks/{task.pk}/message/", {"text": "Mind the \x00 gap"}, **HX).status_code == 200
    message = Message.objects.get(task=task, author=desk.operator, pinned=True, seq__gt=1)
    assert message.content.startswith("Message from the operator: Mind the")
    pad = page(client.post(f"/tasks/{task.pk}/note/", {"section": "plan", "text": "1. <b>look</b>"}, **HX))
    assert pad.text("#scratchpad .note pre") == "1. <b>look</b>", "an agent's text is never markup"


def test_lineage_is_linked_both_ways(desk: Desk, signed_in: Any) -> None:
    task = finished_task(desk)
    seq = task.checkpoints.order_by("seq").first().seq
    client = signed_in(desk.operator)
    client.post(f"/tasks/{task.pk}/checkpoints/{seq}/fork/", {"reason": "try"}, **HX)
    made = Task.objects.get(forked_from=task)
    assert f"task {made.pk}" in page(client.get(f"/tasks/{task.pk}/")).text(".crumbs")
    assert f"fork of task {task.pk}" in page(client.get(f"/tasks/{made.pk}/")).text(".crumbs")


@pytest.mark.parametrize("panel", ["context", "scratchpad", "files", "checkpoints"])
def test_each_panel_shows_something_also_when_empty(desk: Desk, signed_in: Any, panel: str) -> None:
    client = signed_in(desk.viewer)
    for task in (desk.task(), finished_task(desk)):
        seen = page(client.get(f"/tasks/{task.pk}/panels/{panel}/", **HX))
        assert seen.one(f"#{panel}").get_text(strip=True)
        assert seen.one("[aria-current]")["data-panel"] == panel
    assert client.get(f"/tasks/{task.pk}/panels/nothing/", **HX).status_code == 404


def test_the_context_panel_adds_up(desk: Desk, signed_in: Any) -> None:
    task = finished_task(desk)
    seen = page(signed_in(desk.viewer).get(f"/tasks/{task.pk}/panels/context/", **HX))
    bars = seen.all(".window-bar rect")
    assert sum(float(str(bar["width"])) for bar in bars) == pytest.approx(100, abs=0.1)
    for address in {str(link["href"]) for link in seen.all(".window-bar a")}:
        assert signed_in(desk.viewer).get(address).status_code == 200
    newest = [cell.get_text(strip=True) for cell in seen.all(".usage-table tbody tr:first-child td")]
    assert newest[3].endswith("%"), "what was expected beside what was counted"
    assert len(seen.all(".usage-table tbody tr")) == 6
    figure = signed_in(desk.viewer).get(f"/tasks/{task.pk}/usage.json").json()
    assert len(figure["data"][0]["x"]) == 6


def test_ten_thousand_events_open_in_under_a_second_with_few_queries(desk: Desk, signed_in: Any) -> None:
    task = with_many_events(work(desk.task(hold=False)), 10_000)
    client = signed_in(desk.operator)
    client.get(f"/tasks/{task.pk}/")  # templates are compiled once a process
    with CaptureQueriesContext(
        connection,
    ) as queries:
        started = time.perf_counter()
        seen = page(response := client.get(f"/tasks/{task.pk}/"))
        took_s = time.perf_counter() - started
    assert took_s < 1.0
    assert len(queries) < 30
    assert len(seen.all("#trace > .event")) == 60
    assert len(response.content) < 400_000
    for query in (f"before={task.last_seq - 5000}", "group=checkpoints", "group=people", "branch=1"):
        started = time.perf_counter()
        assert client.get(f"/tasks/{task.pk}/trace/?{query}", **HX).status_code == 200
        assert time.perf_counter() - started < 1.0


def test_what_a_pause_froze_is_not_said_to_run(desk: Desk, signed_in: Any) -> None:
    task = finished_task(desk)
    task.tool_calls.filter(name="shell").update(status="running")
    client = signed_in(desk.viewer)
    assert "shell is running" in page(client.get(f"/tasks/{task.pk}/")).text("#latest")
    Task.objects.filter(pk=task.pk).update(status="paused")
    assert "shell is frozen where it stood" in page(client.get(f"/tasks/{task.pk}/")).text("#latest")
