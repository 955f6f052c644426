"""kill -9 of a worker at every point of falling asleep, waking and tidying up: the next comes to the same end."""

from __future__ import annotations

import signal
import subprocess
import sys
from datetime import timedelta

import pytest
from django.conf import settings
from django.db.models.functions import Now

from tests.engine.test_lifecycle import age, asking, asleep, go_on, place
from tests.engine.test_recovery import child_environment
from tests.engine.test_retention import offered, paused, readable
from tests.harness import work
from workspaces.actions import sleep as moves
from workspaces.domain.states import TaskStatus, WorkspaceState
from workspaces.engine import lifecycle, retention
from workspaces.engine.boxes import sandbox_for
from workspaces.models import Workspace

pytestmark = pytest.mark.django_db(transaction=True)

MOVES, SANDBOX = "workspaces.actions.sleep", "workspaces.sandboxes.disk_sandbox"


def killed(deed: str, number: int, module: str, path: str, when: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.engine.dying_sleeper", deed, str(number), module, path, when],
        cwd=settings.REPO,
        env=child_environment(),
        timeout=60,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr[-2000:]


def let_the_claim_run_out(workspace_id: int) -> None:
    Workspace.objects.filter(pk=workspace_id).exclude(state_until=None).update(state_until=Now() - timedelta(seconds=1))
    moves.end_claims()


@pytest.mark.parametrize(
    ("module", "path", "when"),
    [
        (MOVES, "claim_sleep", "after"),
        (SANDBOX, "DiskSandbox.stop", "after"),
        (SANDBOX, "DiskSandbox.snapshot", "after"),
        (MOVES, "slept", "after"),
    ],
)
def test_a_worker_that_dies_while_a_workspace_falls_asleep(module: str, path: str, when: str) -> None:
    task = asking()
    age(task.workspace_id)
    killed("sleep", task.workspace_id, module, path, when)
    let_the_claim_run_out(task.workspace_id)
    if place(task).state != WorkspaceState.ASLEEP:
        assert lifecycle.sleep(task.workspace_id)
    assert place(task).slept_snapshot is not None
    assert sandbox_for(task.workspace).state() == "stopped"
    go_on(task)
    assert work(task).status == TaskStatus.SUCCEEDED
    assert sandbox_for(task.workspace).read("log") == b"one\ntool\n"


@pytest.mark.parametrize(
    ("module", "path", "when"),
    [
        (MOVES, "claim_wake", "after"),
        (SANDBOX, "DiskSandbox.start", "after"),
        (MOVES, "woke", "after"),
    ],
)
def test_a_worker_that_dies_while_a_workspace_wakes(module: str, path: str, when: str) -> None:
    task = asleep()
    moves.want_awake(task.workspace_id)
    killed("wake", task.workspace_id, module, path, when)
    go_on(task)
    task = work(task)
    if path != "woke":  # nobody else can tell that it died, until its lease is over
        assert (task.status, task.waiting_for) == (TaskStatus.WAITING, "workspace")
    let_the_claim_run_out(task.workspace_id)
    assert lifecycle.wake(task.workspace_id).awake
    assert place(task).wake_wanted_at is None
    assert work(task).status == TaskStatus.SUCCEEDED
    assert sandbox_for(task.workspace).read("log") == b"one\ntool\n"


@pytest.mark.parametrize(
    ("module", "path", "when"),
    [
        ("workspaces.actions.retention", "_drop", "after"),
        ("workspaces.sandboxes.snapshots.content", "ContentStore.drop", "after"),
        ("workspaces.actions.retention", "freed", "after"),
    ],
)
def test_a_worker_that_dies_while_it_tidies_up(module: str, path: str, when: str) -> None:
    task = paused()
    killed("retain", 0, module, path, when)
    assert set(offered(task)) <= set(readable(task))
    retention.run()
    assert offered(task) == readable(task) == [1, 4, 8, 9, 10]
