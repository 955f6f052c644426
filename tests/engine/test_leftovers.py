"""A workspace's disk has one writer: what an ended task left running ends before another task has the workspace."""

from __future__ import annotations

import pytest
from django.core.management import call_command

from tests.engine.moments import left_in_a_command
from tests.engine.test_pause import paused_in_a_command
from tests.harness import events, eventually, make_user, make_workspace, scripted_task, work
from workspaces import dispatch
from workspaces.actions import sleep as moves
from workspaces.actions.escalations import answer_escalation
from workspaces.actions.rollbacks import roll_back
from workspaces.actions.schedule import end_waits
from workspaces.actions.tasks import cancel_task, pause_task, resume_task
from workspaces.actions.terminal import order_command
from workspaces.domain.escalations import Decision
from workspaces.domain.states import PauseMode, TaskStatus, WorkspaceState
from workspaces.engine import lifecycle, terminal
from workspaces.engine.boxes import sandbox_for
from workspaces.models import Checkpoint, Escalation, Task, Workspace

pytestmark = pytest.mark.django_db(transaction=True)
LEAVES = """
replies:
  - calls:
      - name: shell
        arguments: {command: "(while true; do echo x >> bg; sleep 0.02; done) >/dev/null 2>&1 & sleep 0.1"}
  - calls: [{name: finish, arguments: {summary: done}}]
"""
LOOKS = """
replies:
  - calls: [{name: shell, arguments: {command: "cp FILE seen; sleep 0.4; cmp FILE seen && echo quiet"}}]
  - calls: [{name: finish, arguments: {summary: "{{last_result}}"}}]
"""


def place(task: Task) -> Workspace:
    return Workspace.objects.get(pk=task.workspace_id)


def grows(task: Task, name: str) -> bool:
    sandbox = sandbox_for(task.workspace)
    before = len(sandbox.read(name))
    try:
        eventually(lambda: len(sandbox.read(name)) > before, within_s=0.5)
    except AssertionError:
        return False
    return True


def looks_at(name: str, workspace: Workspace) -> Task:
    return work(scripted_task(LOOKS.replace("FILE", name), workspace=workspace))


def test_what_a_task_left_in_the_background_ends_before_the_next_one_begins() -> None:
    first = work(scripted_task(LEAVES), until=lambda t: t.steps_taken == 1)
    second = looks_at("bg", first.workspace)
    assert second.waiting_for == "workspace"
    first = work(first)
    assert (first.status, grows(first, "bg")) == (TaskStatus.SUCCEEDED, True)
    second = work(second)
    assert "quiet" in second.result
    assert place(second).left_running, "the second has let go of it in its turn"


@pytest.mark.parametrize("was", ["running", "frozen"])
def test_the_command_of_a_cancelled_task_ends_before_the_next_one_begins(was: str) -> None:
    task = left_in_a_command() if was == "running" else paused_in_a_command()
    cancel_task(task.pk, reason="no", actor=task.created_by)
    task.refresh_from_db()
    assert task.status == TaskStatus.CANCELLED
    assert "quiet" in looks_at("ticks", task.workspace).result


def test_a_worker_ends_what_was_left_as_soon_as_the_task_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[int] = []
    monkeypatch.setattr(dispatch, "end_leftovers", called.append)
    task = left_in_a_command()
    cancel_task(task.pk, reason="no", actor=task.created_by)
    assert called == [task.workspace_id]
    assert lifecycle.end_leftovers(task.workspace_id)
    assert (sandbox_for(task.workspace).state(), place(task).state) == ("stopped", WorkspaceState.ASLEEP)
    assert not grows(task, "ticks")
    assert not place(task).left_running
    assert not lifecycle.end_leftovers(task.workspace_id)


def test_the_scheduler_calls_again_for_what_was_left(monkeypatch: pytest.MonkeyPatch) -> None:
    task = work(scripted_task(LEAVES))
    called: list[int] = []
    monkeypatch.setattr(dispatch, "end_leftovers", called.append)
    call_command("scheduler", "--once")
    assert called == [task.workspace_id]
    lifecycle.end_leftovers(task.workspace_id)
    assert moves.call_left() == 0


def test_the_sandbox_of_a_task_that_has_come_is_not_ended_for_what_was_left() -> None:
    first = work(scripted_task(LEAVES))
    second = work(scripted_task(LEAVES, workspace=first.workspace), until=lambda t: t.steps_taken == 1)
    assert not lifecycle.end_leftovers(first.workspace_id)
    assert sandbox_for(second.workspace).state() == "running"
    assert grows(second, "bg"), "its own background goes on"


def test_a_task_that_comes_while_the_sandbox_is_ended_waits_for_that_and_wakes_it() -> None:
    first = work(scripted_task(LEAVES))
    fence = moves.claim_leftovers(first.workspace_id, lease_s=60)
    assert fence is not None
    second = looks_at("bg", first.workspace)
    assert (second.status, second.waiting_for) == (TaskStatus.WAITING, "workspace")
    moves.leftovers_ended(first.workspace_id, fence)
    lifecycle.wake(first.workspace_id)
    assert "quiet" in work(second).result


def test_after_a_rollback_of_an_ended_task_nothing_of_it_runs() -> None:
    task = work(scripted_task(LEAVES))
    roll_back(Checkpoint.objects.get(task=task, step_number=1).pk, reason="again", actor=task.created_by)
    task = work(task)
    assert not grows(task, "bg")
    resume_task(task.pk, actor=task.created_by)
    assert work(task).status == TaskStatus.SUCCEEDED


def test_who_waits_for_a_workspace_that_is_free_is_called() -> None:
    """The one that was called when it was let go of has been paused in the meantime."""
    workspace = make_workspace(make_user())
    first = work(scripted_task(LEAVES, workspace=workspace), until=lambda t: t.steps_taken == 1)
    second, third = looks_at("bg", workspace), looks_at("bg", workspace)
    assert end_waits() == 0
    work(first)
    pause_task(second.pk, mode=PauseMode.BOUNDARY, reason="x", actor=second.created_by)
    assert end_waits() == 1
    assert work(third).status == TaskStatus.SUCCEEDED
    assert events(third, "task.waiting")[0]["waiting_for"] == "workspace"


def test_what_an_operator_left_running_ends_when_a_task_comes_and_not_before() -> None:
    task = work(scripted_task(LEAVES))
    lifecycle.end_leftovers(task.workspace_id)
    text = "(while true; do echo x >> bg; sleep 0.02; done) >/dev/null 2>&1 & sleep 0.1"
    command = order_command(task.workspace_id, text=text, limit_s=30, actor=task.created_by)
    terminal.run(command.pk)
    assert grows(task, "bg")
    assert moves.call_left() == 0, "the operator is at work"
    assert "quiet" in looks_at("bg", task.workspace).result


def test_an_operators_command_does_not_end_what_the_task_that_holds_the_workspace_runs() -> None:
    finish = "  - calls: [{name: finish"
    asks = LEAVES.replace(finish, f"  - calls: [{{name: ask_operator, arguments: {{question: x}}}}]\n{finish}")
    task = work(scripted_task(asks))
    command = order_command(task.workspace_id, text="echo hello", limit_s=30, actor=task.created_by)
    terminal.run(command.pk)
    assert not place(task).left_running
    question = Escalation.objects.get(task=task, status="open")
    answer_escalation(question.pk, decision=Decision.ANSWER, actor=task.created_by, words="y")
    task = work(task, until=lambda t: t.steps_taken == 2)
    assert grows(task, "bg")
