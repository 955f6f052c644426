"""An operator's commands: one writer a disk, run once whatever dies, and never missing from a checkpoint."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from django.db import connection

from tests.harness import events, eventually, kinds, make_user, make_workspace, scripted_task, work
from workspaces.actions.errors import Refused
from workspaces.actions.escalations import answer_escalation
from workspaces.actions.rollbacks import roll_back
from workspaces.actions.tasks import cancel_task, pause_task, resume_task
from workspaces.actions.terminal import order_command, redispatch_commands, stop_command
from workspaces.actions.workspaces import hold_workspace
from workspaces.domain.escalations import Decision
from workspaces.domain.states import PauseMode, TaskStatus, WorkspaceState
from workspaces.engine import runner, terminal
from workspaces.engine.boxes import driver_for, sandbox_for
from workspaces.engine.keeper import Keeper
from workspaces.engine.lifecycle import sleep
from workspaces.models import AuditEntry, Checkpoint, Escalation, OperatorCommand, Task, User, Workspace
from workspaces.queries.database import database_now

pytestmark = pytest.mark.django_db(transaction=True)

TWO_STEPS = """
replies:
  - calls: [{name: shell, arguments: {command: "cat note.txt; echo one >> log.txt"}}]
  - calls: [{name: shell, arguments: {command: "cat note.txt; echo two >> log.txt"}}]
  - calls: [{name: finish, arguments: {summary: done}}]
"""
ASKS = """
replies:
  - calls: [{name: ask_operator, arguments: {question: "Which?"}}]
  - calls: [{name: list_files, arguments: {}}]
  - calls: [{name: finish, arguments: {summary: "{{last_result}}"}}]
