"""Workspaces sleep when nothing is to run in them, wake for the next step, and rest when the installation stops."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import pytest
from django.conf import LazySettings
from django.core.management import call_command
from django.db.models import F
from django.db.models.functions import Now

from tests.engine.test_pause import SLEEPS, paused_in_a_command, ticks
from tests.harness import SEND_INVOICE, events, eventually, kinds, make_user, make_workspace, scripted_task, work
from workspaces import dispatch
from workspaces.actions import schedule
from workspaces.actions import sleep as moves
from workspaces.actions.escalations import answer_escalation
from workspaces.actions.tasks import resume_task
from workspaces.domain.escalations import Decision
from workspaces.domain.states import TaskStatus, WaitingFor, WorkspaceState
from workspaces.engine import lifecycle, runner
from workspaces.engine.boxes import driver_for, sandbox_for
from workspaces.models import Escalation, Task, ToolCall, Workspace
from workspaces.sandboxes.base import SandboxError, SandboxUnavailable

pytestmark = pytest.mark.django_db(transaction=True)

ASKS = """
replies:
  - calls: [{name: shell, arguments: {command: "echo one > log; echo tool > ~/tool"}}]
  - calls: [{name: send_invoice, arguments: {customer: Acme, amount: 1}}]
  - calls: [{name: shell, arguments: {command: "cat ~/tool >> log"}}]
  - calls: [{name: finish, arguments: {summary: done}}]
