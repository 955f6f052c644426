"""The pages that show what a model was sent: exact, in order, comparable, and only to those who may see the task."""

from __future__ import annotations

import time
from typing import Any

import pytest
from django.utils import timezone

from tests.harness import make_workspace, scripted_profile, work
from tests.web.pages import page
from tests.web.people import Desk
from tests.web.worked import finished_task
from workspaces.actions.rollbacks import roll_back
from workspaces.actions.tasks import create_task
from workspaces.actions.truncation import prompt_was_cut
from workspaces.domain.truncation import SentCall
from workspaces.models import Checkpoint, Event, Incident, Message, ModelCall, Step, Task
from workspaces.queries.contexts import items_in, request_of

pytestmark = pytest.mark.django_db(transaction=True)

HX = {"HTTP_HX_REQUEST": "true"}


def test_the_context_of_a_step_is_every_part_in_the_order_sent(desk: Desk, signed_in: Any) -> None:
    task = finished_task(desk)
    seen = page(signed_in(desk.viewer).get(f"/tasks/{task.pk}/steps/5/context/"))
    assert "equals the one of what was sent" in seen.text("#context-proof")
    step = Step.objects.get(task=task, number=5)
    items = items_in(request_of(step).built)
    assert [part["id"] for part in seen.all(".context-part")] == [f"part-{n}" for n in range(len(items))]
    for item, shown in zip(items, seen.all(".context-part pre"), strict=False):
        assert shown.get_text().removesuffix(" …").strip() == item.text[:700].strip()
    assert seen.one('.context-kinds [aria-current="true"]').get_text(strip=True) == "all"
    bars = seen.all(".window-bar rect")
    assert sum(float(str(bar["width"])) for bar in bars) == pytest.approx(100, abs=0.1)


def test_one_kind_of_parts_and_a_whole_long_text(desk: Desk, signed_in: Any) -> None:
    task = finished_task(desk)
    client = signed_in(desk.viewer)
    seen = page(client.get(f"/tasks/{task.pk}/steps/6/context/?kind=tool_output"))
    assert {words.get_text(strip=True) for words in seen.all(".context-part strong")} == {"tool"}
    long = seen.one(".context-part a[hx-get]")
    whole = page(client.get(str(long["hx-get"]), **HX)).text(".event-whole")
    assert "exit code" in whole
    assert len(whole) > 5_000
    assert client.get(f"/tasks/{task.pk}/steps/6/context/parts/999/").status_code == 404


def test_a_request_that_history_no_longer_makes_says_so(desk: Desk, signed_in: Any) -> None:
    task = finished_task(desk)
    step = Step.objects.get(task=task, number=3)
    Step.objects.filter(pk=step.pk).update(manifest=step.manifest | {"request_hash": "0" * 64})
    client = signed_in(desk.viewer)
    assert "not exactly what was sent" in page(client.get(f"/tasks/{task.pk}/steps/3/context/")).text("#context-proof")
    assert "not exactly" in page(client.get(f"/tasks/{task.pk}/context-diff/?from=2&to=3")).text("main")
    Step.objects.filter(pk=step.pk).update(manifest={})
    assert "cannot be shown" in page(client.get(f"/tasks/{task.pk}/steps/3/context/")).text("main")


def test_two_steps_are_compared_part_by_part(desk: Desk, signed_in: Any) -> None:
    task = finished_task(desk)
    client = signed_in(desk.viewer)
    seen = page(client.get(f"/tasks/{task.pk}/context-diff/?from=5&to=6"))
    assert "first, second" in seen.text("section[aria-labelledby=added-title]"), "the note is new in the system prompt"
    assert "Both requests equal what was sent" in seen.text("main")
    back = page(client.get(f"/tasks/{task.pk}/context-diff/?from=6&to=5"))
    assert len(back.all("section[aria-labelledby=removed-title] .context-part")) == len(
        seen.all("section[aria-labelledby=added-title] .context-part")
    )
    assert "The model saw the same" in page(client.get(f"/tasks/{task.pk}/context-diff/?from=6&to=6")).text("main")
    assert page(client.get(f"/tasks/{task.pk}/context-diff/")).one("#context-to option[selected]")["value"] == "6@1"


