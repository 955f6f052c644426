"""What a call left running in the background changes files later: the checkpoints of quiet steps hold that, too."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness import eventually, make_user, make_workspace, scripted_task, work
from tests.sandboxes.conftest import open_driver
from workspaces.actions.rollbacks import roll_back
from workspaces.actions.tasks import pause_task
from workspaces.domain.states import PauseMode
from workspaces.engine.boxes import driver_for, sandbox_for
from workspaces.models import Checkpoint, Snapshot, Task, Workspace
from workspaces.sandboxes.base import NotAFile

pytestmark = pytest.mark.django_db(transaction=True)
LATER = """
replies:
  - calls:
      - name: shell
        arguments:
          command: "(while [ ! -e go ]; do sleep 0.02; done; echo late > late) >/dev/null 2>&1 &"
  - repeat: 3
    calls: [{name: note, arguments: {section: plan, text: "{{index}}"}}]
  - calls: [{name: finish, arguments: {summary: done}}]
"""


@pytest.fixture(params=["local", pytest.param("docker", marks=pytest.mark.docker)])
def workspace(request: pytest.FixtureRequest, tmp_path: Path) -> Workspace:
    open_driver(request.param, "content", tmp_path).close()  # skips where there is no Docker
    return make_workspace(make_user(), driver=request.param)


def saved(task: Task, step: int) -> Snapshot:
    return Checkpoint.objects.get(task=task, step_number=step).snapshot


def after(task: Task, steps: int) -> Task:
    return work(task, until=lambda t: t.steps_taken == steps)


def test_what_the_background_writes_is_in_the_checkpoint_of_the_next_step(workspace: Workspace) -> None:
    task = after(scripted_task(LATER, workspace=workspace), 1)
    sandbox, store = sandbox_for(workspace), driver_for(workspace).snapshots
    with pytest.raises(NotAFile):
        store.read(saved(task, 1).ref, "late")
    sandbox.write("go", b"")
    eventually(lambda: any(entry.path == "late" and entry.size_bytes for entry in sandbox.list()), within_s=30)
    eventually(lambda: sandbox.snapshot().quiet, within_s=30, what="it has ended")
    task = after(task, 2)
    assert store.read(saved(task, 2).ref, "late") == b"late\n"
    assert saved(after(task, 3), 3) == saved(task, 2), "nothing runs any more: the next step takes no snapshot"
    pause_task(task.pk, mode=PauseMode.BOUNDARY, reason="look", actor=task.created_by)
    task = work(task)
    sandbox.write("late", b"spoilt")
    roll_back(Checkpoint.objects.get(task=task, step_number=2).pk, reason="back", actor=task.created_by)
    work(task)
    assert sandbox.read("late") == b"late\n"


def test_while_the_background_runs_each_step_saves_the_disk(workspace: Workspace) -> None:
    task = after(scripted_task(LATER, workspace=workspace), 3)
    assert len({saved(task, step).pk for step in (1, 2, 3)}) == 3


def test_a_task_that_leaves_nothing_running_saves_the_disk_once(workspace: Workspace) -> None:
    task = work(scripted_task("replies:\n" + LATER[LATER.index("  - repeat") :], workspace=workspace))
    assert task.steps_taken == 4
    assert Snapshot.objects.filter(workspace=workspace).count() == 1
