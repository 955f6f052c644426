"""After a restore: which state each disk gets, who holds what, and what is told about files that are lost."""

from __future__ import annotations

import pytest

from tests.harness import events, scripted_task, work
from workspaces.actions import steps
from workspaces.actions.errors import FenceLost
from workspaces.actions.leases import claim
from workspaces.actions.restored import task_restored, unfinished_tasks, workspaces_restored
from workspaces.domain.states import TaskStatus
from workspaces.engine.boxes import sandbox_for
from workspaces.models import Checkpoint, Message, Task, ToolCall, Workspace
from workspaces.queries.disks import saved_disk

pytestmark = pytest.mark.django_db(transaction=True)

SCENARIO = """
replies:
  - calls: [{name: write_file, arguments: {path: a.txt, content: one}}]
  - calls:
      - {name: write_file, arguments: {path: a.txt, content: two}}
      - {name: write_file, arguments: {path: b.txt, content: three}}
  - calls: [{name: finish, arguments: {summary: done}}]
"""


class Died(BaseException):
    """The end of everything, at a line."""


def dies_before(monkeypatch: pytest.MonkeyPatch, module: object, name: str, *, times: int) -> None:
    """The `times`-th call of it never begins."""
    original = getattr(module, name)
    left = [times]

    def deadly(*args: object, **more: object) -> object:
        left[0] -= 1
        if not left[0]:
            raise Died
        return original(*args, **more)

    monkeypatch.setattr(module, name, deadly)


def workspace_of(task: Task) -> Workspace:
    return Workspace.objects.select_related("slept_snapshot", "held_by").get(pk=task.workspace_id)


def test_a_finished_call_whose_files_are_in_no_snapshot_is_told_to_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    from workspaces.actions import calls

    task = work(scripted_task(SCENARIO), until=lambda task: task.steps_taken == 1)
    with monkeypatch.context() as patched:
        dies_before(patched, calls, "start_call", times=2)  # the first of the two is done, nothing was saved after it
        with pytest.raises(Died):
            work(task)
    first = ToolCall.objects.filter(task=task, step__number=2).order_by("position")[0]
    assert first.status == "done"
    saved = saved_disk(workspace_of(task))
    assert saved.snapshot is not None
    assert saved.undone == [], "the snapshot of before the second call holds the first one's file"
    saved.snapshot.delete()  # as if the backup had been made a moment before it
    state = saved_disk(workspace_of(task))
    assert state.snapshot is not None
    assert state.undone == ["write_file"]
    task_restored(task.pk, made_at="yesterday", snapshot=state.snapshot, undone=state.undone)
    sandbox_for(task.workspace).restore(state.snapshot.ref)
    assert sandbox_for(task.workspace).read("a.txt") == b"one"
    assert events(task, "task.restored") == [
        {"made_at": "yesterday", "snapshot": state.snapshot.ref, "undone": ["write_file"]}
    ]
    told = Message.objects.filter(task=task, role="user").order_by("pk").last()
    assert told is not None
    assert "write_file" in told.content
    assert work(task).status == TaskStatus.SUCCEEDED


def test_whoever_held_a_task_can_write_no_more_and_the_task_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    task = work(scripted_task(SCENARIO), until=lambda task: task.steps_taken == 1)
    held = claim(task.pk, worker="gone", lease_s=600)
    assert held is not None
    assert unfinished_tasks() == [task.pk]
    state = saved_disk(workspace_of(task))
    assert state.snapshot is not None
    Workspace.objects.update(network_read=5_000, left_running=True)
    workspaces_restored({task.workspace_id: state.snapshot})
    assert (workspace_of(task).network_read, workspace_of(task).left_running) == (0, False), "the log begins anew"
    task_restored(task.pk, made_at="yesterday", snapshot=state.snapshot, undone=[])
    with pytest.raises(FenceLost):
        steps.workspace_woke(task.pk, held.fence, duration_s=0)
    assert workspace_of(task).state == "asleep"
    assert work(task).status == TaskStatus.SUCCEEDED
    assert not events(task, "task.taken_over")
    assert unfinished_tasks() == []


def test_a_workspace_without_a_task_gets_what_its_last_task_left() -> None:
    task = work(scripted_task(SCENARIO))
    last = Checkpoint.objects.filter(task=task).order_by("-seq")[0]
    assert saved_disk(workspace_of(task)).snapshot == last.snapshot
