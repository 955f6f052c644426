"""Orders that come in the worst moment: paused is quiet, a cancel is never lost, a hold that is gone holds nobody."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from django.db import connection, transaction
from django.utils import timezone

from tests.engine.moments import at, left_in_a_command
from tests.engine.test_pause import SLEEPS, a_worker, running_call, ticks
from tests.harness import eventually, make_user, make_workspace, scripted_task, somebody_waits_for_a_lock, work
from workspaces.actions import leases, schedule, steps
from workspaces.actions.errors import FenceLost
from workspaces.actions.escalations import answer_escalation
from workspaces.actions.latches import place_latch, release_latch
from workspaces.actions.rollbacks import roll_back
from workspaces.actions.tasks import cancel_task, pause_task
from workspaces.domain.escalations import Decision
from workspaces.domain.states import PauseMode, TaskStatus
from workspaces.engine import runner
from workspaces.engine.boxes import sandbox_for
from workspaces.models import Checkpoint, Escalation, ModelCall, Task, ToolCall

pytestmark = pytest.mark.django_db(transaction=True)
BOUNDARY, NOW = PauseMode.BOUNDARY, PauseMode.NOW
QUICK = "replies: [{calls: [{name: note, arguments: {section: a, text: b}}], repeat: 3}]"
ASKS = """
replies:
  - calls:
      - {name: ask_operator, arguments: {question: "Which?"}}
      - {name: shell, arguments: {command: "echo x"}}
  - calls: [{name: finish, arguments: {summary: done}}]
