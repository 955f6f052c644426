"""What an agent installs lies in its home, which is part of the disk: it survives sleep, rollback and fork."""

from __future__ import annotations

import ensurepip
import io
import zipfile
from datetime import timedelta
from pathlib import Path

import pytest
from django.db.models.functions import Now

from tests.harness import make_user, make_workspace, scripted_task, work
from tests.sandboxes.conftest import open_driver
from workspaces.actions.rollbacks import fork, roll_back
from workspaces.actions.tasks import pause_task, resume_task
from workspaces.domain.states import PauseMode
from workspaces.engine import lifecycle
from workspaces.engine.boxes import sandbox_for
from workspaces.models import Checkpoint, Task, Workspace

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.docker]

WHEEL = "greet-1.0-py3-none-any.whl"
INSTALLS = """
replies:
  - calls:
      - name: shell
        arguments: {command: "python3 pip.whl/pip install --no-index --quiet ./greet-1.0-py3-none-any.whl 2>&1"}
  - calls: [{name: shell, arguments: {command: "greet >> log"}}]
  - calls: [{name: shell, arguments: {command: "greet >> log; rm -rf ~/.local; ! command -v greet"}}]
  - calls: [{name: finish, arguments: {summary: "{{last_result}}"}}]
"""


def wheel() -> bytes:
    """A package with a command."""
    info = "greet-1.0.dist-info"
    files = {
        "greet.py": "def main():\n    print('hello')\n",
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: greet\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": "[console_scripts]\ngreet = greet:main\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{name},,\n" for name in (*files, f"{info}/RECORD"))
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return packed.getvalue()


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    open_driver("docker", "content", tmp_path).close()  # skips where there is no Docker
    made = make_workspace(make_user(), driver="docker")
    sandbox = sandbox_for(made)
    # the sandbox has no network, so the installer comes along: the one that Python brings
    (pip,) = Path(ensurepip.__file__).parent.glob("_bundled/pip-*.whl")
    sandbox.write("pip.whl", pip.read_bytes())
    sandbox.write(WHEEL, wheel())
    return made


def log(task: Task) -> str:
    return sandbox_for(Workspace.objects.get(pk=task.workspace_id)).read("log").decode()


def test_what_was_installed_survives_sleep_rollback_and_fork(workspace: Workspace) -> None:
    task = work(scripted_task(INSTALLS, workspace=workspace), until=lambda t: t.steps_taken >= 1)
    pause_task(task.pk, mode=PauseMode.BOUNDARY, reason="look", actor=task.created_by)
    task = work(task)
    Task.objects.filter(pk=task.pk).update(status_since=Now() - timedelta(days=1))
    Workspace.objects.filter(pk=workspace.pk).update(used_at=Now() - timedelta(days=1))
    assert lifecycle.sleep(workspace.pk)
    resume_task(task.pk, actor=task.created_by)
    task = work(task, until=lambda t: t.steps_taken >= 2)
    assert log(task) == "hello\n"
    task = work(task)
    assert task.status == "succeeded"
    assert log(task) == "hello\nhello\n"
    sandbox = lifecycle.awake_sandbox(Workspace.objects.get(pk=workspace.pk))
    assert sandbox.exec(["sh", "-c", "command -v greet"], key="gone").exit_code != 0

    installed = Checkpoint.objects.get(task=task, step_number=1)
    made = fork(installed.pk, reason="try", actor=task.created_by)
    made = work(made, until=lambda t: t.steps_taken >= 1)
    assert log(made) == "hello\n"

    roll_back(installed.pk, reason="back", actor=task.created_by)
    work(task)
    resume_task(task.pk, actor=task.created_by)
    task = work(task, until=lambda t: Checkpoint.objects.filter(branch=t.branch, step_number=2).exists())
    assert log(task) == "hello\n"
