"""Files of a task's workspace: now, as saved, and what differs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings

from tests.web.pages import page, words
from tests.web.people import Desk
from tests.web.worked import finished_task
from workspaces.engine.boxes import sandbox_for
from workspaces.models import Checkpoint, Task
from workspaces.sandboxes.base import FileChange
from workspaces.web.views.files import printable_changes

pytestmark = pytest.mark.django_db(transaction=True)

HX = {"HTTP_HX_REQUEST": "true"}


def seq_after(task: Task, step: int) -> int:
    return Checkpoint.objects.filter(task=task, step_number=step).order_by("-seq")[0].seq


def test_a_folder_is_listed_now_and_as_saved(desk: Desk, signed_in: Any) -> None:
    task = finished_task(desk)
    client = signed_in(desk.viewer)
    now = page(client.get(f"/tasks/{task.pk}/panels/files/", **HX))
    assert [words(cell) for cell in now.all(".file-name")] == ["data", "hello.txt"]
    before = page(client.get(f"/tasks/{task.pk}/panels/files/?at={seq_after(task, 1)}", **HX))
    assert [words(cell) for cell in before.all(".file-name")] == ["hello.txt"]
    inner = page(client.get(f"/tasks/{task.pk}/panels/files/?path=data", **HX))
    assert [words(cell) for cell in inner.all(".file-name")] == ["noise.bin"]


def test_names_that_are_no_utf8_are_listed_and_break_no_page(desk: Desk, signed_in: Any) -> None:
    task = finished_task(desk)
    folder = Path(settings.SANDBOX_ROOT)
    (files,) = [found.parent for found in folder.rglob("hello.txt") if desk.workspace.sandbox_key in str(found)][:1]
    for name in (b"bad\xffname", b"new\nline"):
        Path(os.fsdecode(os.fsencode(files) + b"/" + name)).write_text("x")
    client = signed_in(desk.operator)
    listed = [words(cell) for cell in page(client.get(f"/tasks/{task.pk}/panels/files/", **HX)).all(".file-name")]
    assert any("bad\N{REPLACEMENT CHARACTER}name" in name for name in listed)
    changes = printable_changes([FileChange("bad\udcffname", "added", None, 1)])
    assert [change.path for change in changes] == ["bad\N{REPLACEMENT CHARACTER}name"]


def test_a_file_is_shown_as_text_and_never_as_markup(desk: Desk, signed_in: Any) -> None:
    task = finished_task(desk)
    sandbox_for(task.workspace).write("evil.html", b"<script>alert(1)</script>")
    seen = page(signed_in(desk.viewer).get(f"/tasks/{task.pk}/files/?path=evil.html", **HX))
    assert seen.one("pre.file-text").get_text() == "<script>alert(1)</script>"
    old = page(signed_in(desk.viewer).get(f"/tasks/{task.pk}/files/?path=hello.txt&at={seq_after(task, 1)}", **HX))
    assert old.text("pre.file-text") == "one"


def test_binary_large_and_missing_files_are_said_to_be_so(desk: Desk, signed_in: Any) -> None:
    task = finished_task(desk)
    client = signed_in(desk.viewer)
    binary = page(client.get(f"/tasks/{task.pk}/files/?path=data/noise.bin", **HX))
    assert "binary file" in binary.text("dialog")
    sandbox_for(task.workspace).write("big.txt", b"x" * 600_000)
    assert "Download it" in page(client.get(f"/tasks/{task.pk}/files/?path=big.txt", **HX)).text("dialog")
    for path in ("nothing.txt", "../../etc/passwd", "/etc/passwd", "data", "a\x00b", ""):
        assert client.get(f"/tasks/{task.pk}/files/", {"path": path}, **HX).status_code == 404, path
        assert client.get(f"/tasks/{task.pk}/files/download/", {"path": path}).status_code == 404, path


def test_a_download_is_an_attachment_without_a_guessed_type(desk: Desk, signed_in: Any) -> None:
    task = finished_task(desk)
    sandbox_for(task.workspace).write('a "b"\r\n é.html', b"<b>hi</b>")
    response = signed_in(desk.viewer).get(f"/tasks/{task.pk}/files/download/", {"path": 'a "b"\r\n é.html'})
    assert response.content == b"<b>hi</b>"
    assert response["Content-Disposition"] == "attachment; filename*=UTF-8''a%20%22b%22%0D%0A%20%C3%A9.html"
    assert response["X-Content-Type-Options"] == "nosniff"
    assert "sandbox" in response["Content-Security-Policy"]
    assert signed_in(desk.outsider).get(f"/tasks/{task.pk}/files/download/?path=hello.txt").status_code == 404


def test_two_checkpoints_are_compared_file_by_file(desk: Desk, signed_in: Any) -> None:
    task = finished_task(desk)
    client = signed_in(desk.viewer)
    query = f"before={seq_after(task, 1)}&after={seq_after(task, 3)}"
    seen = page(client.get(f"/tasks/{task.pk}/diff/?{query}"))
    listed = [words(item) for item in seen.all(".diff-file .change")]
    assert sorted(listed) == ["added", "changed"]
    one = page(client.get(f"/tasks/{task.pk}/diff/file/?{query}&path=hello.txt", **HX))
    assert [words(line) for line in one.all(".diff-add, .diff-del")] == ["-one", "+two"]
    binary = page(client.get(f"/tasks/{task.pk}/diff/file/?{query}&path=data/noise.bin", **HX))
    assert "binary" in binary.text(".diff-trouble")
    same = page(client.get(f"/tasks/{task.pk}/diff/?before={seq_after(task, 1)}&after={seq_after(task, 1)}"))
    assert "The files are the same" in same.text(".empty h2")


def test_a_checkpoint_of_another_task_is_not_found(desk: Desk, signed_in: Any) -> None:
    task, other = finished_task(desk), desk.task()
    client = signed_in(desk.viewer)
    assert client.get(f"/tasks/{other.pk}/panels/files/?at={seq_after(task, 1)}", **HX).status_code == 404
    assert client.get(f"/tasks/{other.pk}/diff/").status_code == 404, "nothing saved, nothing to compare"