"""


def pause(task: Task, mode: PauseMode = BOUNDARY) -> None:
    pause_task(task.pk, mode=mode, reason="look", actor=task.created_by)


def status_of(task: Task) -> str:
    return Task.objects.values_list("status", flat=True).get(pk=task.pk)


@pytest.mark.parametrize("when", ["before the lease ran out", "after"])
def test_a_pause_waits_for_the_command_that_a_dead_worker_left(when: str) -> None:
    task = left_in_a_command(lease_ran_out=when == "after")
    pause(task)
    assert status_of(task) == TaskStatus.PAUSING
    Task.objects.filter(pk=task.pk).update(lease_until=task.created_at)
    task = work(task)
    assert task.status == TaskStatus.PAUSED
    assert len(ticks(task)) == 16, "the command has come to its end"
    assert ToolCall.objects.get(task=task, step__number=2).attempt == 1


def test_a_pause_now_halts_the_command_that_a_dead_worker_left() -> None:
    task = left_in_a_command()
    pause(task, NOW)
    task = work(task)
    assert (task.status, sandbox_for(task.workspace).state()) == (TaskStatus.PAUSED, "frozen")
    assert len(ticks(task)) < 16


def test_a_task_that_waits_for_its_sandbox_is_not_paused_while_its_command_may_run() -> None:
    task = left_in_a_command()
    now = timezone.now()
    waits = {"waiting_for": "timer", "waiting_reason": "x", "waiting_since": now, "waiting_until": now}
    Task.objects.filter(pk=task.pk).update(status="waiting", lease_until=None, **waits)
    pause(task)
    assert status_of(task) == TaskStatus.PAUSING
    assert work(task).status == TaskStatus.PAUSED
    assert len(ticks(task)) == 16


def test_pause_now_halts_what_a_waiting_task_left_in_the_background() -> None:
    task = work(
        scripted_task(
            """
            replies:
              - calls:
                  - name: shell
                    arguments: {command: "(while true; do echo x >> bg; sleep 0.05; done) >/dev/null 2>&1 &"}
                  - {name: ask_operator, arguments: {question: "Which?"}}
            """
        )
    )
    assert task.waiting_for == "operator"
    pause(task, NOW)
    task = work(task)
    sandbox = sandbox_for(task.workspace)
    assert (task.status, sandbox.state()) == (TaskStatus.PAUSED, "frozen")
    sandbox.stop()


def test_a_task_that_is_paused_just_after_the_claim_takes_no_step(monkeypatch: pytest.MonkeyPatch) -> None:
    task = scripted_task(QUICK)
    at(monkeypatch, "workspaces.engine.disk:Disk.__init__", lambda: pause(task))
    runner.advance(task.pk)
    task.refresh_from_db()
    assert (task.status, task.lease_until) == (TaskStatus.PAUSED, None)
    assert not ModelCall.objects.filter(task=task).exists()


@pytest.mark.parametrize("fault", ["rate_limit", "auth"])
def test_a_cancel_that_comes_as_the_task_begins_to_wait_is_not_lost(
    fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = scripted_task(f"replies: [{{fault: {{kind: {fault}}}}}]")
    at(
        monkeypatch,
        "workspaces.actions.model_calls:store_failure",
        lambda: cancel_task(task.pk, reason="no", actor=task.created_by),
        before=False,
    )
    runner.go_on(task.pk)
    assert status_of(task) == TaskStatus.CANCELLED


def test_a_cancel_that_comes_while_files_are_put_back_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    task = work(scripted_task(QUICK), until=lambda t: t.steps_taken >= 1)
    pause(task)
    checkpoint = Checkpoint.objects.get(task=task, step_number=0)
    roll_back(checkpoint.pk, reason="back", actor=task.created_by)
    at(
        monkeypatch,
        "workspaces.actions.steps:disk_restored",
        lambda: cancel_task(task.pk, reason="no", actor=task.created_by),
    )
    runner.advance(task.pk)
    Task.objects.filter(pk=task.pk).update(dispatched_at=None)
    assert schedule.redispatch_due(after_s=5) == 1
    runner.go_on(task.pk)
    assert status_of(task) == TaskStatus.CANCELLED


def test_a_hold_that_is_released_while_a_task_is_pausing_holds_it_no_more() -> None:
    staff = make_user(is_staff=True)
    task = scripted_task(SLEEPS)
    with a_worker(task):
        eventually(lambda: running_call(task))
        latch = place_latch(mode=BOUNDARY, reason="incident", actor=staff)
        release_latch(latch.pk, reason="over", actor=staff)
    assert status_of(task) == TaskStatus.SUCCEEDED


def test_a_hold_now_on_the_fleet_halts_a_task_that_is_pausing_at_its_boundary() -> None:
    staff = make_user(is_staff=True)
    task = scripted_task(SLEEPS)
    with a_worker(task):
        eventually(lambda: running_call(task))
        pause(task)
        place_latch(mode=NOW, reason="incident", actor=staff)
        eventually(lambda: status_of(task) == TaskStatus.PAUSED)
    assert sandbox_for(task.workspace).state() == "frozen"
    assert len(ticks(task)) < 16


def test_of_two_holds_the_one_that_is_released_last_lets_go() -> None:
    staff = make_user(is_staff=True)
    task = scripted_task(QUICK)
    first = place_latch(mode=BOUNDARY, reason="one", actor=staff, workspace=task.workspace)
    second = place_latch(mode=BOUNDARY, reason="two", actor=staff)
    release_latch(first.pk, reason="over", actor=staff)
    assert status_of(task) == TaskStatus.PAUSED
    release_latch(second.pk, reason="over", actor=staff)
    assert status_of(task) == TaskStatus.QUEUED


@pytest.mark.parametrize("order", ["pause", "cancel", "roll back"])
def test_a_worker_that_was_cut_off_writes_no_more_once_its_task_is_taken_in_hand(order: str) -> None:
    task = work(scripted_task(QUICK), until=lambda t: t.steps_taken >= 1)
    claim = leases.claim(task.pk, worker="cut off", lease_s=30)
    assert claim is not None
    past = timezone.now() - timedelta(seconds=1)
    status = "paused" if order == "roll back" else "running"
    Task.objects.filter(pk=task.pk).update(lease_until=past, status=status)
    if order == "pause":
        pause(task)
    elif order == "cancel":
        cancel_task(task.pk, reason="no", actor=task.created_by)
    else:
        checkpoint = Checkpoint.objects.get(task=task, step_number=0)
        roll_back(checkpoint.pk, reason="back", actor=task.created_by)
    assert leases.renew({task.pk: claim.fence}, lease_s=30) == set()
    with pytest.raises(FenceLost):
        steps.workspace_woke(task.pk, claim.fence, duration_s=0)


def test_a_question_that_is_answered_while_the_step_goes_on_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    task = scripted_task(ASKS)

    def answer() -> None:
        question = Escalation.objects.get(task=task, status="open")
        answer_escalation(question.pk, decision=Decision.ANSWER, actor=task.created_by, words="main")

    at(monkeypatch, "workspaces.tools.shell:Shell.run", answer)
    task = work(task)
    assert task.status == TaskStatus.SUCCEEDED
    assert Escalation.objects.filter(task=task).count() == 1


def test_a_task_that_begins_while_a_hold_is_being_released_is_not_left_paused() -> None:
    workspace = make_workspace(make_user())
    latch = place_latch(mode=BOUNDARY, reason="all", actor=workspace.owner, workspace=workspace)
    task = scripted_task(QUICK, workspace=workspace)
    released, go = threading.Event(), threading.Event()

    def release() -> None:
        with transaction.atomic():
            release_latch(latch.pk, reason="on", actor=workspace.owner)
            released.set()
            assert go.wait(60)
        connection.close()

    def begin() -> None:
        runner.advance(task.pk)
        connection.close()

    with ThreadPoolExecutor(2) as pool:
        releasing = pool.submit(release)
        assert released.wait(60)
        beginning = pool.submit(begin)
        try:
            eventually(lambda: beginning.done() or somebody_waits_for_a_lock(), within_s=60)
        finally:
            go.set()
        releasing.result(60)
        beginning.result(60)
    assert status_of(task) == TaskStatus.RUNNING


def test_a_task_that_begins_while_a_hold_is_being_placed_is_paused(monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = make_workspace(make_user())
    begun: list[Task] = []

    def begin() -> None:
        begun.append(scripted_task(QUICK, workspace=workspace))
        runner.advance(begun[0].pk)
        connection.close()

    at(
        monkeypatch,
        "workspaces.actions.latches:_held_task_ids",
        lambda: None if begun else ThreadPoolExecutor(1).submit(begin).result(60),
        before=False,
    )
    place_latch(mode=BOUNDARY, reason="all", actor=workspace.owner, workspace=workspace)
    assert status_of(begun[0]) == TaskStatus.PAUSED