def test_a_step_on_a_left_branch_is_shown_as_it_was(desk: Desk, signed_in: Any) -> None:
    scenario = """
        replies:
          - calls: [{name: note, arguments: {section: plan, text: one}}]
          - calls: [{name: note, arguments: {section: plan, text: two}}]
          - calls: [{name: ask_operator, arguments: {question: "now?"}}]
    """
    version = scripted_profile(desk.owner, scenario)
    task = work(create_task(workspace=desk.workspace, profile_version=version, instruction="x", actor=desk.owner))
    roll_back(Checkpoint.objects.get(task=task, step_number=1).pk, reason="again", actor=desk.owner)
    task.refresh_from_db()
    client = signed_in(desk.owner)
    client.post(f"/tasks/{task.pk}/note/", {"section": "plan", "text": "three"}, **HX)
    client.post(f"/tasks/{task.pk}/resume/", {"reason": "go"}, **HX)
    work(task)
    old = page(client.get(f"/tasks/{task.pk}/steps/3/context/?branch=1"))
    new = page(client.get(f"/tasks/{task.pk}/steps/3/context/"))
    assert "two" in old.text("#part-1 pre")
    assert "equals the one" in old.text("#context-proof")
    assert "equals the one" in new.text("#context-proof")
    assert new.text(".page-head .badge") == "branch 2"
    seen = page(client.get(f"/tasks/{task.pk}/context-diff/?from=2@1&to=2@2"))
    assert "three" in seen.text("section[aria-labelledby=changed-title]")


def test_only_members_and_staff_see_a_context(desk: Desk, signed_in: Any) -> None:
    task = finished_task(desk)
    for address in ("steps/2/context/", "steps/2/context/parts/0/", "context-diff/", "context-diff/?from=1&to=2"):
        for user in (desk.viewer, desk.operator, desk.owner, desk.staff):
            assert signed_in(user).get(f"/tasks/{task.pk}/{address}").status_code == 200
        assert signed_in(desk.outsider).get(f"/tasks/{task.pk}/{address}").status_code == 404
    assert signed_in(desk.viewer).get(f"/tasks/{task.pk}/steps/77/context/").status_code == 404


COMPACTED = """
    side: {summary: {text: The agent counted to a large number and noted nothing.}}
    replies:
      - text: I count and say so at length, %s.
        repeat: 9
        calls: [{name: shell, arguments: {command: "seq 1 1500; echo {{index}}"}}]
      - calls: [{name: finish, arguments: {summary: done}}]
"""


def test_a_window_that_another_workspace_learned_is_told_without_a_way_into_it(desk: Desk, signed_in: Any) -> None:
    version = finished_task(desk).profile_version
    theirs = make_workspace(desk.outsider)
    elsewhere = create_task(workspace=theirs, profile_version=version, instruction="Greet.", actor=desk.outsider)
    elsewhere = work(elsewhere)
    step = Step.objects.filter(task=elsewhere).order_by("number")[0]
    reply = ModelCall.objects.get(step=step)
    seq = Event.objects.get(task=elsewhere, step_number=step.number, kind="model.replied").seq
    prompt_was_cut(
        elsewhere.pk,
        elsewhere.fence,
        step,
        words="It was cut.",
        held=100_000,
        calls=[SentCall(seq, step.number, reply.pk, 120_000, 100_000)],
        model=version.model,
    )
    incident = Incident.objects.get(task=elsewhere)
    for who, place, led_there in ((desk.viewer, desk.workspace, False), (desk.outsider, theirs, True)):
        task = work(create_task(workspace=place, profile_version=version, instruction="Greet.", actor=place.owner))
        panel = page(signed_in(who).get(f"/tasks/{task.pk}/panels/context/"))
        assert "The provider holds only" in panel.text("#context")
        assert bool(panel.all(f'a[href="/incidents/{incident.pk}/"]')) is led_there


