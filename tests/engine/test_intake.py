"""Attachments come in before step 1, all of them or none."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from tests.engine.moments import killed_at
from tests.harness import events, make_user, make_workspace, scripted_profile, work
from workspaces.actions import leases
from workspaces.actions.errors import FenceLost
from workspaces.actions.escalations import answer_escalation
from workspaces.actions.tasks import create_task
from workspaces.domain.escalations import Decision
from workspaces.domain.states import TaskStatus
from workspaces.engine.boxes import sandbox_for
from workspaces.engine.disk import Disk
from workspaces.engine.keeper import Orders
from workspaces.engine.run import Run
from workspaces.models import Escalation, Task

pytestmark = pytest.mark.django_db(transaction=True)

LIST = """
replies:
  - calls: [{name: list_files, arguments: {recursive: true}}]
  - calls: [{name: finish, arguments: {summary: "{{last_result}}"}}]
"""


@pytest.fixture(autouse=True)
def uploads(settings: object, tmp_path: Path) -> Path:
    settings.MEDIA_ROOT = str(tmp_path)  # type: ignore[attr-defined]
    return tmp_path


def task_with(intake: dict[str, object]) -> Task:
    user = make_user()
    return create_task(
        workspace=make_workspace(user),
        profile_version=scripted_profile(user, LIST),
        instruction="List.",
        actor=user,
        intake=intake,
    )


def packed(path: Path, **members: bytes) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)


def test_files_and_an_archive_are_there_at_step_one(uploads: Path) -> None:
    (uploads / "u1").write_bytes(b"plain")
    packed(uploads / "u2", **{"src/app.py": b"print(1)"})
    task = work(task_with({"files": [{"name": "note.txt", "path": "u1"}], "archive": {"name": "a.zip", "path": "u2"}}))
    assert task.status == TaskStatus.SUCCEEDED
    assert "src/app.py" in task.result
    assert sandbox_for(task.workspace).read("note.txt") == b"plain"
    assert len(events(task, "intake.done")) == 2


def test_an_archive_that_climbs_out_asks_a_person_and_leaves_nothing(uploads: Path) -> None:
    (uploads / "u1").write_bytes(b"plain")
    packed(uploads / "bad", **{"../evil.txt": b"x"})
    task = work(task_with({"archive": {"name": "a.zip", "path": "bad"}, "files": [{"name": "note.txt", "path": "u1"}]}))
    question = Escalation.objects.get(task=task, status="open")
    assert question.kind == "intake"
    assert "evil.txt" in question.question
    assert sandbox_for(task.workspace).list() == []
    answer_escalation(question.pk, decision=Decision.GIVE_UP, actor=task.created_by, words="bad archive")
    task.refresh_from_db()
    assert task.status == TaskStatus.FAILED


def test_a_bomb_asks_a_person(uploads: Path) -> None:
    packed(uploads / "bomb", zeros=bytes(64 * 1024 * 1024))
    task = work(task_with({"archive": {"name": "bomb.zip", "path": "bomb"}}))
    assert Escalation.objects.get(task=task).kind == "intake"


def test_a_private_git_host_asks_a_person() -> None:
    task = work(task_with({"git_url": "https://127.0.0.1/x.git"}))
    assert "private network" in Escalation.objects.get(task=task).question


def test_a_path_outside_the_uploads_is_not_read(uploads: Path) -> None:
    task = work(task_with({"files": [{"name": "p", "path": "../../../../etc/passwd"}]}))
    assert Escalation.objects.get(task=task).kind == "intake"


@pytest.mark.parametrize(
    "place",
    ["workspaces.tools.intake.uploads:place", "workspaces.sandboxes.disk_sandbox:DiskSandbox.write"],
    ids=["between two sources", "between two files"],
)
def test_what_a_killed_worker_brought_in_by_half_is_brought_in_anew(uploads: Path, place: str) -> None:
    (uploads / "u1").write_bytes(b"plain")
    packed(uploads / "u2", **{"a.txt": b"a", "b.txt": b"b", "c.txt": b"c"})
    task = task_with({"files": [{"name": "note.txt", "path": "u1"}], "archive": {"name": "a.zip", "path": "u2"}})
    task = killed_at(task, place, time=1 if "place" in place else 2)
    sandbox = sandbox_for(task.workspace)
    assert sandbox.list(), "something had come in"
    sandbox.write("c.txt", b"half")
    task = work(task)
    assert task.status == TaskStatus.SUCCEEDED
    assert [report["told"] for report in events(task, "intake.done")] == [[], []]
    assert {entry.path for entry in sandbox.list()} >= {"a.txt", "b.txt", "c.txt", "note.txt"}
    assert sandbox.read("c.txt") == b"c"
    assert events(task, "workspace.restored")[0]["why"] == "the attachments came in only in part"


def test_a_worker_that_was_taken_over_does_not_put_files_back(uploads: Path) -> None:
    """Its intake is interrupted because it is lost: the disk is the other worker's."""
    (uploads / "u1").write_bytes(b"plain")
    task = task_with({"files": [{"name": "note.txt", "path": "u1"}]})
    claim = leases.claim(task.pk, worker="old", lease_s=30)
    assert claim is not None
    run = Run(Task.objects.get(pk=task.pk), claim.fence, Orders(task.pk, claim.fence))
    disk = Disk(run)
    before, _ = disk.saved()
    Task.objects.filter(pk=task.pk).update(fence=claim.fence + 1)
    disk.sandbox.write("theirs.txt", b"x")
    with pytest.raises(FenceLost):
        disk.restore(before, why="test")
    assert disk.sandbox.read("theirs.txt") == b"x"