"""


def asking() -> Task:
    """A task that holds its workspace and waits for a person, its sandbox still running."""
    task = work(scripted_task(ASKS, declared_tools=[SEND_INVOICE | {"command": "cat"}]))
    assert task.status == TaskStatus.WAITING
    return task


def age(workspace_id: int, seconds: int = 10_000) -> None:
    """As if nothing had happened there for so long."""
    long_ago = Now() - timedelta(seconds=seconds)
    Workspace.objects.filter(pk=workspace_id).update(used_at=long_ago)
    Task.objects.filter(workspace=workspace_id).update(status_since=long_ago)


def place(task: Task) -> Workspace:
    return Workspace.objects.get(pk=task.workspace_id)


def asleep() -> Task:
    task = asking()
    age(task.workspace_id)
    assert lifecycle.sleep(task.workspace_id)
    return task


def go_on(task: Task) -> None:
    escalation = Escalation.objects.get(task=task, status="open")
    answer_escalation(escalation.pk, decision=Decision.APPROVE, actor=task.created_by)


def test_a_new_workspace_is_asleep_and_its_first_command_wakes_it() -> None:
    workspace = make_workspace(make_user())
    assert Workspace.objects.get(pk=workspace.pk).state == WorkspaceState.ASLEEP
    task = work(scripted_task(ASKS, workspace=workspace), until=lambda t: t.steps_taken >= 1)
    assert place(task).state == WorkspaceState.AWAKE
    assert kinds(task).count("workspace.woke") == 1


def test_an_idle_workspace_is_saved_its_sandbox_ended_and_its_files_stay() -> None:
    task = asleep()
    found = place(task)
    assert (found.state, found.state_until) == (WorkspaceState.ASLEEP, None)
    assert sandbox_for(found).state() == "stopped"
    assert found.slept_snapshot is not None
    assert driver_for(found).snapshots.read(found.slept_snapshot.ref, "log") == b"one\n"
    assert sandbox_for(found).read("log") == b"one\n"
    moves.use_workspace(found.pk)
    assert place(task).slept_snapshot is None  # from now on the disk may be another
    (slept,) = events(task, "workspace.slept")
    assert slept["snapshot"] == found.slept_snapshot.ref
    assert slept["idle_s"] >= 10_000


def test_the_next_step_wakes_it_and_what_was_installed_is_there() -> None:
    task = asleep()
    go_on(task)
    task = work(task)
    assert task.status == TaskStatus.SUCCEEDED
    assert place(task).state == WorkspaceState.AWAKE
    assert sandbox_for(task.workspace).read("log") == b"one\ntool\n"
    assert kinds(task).count("workspace.woke") == 2


@pytest.mark.parametrize(
    "wanted",
    [
        "it was used",
        "a task is due",
        "a task has just stopped",
        "a command is in flight",
        "it never sleeps",
        "it sleeps later",
        "the site never lets it sleep",
    ],
)
def test_what_is_wanted_does_not_fall_asleep(wanted: str, settings: LazySettings) -> None:
    task = asking()
    age(task.workspace_id)
    mine = Workspace.objects.filter(pk=task.workspace_id)
    if wanted == "it was used":
        moves.use_workspace(task.workspace_id)
    elif wanted == "a task is due":
        Task.objects.filter(pk=task.pk).update(
            status="queued", waiting_for="", waiting_reason="", waiting_since=None, waiting_until=None
        )
    elif wanted == "a task has just stopped":
        Task.objects.filter(pk=task.pk).update(status_since=Now())
    elif wanted == "a command is in flight":
        ToolCall.objects.filter(task=task, step__number=1).update(status="running")
    elif wanted == "it never sleeps":
        mine.update(idle_timeout_s=0)
    elif wanted == "it sleeps later":
        mine.update(idle_timeout_s=20_000)
    else:
        settings.IDLE_TIMEOUT_S = 0
    assert moves.idle_workspaces(settings.IDLE_TIMEOUT_S) == []
    assert not lifecycle.sleep(task.workspace_id)
    assert sandbox_for(task.workspace).state() == "running"
    assert place(task).state == WorkspaceState.AWAKE


def test_a_timeout_of_its_own_comes_before_the_sites(settings: LazySettings) -> None:
    settings.IDLE_TIMEOUT_S = 0
    task = asking()
    age(task.workspace_id, seconds=60)
    Workspace.objects.filter(pk=task.workspace_id).update(idle_timeout_s=30)
    assert moves.idle_workspaces(0) == [task.workspace_id]
    assert lifecycle.sleep(task.workspace_id)


def test_a_disk_that_cannot_be_saved_leaves_the_workspace_awake_and_usable(monkeypatch: pytest.MonkeyPatch) -> None:
    task = asking()
    age(task.workspace_id)
    store = driver_for(task.workspace).store  # type: ignore[attr-defined]

    def full(*arguments: Any) -> Any:
        raise SandboxError("no space left")

    with monkeypatch.context() as broken:
        broken.setattr(store, "save", full)
        assert not lifecycle.sleep(task.workspace_id)
    assert place(task).state == WorkspaceState.AWAKE
    go_on(task)
    assert work(task).status == TaskStatus.SUCCEEDED


def test_a_step_that_comes_while_it_falls_asleep_waits_and_is_called(calls: list[tuple[str, int]]) -> None:
    task = asking()
    age(task.workspace_id)
    nap = moves.claim_sleep(task.workspace_id, lease_s=60, site_timeout_s=300)
    assert nap is not None
    go_on(task)
    task = work(task)
    assert (task.status, task.waiting_for) == (TaskStatus.WAITING, WaitingFor.WORKSPACE)
    assert "falling asleep" in task.waiting_reason
    sandbox = sandbox_for(task.workspace)
    info = sandbox.snapshot()
    sandbox.stop()
    calls.clear()
    assert moves.slept(nap, info)
    assert ("wake", task.workspace_id) in calls
    assert place(task).slept_snapshot is None  # the step may have touched the disk after it was saved
    assert lifecycle.wake(task.workspace_id).awake
    assert work(task).status == TaskStatus.SUCCEEDED


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """What was sent to workers."""
    sent: list[tuple[str, int]] = []
    for name in ("wake", "sleep"):
        monkeypatch.setattr(dispatch, f"{name}_workspace", lambda pk, name=name: sent.append((name, pk)))
    return sent


def test_of_more_than_may_wake_at_once_the_others_queue_say_so_and_go_on_in_order(
    calls: list[tuple[str, int]], settings: LazySettings
) -> None:
    settings.WAKES_AT_ONCE = 1
    first, second, third = (asleep() for _ in range(3))
    ticket = moves.claim_wake(first.workspace_id, lease_s=60, at_once=1)
    assert ticket.fence is not None
    for task in (second, third):
        go_on(task)
        work(task)
        task.refresh_from_db()
        assert (task.status, task.waiting_for) == (TaskStatus.WAITING, WaitingFor.WORKSPACE)
        assert task.waiting_until is not None
    assert "1 other workspaces" in second.waiting_reason
    assert "2 other workspaces" in third.waiting_reason
    assert place(second).state == WorkspaceState.ASLEEP
    assert moves.call_next(1) == 0
    calls.clear()
    assert moves.woke(first.workspace_id, ticket.fence, at_once=1)
    assert calls == [("wake", second.workspace_id)]
    assert not lifecycle.wake(third.workspace_id).awake  # it is not its turn
    assert lifecycle.wake(second.workspace_id).awake
    second.refresh_from_db()
    assert second.status == TaskStatus.QUEUED
    assert calls[-1] == ("wake", third.workspace_id)
    assert lifecycle.wake(third.workspace_id).awake
    for task in (second, third):
        assert work(task).status == TaskStatus.SUCCEEDED


def test_a_claim_to_wake_whose_worker_died_ends_and_is_queued_again(calls: list[tuple[str, int]]) -> None:
    task = asleep()
    ticket = moves.claim_wake(task.workspace_id, lease_s=60, at_once=1)
    assert not moves.claim_wake(task.workspace_id, lease_s=60, at_once=1).awake
    Workspace.objects.filter(pk=task.workspace_id).update(state_until=Now() - timedelta(seconds=1))
    assert moves.end_claims() == 1
    assert (place(task).state, place(task).state_until) == (WorkspaceState.ASLEEP, None)
    calls.clear()
    assert moves.call_next(1) == 1
    assert calls == [("wake", task.workspace_id)]
    assert lifecycle.wake(task.workspace_id).awake
    assert ticket.fence is not None
    assert not moves.wake_failed(task.workspace_id, ticket.fence, at_once=1)  # what the dead one writes late
    assert place(task).state == WorkspaceState.AWAKE


def test_a_claim_to_wake_is_no_longer_than_a_lease_and_renewed_while_the_sandbox_starts(
    monkeypatch: pytest.MonkeyPatch, settings: LazySettings
) -> None:
    settings.LEASE_S = 3
    task = asleep()
    kind: Any = type(sandbox_for(task.workspace))
    starts = kind.start
    left: list[timedelta] = []

    def slowly(sandbox: Any) -> None:
        for _ in range(9):
            time.sleep(0.5)
            left.append(Workspace.objects.annotate(left=F("state_until") - Now()).get(pk=task.workspace_id).left)
        starts(sandbox)

    monkeypatch.setattr(kind, "start", slowly)
    assert lifecycle.wake(task.workspace_id).awake
    assert len(left) == 9
    assert all(timedelta() < rest <= timedelta(seconds=3) for rest in left)
    assert place(task).state == WorkspaceState.AWAKE


def test_a_sandbox_that_starts_after_its_claim_has_ended_is_not_taken_for_awake(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    task = asleep()
    kind: Any = type(sandbox_for(task.workspace))
    starts = kind.start

    def too_late(sandbox: Any) -> None:
        starts(sandbox)
        Workspace.objects.filter(pk=task.workspace_id).update(state_until=Now() - timedelta(seconds=1))
        assert moves.end_claims() == 1

    with monkeypatch.context() as slow:
        slow.setattr(kind, "start", too_late)
        assert not lifecycle.wake(task.workspace_id).awake
    assert place(task).state == WorkspaceState.ASLEEP
    assert lifecycle.wake(task.workspace_id).awake


def test_a_claim_to_sleep_whose_worker_died_ends_and_the_workspace_sleeps_next_time() -> None:
    task = asking()
    age(task.workspace_id)
    nap = moves.claim_sleep(task.workspace_id, lease_s=60, site_timeout_s=300)
    assert nap is not None
    assert not lifecycle.sleep(task.workspace_id)
    sandbox_for(task.workspace).stop()  # it died after it had ended the sandbox
    Workspace.objects.filter(pk=task.workspace_id).update(state_until=Now() - timedelta(seconds=1))
    assert moves.end_claims() == 1
    assert place(task).state == WorkspaceState.AWAKE
    assert lifecycle.sleep(task.workspace_id)
    assert not moves.slept(nap, sandbox_for(task.workspace).snapshot())
    assert place(task).slept_snapshot is not None


def test_a_sandbox_that_went_away_while_awake_is_started_again() -> None:
    task = asking()
    sandbox_for(task.workspace).stop()
    go_on(task)
    assert work(task).status == TaskStatus.SUCCEEDED
    assert place(task).state == WorkspaceState.AWAKE


def test_a_sandbox_that_does_not_start_leaves_the_workspace_asleep_and_the_task_says_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    task = asleep()
    go_on(task)

    def refused(self: Any) -> None:
        raise SandboxUnavailable("the engine is away")

    with monkeypatch.context() as broken:
        broken.setattr(type(sandbox_for(task.workspace)), "start", refused)
        work(task)
        task.refresh_from_db()
        assert (task.status, task.waiting_for) == (TaskStatus.WAITING, WaitingFor.TIMER)
        assert "the engine is away" in task.waiting_reason
        assert (place(task).state, place(task).wake_wanted_at) == (WorkspaceState.ASLEEP, None)
    Task.objects.filter(pk=task.pk).update(waiting_until=Now())
    assert schedule.end_waits() == 1
    assert work(task).status == TaskStatus.SUCCEEDED


def test_a_sandbox_that_runs_although_its_workspace_sleeps_is_ended() -> None:
    task = asleep()
    sandbox_for(task.workspace).start()
    busy = paused_in_a_command()
    Workspace.objects.filter(pk=busy.workspace_id).update(state="asleep")
    assert lifecycle.sweep_all() == 1
    assert sandbox_for(task.workspace).state() == "stopped"
    assert sandbox_for(busy.workspace).state() == "frozen"


def test_a_workspace_that_has_just_woken_is_not_swept(monkeypatch: pytest.MonkeyPatch) -> None:
    task = asleep()
    sandbox_for(task.workspace).start()
    found = moves.strays

    def woken_meanwhile(keys: list[str]) -> list[int]:
        ids = found(keys)
        lifecycle.wake(task.workspace_id)
        return ids

    monkeypatch.setattr(moves, "strays", woken_meanwhile)
    assert lifecycle.sweep_all() == 0
    assert sandbox_for(task.workspace).state() == "running"
    assert place(task).state == WorkspaceState.AWAKE


def test_a_person_at_a_terminal_waits_for_the_turn(settings: LazySettings) -> None:
    settings.WAKES_AT_ONCE = 1
    task, other = asleep(), asleep()
    ticket = moves.claim_wake(other.workspace_id, lease_s=60, at_once=1)
    with pytest.raises(SandboxUnavailable, match="1 other workspaces"):
        lifecycle.awake_sandbox(task.workspace, within_s=0.2)
    assert ticket.fence is not None
    moves.woke(other.workspace_id, ticket.fence, at_once=1)
    assert lifecycle.awake_sandbox(task.workspace).state() == "running"
    lifecycle.awake_sandbox(task.workspace).stop()
    assert lifecycle.awake_sandbox(task.workspace).state() == "running"


def test_the_scheduler_calls_for_what_is_idle_and_what_is_to_wake(calls: list[tuple[str, int]]) -> None:
    idle, wanted = asking(), asleep()
    age(idle.workspace_id)
    moves.want_awake(wanted.workspace_id)
    calls.clear()
    call_command("scheduler", once=True)
    assert set(calls) == {("sleep", idle.workspace_id), ("wake", wanted.workspace_id)}


def test_what_is_awake_is_not_queued_to_wake(calls: list[tuple[str, int]]) -> None:
    task = asking()
    assert moves.want_awake(task.workspace_id) is WorkspaceState.AWAKE
    Workspace.objects.filter(pk=task.workspace_id).update(wake_wanted_at=Now() - F("id") * timedelta(seconds=1))
    assert lifecycle.wake(task.workspace_id).awake
    assert place(task).wake_wanted_at is None
    assert calls == []


def test_at_a_stop_idle_sandboxes_end_and_a_command_in_flight_is_frozen_and_goes_on_later() -> None:
    idle = asking()
    busy = paused_in_a_command()
    sandbox_for(busy.workspace).thaw()
    done = lifecycle.rest_all("local")
    assert done == {"stopped": 1, "frozen": 1}
    assert sandbox_for(idle.workspace).state() == "stopped"
    assert place(idle).state == WorkspaceState.ASLEEP
    assert sandbox_for(busy.workspace).state() == "frozen"
    resume_task(busy.pk, actor=busy.created_by)
    busy = work(busy)
    assert busy.status == TaskStatus.SUCCEEDED
    eventually(lambda: len(ticks(busy)) == 16)
    assert ToolCall.objects.get(task=busy, step__number=2).attempt == 1


def test_a_finished_task_leaves_its_sandbox_for_the_next_one() -> None:
    task = work(scripted_task(SLEEPS))
    assert sandbox_for(task.workspace).state() == "running"
    assert place(task).state == WorkspaceState.AWAKE
    runner.advance(task.pk)