"""


def ordered(workspace: Workspace, text: str, actor: User | None = None, limit_s: int = 30) -> OperatorCommand:
    return order_command(workspace.pk, text=text, limit_s=limit_s, actor=actor or workspace.owner)


def ran(workspace: Workspace, text: str, **more: Any) -> OperatorCommand:
    command = ordered(workspace, text, **more)
    terminal.run(command.pk)
    command.refresh_from_db()
    workspace.refresh_from_db()
    return command


def paused(task: Task, *, at_step: int = 1) -> Task:
    """At the boundary after that step."""
    work(task, until=lambda fresh: fresh.steps_taken >= at_step)
    pause_task(task.pk, mode=PauseMode.BOUNDARY, reason="to look", actor=task.created_by)
    return work(task)


@pytest.fixture
def workspace() -> Workspace:
    return make_workspace(make_user())


def test_a_command_runs_in_the_free_workspace_and_everything_about_it_is_kept(workspace: Workspace) -> None:
    command = ran(workspace, "echo out; echo err >&2; echo kept > kept.txt; exit 3")
    assert (command.status, command.exit_code, command.output) == ("finished", 3, "out\n[standard error]\nerr\n")
    assert sandbox_for(workspace).read("kept.txt") == b"kept\n"
    entry = AuditEntry.objects.get(workspace=workspace, action="terminal.command")
    assert (entry.actor, entry.data["text"]) == (workspace.owner, command.text)
    assert workspace.command_id is None


@pytest.mark.parametrize("text", ["", "  \n ", "echo \x00", "echo \ud800", "x" * 100_001])
def test_what_cannot_run_is_refused_and_leaves_nothing(workspace: Workspace, text: str) -> None:
    with pytest.raises(Refused):
        ordered(workspace, text)
    assert not OperatorCommand.objects.exists()


def test_one_command_at_a_time(workspace: Workspace) -> None:
    other = make_user()
    first = ordered(workspace, "echo first")
    with pytest.raises(Refused, match="still runs here"):
        ordered(workspace, "echo second", actor=other)
    terminal.run(first.pk)
    assert ran(workspace, "echo second", actor=other).output == "second\n"


def test_of_many_operators_at_once_one_wins(workspace: Workspace) -> None:
    refused: list[str] = []

    def press() -> None:
        try:
            ordered(workspace, "true")
        except Refused as refusal:
            refused.append(str(refusal))
        finally:
            connection.close()

    threads = [threading.Thread(target=press) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert OperatorCommand.objects.count() == 1
    assert len(refused) == 5


def test_a_running_task_keeps_its_disk_to_itself() -> None:
    task = work(scripted_task(TWO_STEPS), until=lambda fresh: fresh.steps_taken >= 1)
    with pytest.raises(Refused, match=f"Task {task.pk} works here"):
        ordered(task.workspace, "true")
    assert not OperatorCommand.objects.exists()


def test_what_an_operator_changed_while_the_task_was_paused_is_in_its_next_checkpoint() -> None:
    task = paused(scripted_task(TWO_STEPS))
    command = ran(task.workspace, "echo by hand > note.txt")
    assert command.task == task
    told = [kind for kind in kinds(task) if kind.startswith("command.")]
    assert told == ["command.ordered", "command.finished"]
    assert events(task, "command.ordered")[0]["text"] == "echo by hand > note.txt"
    resume_task(task.pk, actor=task.created_by)
    work(task, until=lambda fresh: fresh.steps_taken >= 2)
    calls = list(task.tool_calls.order_by("pk"))
    assert "by hand" in calls[1].result
    assert work(task).status == TaskStatus.SUCCEEDED.value
    saved = Checkpoint.objects.filter(task=task, step_number=2).latest("seq")
    assert calls[1].snapshot_before is not None
    before = calls[1].snapshot_before
    assert driver_for(task.workspace).snapshots.read(before.ref, "note.txt") == b"by hand\n"
    assert driver_for(task.workspace).snapshots.read(saved.snapshot.ref, "note.txt") == b"by hand\n"


def test_a_step_that_touches_no_file_saves_an_operators_change_too() -> None:
    task = work(scripted_task(ASKS))
    assert task.waiting_for == "operator"
    ran(task.workspace, "echo by hand > note.txt")
    answer_escalation(
        Escalation.objects.get(task=task).pk, decision=Decision.ANSWER, words="That one.", actor=task.created_by
    )
    assert "note.txt" in work(task).result
    newest = Checkpoint.objects.filter(task=task).latest("seq")
    assert driver_for(task.workspace).snapshots.read(newest.snapshot.ref, "note.txt") == b"by hand\n"


def test_a_rollback_undoes_an_operators_change_also_to_the_newest_checkpoint() -> None:
    task = paused(scripted_task(TWO_STEPS))
    newest = Checkpoint.objects.filter(task=task).latest("seq")
    roll_back(newest.pk, reason="clean", actor=task.created_by)
    work(task)
    ran(task.workspace, "echo by hand > note.txt")
    roll_back(newest.pk, reason="that was wrong", actor=task.created_by)
    work(task)
    assert "note.txt" not in [entry.path for entry in sandbox_for(task.workspace).list()]


def test_a_task_that_is_resumed_waits_for_the_command_and_then_goes_on() -> None:
    task = paused(scripted_task(TWO_STEPS))
    command = ordered(task.workspace, "echo by hand > note.txt")
    resume_task(task.pk, actor=task.created_by)
    work(task)
    assert (task.status, task.waiting_for) == ("waiting", "workspace")
    assert "command" in task.waiting_reason
    terminal.run(command.pk)
    assert work(task).status == TaskStatus.SUCCEEDED.value
    assert "by hand" in task.tool_calls.order_by("pk")[1].result


def test_a_new_task_waits_for_the_command(workspace: Workspace) -> None:
    command = ordered(workspace, "true")
    task = scripted_task(TWO_STEPS, workspace=workspace)
    assert not hold_workspace(task), "nor can it slip in between"
    work(task)
    assert (task.status, task.waiting_for) == ("waiting", "workspace")
    terminal.run(command.pk)
    assert work(task).status == TaskStatus.SUCCEEDED.value


def test_a_workspace_does_not_fall_asleep_under_a_command_and_a_command_wakes_it(workspace: Workspace) -> None:
    assert ran(workspace, "echo first").output == "first\n"
    assert workspace.state == WorkspaceState.AWAKE.value
    command = ordered(workspace, "echo second")
    long_ago = database_now() - timedelta(hours=1)
    Workspace.objects.filter(pk=workspace.pk).update(idle_timeout_s=1, used_at=long_ago)
    assert not sleep(workspace.pk)
    terminal.run(command.pk)
    Workspace.objects.filter(pk=workspace.pk).update(used_at=long_ago)
    assert sleep(workspace.pk)
    assert ran(workspace, "echo third").output == "third\n"


def test_a_worker_that_is_told_to_end_hands_the_command_over(workspace: Workspace) -> None:
    command = ordered(workspace, "echo once >> count.txt; sleep 2; echo ended")
    keeper = Keeper(settings.LEASE_S)
    worker = threading.Thread(target=lambda: (terminal.run(command.pk), connection.close()))
    original, terminal.keeper = terminal.keeper, lambda: keeper
    try:
        worker.start()
        box = sandbox_for(workspace)
        eventually(lambda: "count.txt" in [entry.path for entry in box.list()], within_s=60)
        keeper.drain(60, end=lambda: None)
        worker.join(60)
    finally:
        terminal.keeper = original
    command.refresh_from_db()
    assert (command.status, command.lease_until) == ("running", None)
    terminal.run(command.pk)
    command.refresh_from_db()
    assert (command.status, command.output) == ("finished", "ended\n")
    assert box.read("count.txt") == b"once\n"


def test_a_rollback_puts_the_files_back_after_the_command_has_ended() -> None:
    task = paused(scripted_task(TWO_STEPS), at_step=2)
    first = Checkpoint.objects.filter(task=task, step_number=0).latest("seq")
    command = ordered(task.workspace, "echo by hand > note.txt")
    roll_back(first.pk, reason="from the start", actor=task.created_by)
    runner.advance(task.pk)
    task.refresh_from_db()
    assert task.disk_restore_id is not None, "not while the command may write"
    terminal.run(command.pk)
    work(task)
    assert not [entry.path for entry in sandbox_for(task.workspace).list() if entry.path.endswith(".txt")]


def test_a_task_cancelled_meanwhile_does_not_end_the_command() -> None:
    task = paused(scripted_task(TWO_STEPS))
    command = ordered(task.workspace, "echo still here")
    cancel_task(task.pk, reason="enough", actor=task.created_by)
    terminal.run(command.pk)
    command.refresh_from_db()
    assert command.output == "still here\n"
    assert kinds(task)[-1] == "command.finished"


def test_a_paused_task_stays_frozen_and_a_call_frozen_half_way_is_not_woken() -> None:
    scenario = 'replies:\n  - calls: [{name: shell, arguments: {command: "echo on > began; sleep 60"}}]\n'
    task = scripted_task(scenario)
    worker = threading.Thread(target=lambda: (work(task), connection.close()))
    worker.start()
    box = sandbox_for(task.workspace)
    eventually(lambda: "began" in [entry.path for entry in box.list()], within_s=60)
    pause_task(task.pk, mode=PauseMode.NOW, reason="stop", actor=task.created_by)
    worker.join(60)
    assert box.state() == "frozen"
    with pytest.raises(Refused, match=r"frozen in the middle of a call \(shell\)"):
        ordered(task.workspace, "true")
    assert box.state() == "frozen"


def test_a_task_paused_at_once_is_as_quiet_after_a_command_as_before() -> None:
    task = paused(scripted_task(TWO_STEPS))
    box = sandbox_for(task.workspace)
    box.start()
    box.freeze()
    assert ran(task.workspace, "echo awake").output == "awake\n"
    assert box.state() == "frozen"


def test_a_pause_at_once_halts_the_rest_when_the_command_under_way_has_ended() -> None:
    task = paused(scripted_task(TWO_STEPS))
    box = sandbox_for(task.workspace)
    command = ordered(
        task.workspace, "echo on > began; while [ ! -e end ]; do sleep 0.1; done; echo ended", limit_s=600
    )
    worker = threading.Thread(target=lambda: (terminal.run(command.pk), connection.close()))
    worker.start()
    eventually(lambda: "began" in [entry.path for entry in box.list()], within_s=60)
    resume_task(task.pk, actor=task.created_by)
    assert work(task).waiting_for == "workspace"
    pause_task(task.pk, mode=PauseMode.NOW, reason="stop", actor=task.created_by)
    assert work(task).status == TaskStatus.PAUSED.value
    box.write("end", b"")
    worker.join(60)
    command.refresh_from_db()
    assert (command.status, command.output) == ("finished", "ended\n"), "it was not halted with the task"
    assert box.state() == "frozen"


def test_a_command_is_killed_at_its_time_limit(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    command = ordered(workspace, "echo before; sleep 300; echo after")
    OperatorCommand.objects.filter(pk=command.pk).update(limit_s=1)
    terminal.run(command.pk)
    command.refresh_from_db()
    assert (command.status, command.timed_out, command.exit_code) == ("finished", True, None)
    assert command.output == "before\n"


def test_an_operator_stops_a_command(workspace: Workspace) -> None:
    command = ordered(workspace, "echo on > began; sleep 300", limit_s=600)
    worker = threading.Thread(target=lambda: (terminal.run(command.pk), connection.close()))
    worker.start()
    box = sandbox_for(workspace)
    eventually(lambda: "began" in [entry.path for entry in box.list()], within_s=60)
    stop_command(command.pk, actor=workspace.owner)
    worker.join(60)
    command.refresh_from_db()
    assert (command.status, command.why) == ("finished", "stopped by an operator")
    assert command.exit_code != 0
    assert AuditEntry.objects.filter(action="terminal.stop").exists()
    with pytest.raises(Refused, match="ended already"):
        stop_command(command.pk, actor=workspace.owner)


def test_long_output_is_cut_and_says_so(workspace: Workspace) -> None:
    command = ran(workspace, "yes 0123456789 | head -c 3000000; echo; echo the end")
    assert command.cut
    assert len(command.output) <= 110_000
    assert ran(workspace, "printf 'a\\000b'").status == "finished"


# ---- a worker that dies


def killed_worker(command: OperatorCommand, when: str) -> None:
    name = connection.settings_dict["NAME"]
    url = os.environ["DATABASE_URL"].replace("/agentdesk?", f"/{name}?")
    assert name in url
    done = subprocess.run(
        [sys.executable, "-m", "tests.engine.dying_command", str(command.pk), when],
        cwd=settings.REPO,
        env={**os.environ, "DATABASE_URL": url},
        timeout=120,
        check=False,
    )
    assert done.returncode == -9


@pytest.mark.long
def test_a_command_whose_worker_died_is_waited_for_and_not_run_again(workspace: Workspace) -> None:
    command = ordered(workspace, "echo once >> count.txt; echo started; sleep 2; echo ended")
    killed_worker(command, "running")
    terminal.run(command.pk)
    command.refresh_from_db()
    assert command.status == "running", "the dead worker's lease stands"
    eventually(lambda: redispatch_commands(after_s=0) == 1, within_s=settings.LEASE_S * 3 + 30)
    terminal.run(command.pk)
    command.refresh_from_db()
    assert (command.status, command.exit_code, command.output) == ("finished", 0, "started\nended\n")
    assert sandbox_for(workspace).read("count.txt") == b"once\n"


def test_a_command_that_was_begun_and_is_not_known_is_of_unknown_outcome(workspace: Workspace) -> None:
    command = ordered(workspace, "echo once >> count.txt")
    killed_worker(command, "begun")
    OperatorCommand.objects.filter(pk=command.pk).update(lease_until=None)
    terminal.run(command.pk)
    command.refresh_from_db()
    assert (command.status, command.exit_code) == ("unknown", None)
    assert "not run again" in command.why
    assert not sandbox_for(workspace).list(), "it was never run"
    assert ran(workspace, "echo next").output == "next\n"


def test_a_sandbox_that_goes_away_leaves_the_outcome_unknown(workspace: Workspace) -> None:
    command = ordered(workspace, "echo on > began; sleep 300", limit_s=600)
    worker = threading.Thread(target=lambda: (terminal.run(command.pk), connection.close()))
    worker.start()
    box = sandbox_for(workspace)
    eventually(lambda: "began" in [entry.path for entry in box.list()], within_s=60)
    time.sleep(0.1)
    box.stop()
    worker.join(60)
    command.refresh_from_db()
    assert command.status == "unknown"
    assert Workspace.objects.get(pk=workspace.pk).command_id is None
