"""Pause at the boundary and pause now: what runs is frozen or dropped, and goes on when the task is resumed."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from django.db import connection

from tests.harness import events, eventually, kinds, make_user, make_workspace, scripted_task, work
from workspaces.actions.errors import Refused
from workspaces.actions.latches import place_latch, release_latch
from workspaces.actions.rollbacks import roll_back
from workspaces.actions.tasks import cancel_task, pause_task, resume_task, send_message
from workspaces.domain.states import PauseMode, TaskStatus
from workspaces.engine import runner
from workspaces.engine.boxes import sandbox_for
from workspaces.models import Checkpoint, ModelCall, Task, ToolCall

pytestmark = pytest.mark.django_db(transaction=True)

SLEEPS = """
replies:
  - calls: [{name: shell, arguments: {command: "echo one > log"}}]
  - calls:
      - name: shell
        arguments: {command: "echo two >> log; for i in $(seq 16); do sleep 0.1; echo $i >> ticks; done"}
  - calls: [{name: finish, arguments: {summary: done}}]
"""

THINKS_LONG = """
replies:
  - text: one two three four five
    chunks: 5
    chunk_delay_s: 10
    calls: [{name: finish, arguments: {summary: done}}]
"""


@contextmanager
def a_worker(task: Task) -> Iterator[threading.Thread]:
    """A worker of one thread that goes on until nothing is due."""

    def loop() -> None:
        try:
            work(Task.objects.get(pk=task.pk))
        finally:
            connection.close()

    thread = threading.Thread(target=loop)
    thread.start()
    yield thread
    thread.join(20)
    assert not thread.is_alive()


def running_call(task: Task) -> bool:
    """The slow command is under way: it has written something."""
    running = ToolCall.objects.filter(task=task, status="running", step__number=2).exists()
    return running and any(entry.path == "ticks" for entry in sandbox_for(task.workspace).list())


def ticks(task: Task) -> list[str]:
    return sandbox_for(task.workspace).read("ticks").decode().split()


def paused_in_a_command() -> Task:
    task = scripted_task(SLEEPS)
    with a_worker(task):
        eventually(lambda: running_call(task), what="the slow command runs")
        asked = time.monotonic()
        pause_task(task.pk, mode=PauseMode.NOW, reason="stop", actor=task.created_by)
        eventually(lambda: Task.objects.get(pk=task.pk).status == TaskStatus.PAUSED, within_s=2)
        assert time.monotonic() - asked < 2
    task.refresh_from_db()
    return task


def test_pause_now_freezes_a_running_command_and_resume_lets_it_go_on() -> None:
    task = paused_in_a_command()
    assert task.lease_until is None
    seen = ticks(task)
    time.sleep(0.4)
    assert ticks(task) == seen
    assert kinds(task)[-2:] == ["workspace.frozen", "task.paused"]
    resume_task(task.pk, actor=task.created_by)
    task = work(task)
    assert task.status == TaskStatus.SUCCEEDED
    assert len(ticks(task)) == 16
    assert ToolCall.objects.get(task=task, step__number=2).attempt == 1


def test_a_frozen_command_is_abandoned_by_a_rollback() -> None:
    task = paused_in_a_command()
    checkpoint = Checkpoint.objects.get(task=task, step_number=0)
    roll_back(checkpoint.pk, reason="back to the start", actor=task.created_by)
    task = work(task)
    assert task.status == TaskStatus.PAUSED
    assert sandbox_for(task.workspace).list() == []
    assert ToolCall.objects.get(task=task, step__number=2).status == "abandoned"
    time.sleep(0.4)
    assert sandbox_for(task.workspace).list() == []


def test_pause_now_drops_a_streaming_model_call_and_says_so() -> None:
    task = scripted_task(THINKS_LONG)
    with a_worker(task):
        eventually(lambda: ModelCall.objects.filter(task=task, status="running").exists())
        time.sleep(0.3)
        pause_task(task.pk, mode=PauseMode.NOW, reason="stop", actor=task.created_by)
        eventually(lambda: Task.objects.get(pk=task.pk).status == TaskStatus.PAUSED, within_s=2)
    (dropped,) = events(task, "model.dropped")
    assert dropped["why"] == "paused now"
    assert ModelCall.objects.get(task=task).status == "dropped"


def test_pause_at_the_boundary_lets_the_step_end() -> None:
    task = scripted_task(SLEEPS)
    with a_worker(task):
        eventually(lambda: running_call(task))
        pause_task(task.pk, mode=PauseMode.BOUNDARY, reason="later", actor=task.created_by)
        assert Task.objects.get(pk=task.pk).status == TaskStatus.PAUSING
    task.refresh_from_db()
    assert task.status == TaskStatus.PAUSED
    assert len(ticks(task)) == 16
    assert task.steps_taken == 2


def test_a_pause_at_the_boundary_can_be_made_a_pause_now() -> None:
    task = scripted_task(SLEEPS)
    with a_worker(task):
        eventually(lambda: running_call(task))
        pause_task(task.pk, mode=PauseMode.BOUNDARY, reason="later", actor=task.created_by)
        with pytest.raises(Refused, match="already pausing"):
            pause_task(task.pk, mode=PauseMode.BOUNDARY, reason="again", actor=task.created_by)
        pause_task(task.pk, mode=PauseMode.NOW, reason="now", actor=task.created_by)
        eventually(lambda: Task.objects.get(pk=task.pk).status == TaskStatus.PAUSED, within_s=2)
    assert len(ticks(task)) < 16


def test_cancel_ends_a_running_command() -> None:
    task = scripted_task(SLEEPS)
    with a_worker(task):
        eventually(lambda: running_call(task))
        cancel_task(task.pk, reason="not needed", actor=task.created_by)
        eventually(lambda: Task.objects.get(pk=task.pk).status == TaskStatus.CANCELLED, within_s=3)
    task.refresh_from_db()
    with pytest.raises(Refused, match="cancelled"):
        pause_task(task.pk, mode=PauseMode.NOW, reason="x", actor=task.created_by)
    with pytest.raises(Refused, match="cancelled"):
        send_message(task.pk, text="hello", actor=task.created_by)


def test_an_operators_message_reaches_the_model_behind_the_results() -> None:
    task = scripted_task(
        """
        replies:
          - calls: [{name: shell, arguments: {command: "sleep 1; echo x"}}]
          - calls: [{name: finish, arguments: {summary: "{{last_user}}"}}]
        """
    )
    with a_worker(task):
        eventually(lambda: ToolCall.objects.filter(task=task, status="running").exists())
        send_message(task.pk, text="use port 8080", actor=task.created_by)
    task.refresh_from_db()
    assert "use port 8080" in task.result


def test_a_hold_on_the_fleet_pauses_what_runs_and_what_comes_and_lets_go() -> None:
    user = make_user(is_staff=True)
    running = work(scripted_task(SLEEPS), until=lambda t: t.steps_taken >= 1)
    latch = place_latch(mode=PauseMode.BOUNDARY, reason="provider incident", actor=user)
    new = work(scripted_task(SLEEPS))
    running = work(running)
    assert (running.status, new.status) == (TaskStatus.PAUSED, TaskStatus.PAUSED)
    with pytest.raises(Refused, match="hold on the fleet stands"):
        resume_task(new.pk, actor=user)
    release_latch(latch.pk, reason="over", actor=user)
    assert work(new).status == TaskStatus.SUCCEEDED
    assert work(running).status == TaskStatus.SUCCEEDED


def test_two_tasks_in_one_workspace_take_turns() -> None:
    first = work(scripted_task(SLEEPS), until=lambda t: t.steps_taken >= 1)
    second = scripted_task(SLEEPS, workspace=first.workspace)
    second = work(second)
    assert (second.status, second.waiting_for) == (TaskStatus.WAITING, "workspace")
    assert work(first).status == TaskStatus.SUCCEEDED
    assert work(second).status == TaskStatus.SUCCEEDED


def test_a_paused_task_is_not_advanced() -> None:
    task = scripted_task(SLEEPS, workspace=make_workspace(make_user()))
    pause_task(task.pk, mode=PauseMode.BOUNDARY, reason="x", actor=task.created_by)
    runner.advance(task.pk)
    task.refresh_from_db()
    assert task.status == TaskStatus.PAUSED
    assert task.steps_taken == 0
