"""No room left where disks and snapshots lie: the model or a person is told in clear words, and nothing is lost."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness import kinds, scripted_task, work
from workspaces.actions.escalations import answer_escalation
from workspaces.domain.escalations import Decision
from workspaces.domain.states import TaskStatus
from workspaces.engine import boxes
from workspaces.models import Checkpoint, Escalation, Task, ToolCall

pytestmark = pytest.mark.django_db(transaction=True)

SIZE_MB = 24


@pytest.fixture
def small(tmp_path: Path, settings: object, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """All disks and snapshots on a file system of 24 MB."""
    place = tmp_path / "small"
    place.mkdir()
    if (
        os.geteuid() != 0
        or subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={SIZE_MB}m", "tmpfs", place], capture_output=True, check=False
        ).returncode
    ):
        pytest.skip("a file system of its own needs root")
    settings.SANDBOX_ROOT = place  # type: ignore[attr-defined]
    monkeypatch.setattr(boxes, "_drivers", {})
    try:
        yield place
    finally:
        for driver in boxes.open_drivers():
            driver.close()
        subprocess.run(["umount", "-l", place], check=True)


def fill(place: Path, leave_bytes: int = 0) -> Path:
    """A file that is in the way; removing it makes room."""
    ballast = place / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(64 * 1024))
        except OSError:
            pass
        if leave_bytes:
            file.truncate(max(0, ballast.stat().st_size - leave_bytes))
    return ballast


def in_the_way_until_asked(task: Task, ballast: Path) -> Task:
    task = work(task)
    question = Escalation.objects.get(task=task, status="open")
    assert question.kind == "sandbox", question.question
    assert "no room" in question.question.lower()
    assert task.status == TaskStatus.WAITING
    ballast.unlink()
    answer_escalation(question.pk, decision=Decision.CONTINUE, actor=task.created_by)
    return work(task)


def test_a_full_store_of_snapshots_asks_a_person_and_goes_on_when_there_is_room(small: Path) -> None:
    task = scripted_task(
        """
        replies:
          - calls: [{name: write_file, arguments: {path: a.txt, content: one}}]
          - calls: [{name: shell, arguments: {command: "head -c 3000000 /dev/urandom > big; echo ran >> count"}}]
          - calls: [{name: finish, arguments: {summary: done}}]
        """
    )
    task = work(task, until=lambda task: task.steps_taken == 1)
    ballast = fill(small, leave_bytes=4_000_000)  # the file fits, its snapshot does not
    task = in_the_way_until_asked(task, ballast)
    assert task.status == TaskStatus.SUCCEEDED, kinds(task)
    sandbox = boxes.sandbox_for(task.workspace)
    assert sandbox.read("count") == b"ran\n"
    assert ToolCall.objects.get(task=task, name="shell").attempt == 1
    last = Checkpoint.objects.filter(task=task).order_by("-seq")[0]
    sandbox.restore(last.snapshot.ref)
    assert len(sandbox.read("big")) == 3_000_000


def test_a_full_disk_at_each_step_loses_nothing(small: Path) -> None:
    task = scripted_task(
        """
        replies:
          - calls: [{name: write_file, arguments: {path: a.txt, content: one}}]
          - calls: [{name: write_file, arguments: {path: b.txt, content: two}}]
          - calls: [{name: shell, arguments: {command: "cat a.txt b.txt"}}]
          - calls: [{name: finish, arguments: {summary: "{{last_result}}"}}]
        """
    )
    task = work(task, until=lambda task: task.steps_taken == 1)
    task = in_the_way_until_asked(task, fill(small))
    assert task.status == TaskStatus.SUCCEEDED, kinds(task)
    assert "no room left" in ToolCall.objects.get(task=task, name="write_file", step__number=2).result
    assert "one" in task.result


def test_a_command_that_fills_the_disk_is_told_so(small: Path) -> None:
    task = scripted_task(
        f"""
        replies:
          - calls: [{{name: shell, arguments: {{command: "head -c {SIZE_MB * 2}000000 /dev/zero > big"}}}}]
          - calls: [{{name: shell, arguments: {{command: "ls"}}}}]
          - calls: [{{name: finish, arguments: {{summary: done}}}}]
        """
    )
    task = work(task)
    first = ToolCall.objects.filter(task=task, name="shell").order_by("pk")[0]
    assert "No space left" in first.result
    task = in_the_way_until_asked(task, next(small.glob("local/disks/*/files/big")))
    assert task.status == TaskStatus.SUCCEEDED, kinds(task)