def compacted_task(desk: Desk) -> Task:
    """Whose long outputs were moved to files, and its older turns summarised."""
    version = scripted_profile(
        desk.owner,
        COMPACTED % ("word " * 400),
        context_window_tokens=8_000,
        max_output_tokens=500,
        input_usd_per_mtok="3",
        output_usd_per_mtok="15",
    )
    return work(create_task(workspace=desk.workspace, profile_version=version, instruction="Count.", actor=desk.owner))


def test_the_receipt_of_a_compaction_can_be_opened_and_read(desk: Desk, signed_in: Any) -> None:
    task = compacted_task(desk)
    client = signed_in(desk.viewer)
    rows = page(client.get(f"/tasks/{task.pk}/?group=model"))
    links = [str(link["href"]) for link in rows.all("#trace a") if link.get_text(strip=True) == "Receipt"]
    assert links
    seen = [page(client.get(link)) for link in links]
    for one in seen:
        assert "word for word" in one.text("#pinned-proof")
        assert "less" in one.text("#receipt-sum")
    moved = next(one for one in seen if one.all("section[aria-labelledby=offloaded-title]"))
    for link in moved.all("section[aria-labelledby=offloaded-title] a.file-name"):
        assert client.get(str(link["href"])).status_code == 200
    told = next(one for one in seen if one.all("#summary-text"))
    assert "counted to a large number" in told.text("#summary-text")
    call = ModelCall.objects.filter(task=task, purpose="summary").order_by("pk")[0]
    assert told.one(f'a[href="/tasks/{task.pk}/replies/{call.pk}/"]')
    assert "$" in told.text("section[aria-labelledby=summary-title] table")
    last = Step.objects.filter(task=task).latest("number")
    shown = page(client.get(f"/tasks/{task.pk}/steps/{last.number}/context/"))
    assert "equals the one" in shown.text("#context-proof")
    assert {str(link["href"]).split("kind=")[1] for link in shown.all(".window-bar a")} >= {"summary", "pinned"}
    assert "Sent in the place of" in shown.text(".context-parts")
    compared = page(client.get(f"/tasks/{task.pk}/context-diff/?from=2&to={last.number}"))
    assert compared.all("section[aria-labelledby=removed-title] .context-part")
    for user, status in ((desk.staff, 200), (desk.owner, 200), (desk.outsider, 404)):
        assert signed_in(user).get(links[0]).status_code == status
    assert client.get(f"/tasks/{task.pk}/compactions/1/").status_code == 404


def test_a_step_before_any_request_has_nothing_to_compare(desk: Desk, signed_in: Any) -> None:
    task = desk.task()
    assert "No step has asked" in page(signed_in(desk.viewer).get(f"/tasks/{task.pk}/context-diff/")).text("main")


def test_two_thousand_messages_are_shown_fast(desk: Desk, signed_in: Any) -> None:
    task = with_many_messages(finished_task(desk), 2_000)
    client = signed_in(desk.viewer)
    address = f"/tasks/{task.pk}/steps/6/context/"
    client.get(address)  # templates are compiled once a process
    started = time.perf_counter()
    seen = page(response := client.get(address))
    took_s = time.perf_counter() - started
    assert len(seen.all(".context-part")) == 60
    assert len(response.content) < 300_000
    assert "Newest parts" in seen.text("nav[aria-label=Pages]")
    assert took_s < 3.0  # a third of a second here


def with_many_messages(task: Task, count: int) -> Task:
    """`count` more messages before step 6 was asked, without the work: for what only reads."""
    step = Step.objects.get(task=task, number=6)
    now = timezone.now()
    Message.objects.bulk_create(
        Message(
            task=task,
            branch=task.branch,
            seq=step.manifest["as_of_seq"],
            part=n,
            role="user",
            content=f"message {n} " + "word " * 300,
            tokens=400,
            created_at=now,
        )
        for n in range(10, 10 + count)
    )
    return task
