"""A new task: who may start one where, what comes with it, and what a refusal keeps."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from tests.harness import make_workspace, scripted_profile
from tests.web.pages import page
from tests.web.people import Desk
from workspaces.models import Task, User

pytestmark = pytest.mark.django_db

SignIn = Callable[[User], Client]


@pytest.fixture(autouse=True)
def uploads(settings: Any, tmp_path: Path) -> Path:
    settings.MEDIA_ROOT = tmp_path / "uploads"
    return tmp_path / "uploads"


def form(desk: Desk, **changes: Any) -> dict[str, Any]:
    fields = {"workspace": desk.workspace.pk, "profile": desk.version.pk, "instruction": "Tidy up."}
    return fields | changes


def a_zip() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("a.txt", "hello")
    return out.getvalue()


def test_an_operator_starts_a_task_on_hold(desk: Desk, signed_in: SignIn) -> None:
    response = signed_in(desk.operator).post("/tasks/new/", form(desk, hold="on", title="Spring"))
    task = Task.objects.get()
    assert response.headers["Location"] == f"/tasks/{task.pk}/"
    assert (task.title, task.status, task.created_by, task.intake) == ("Spring", "paused", desk.operator, {})


@pytest.mark.parametrize("who", ["viewer", "outsider"])
def test_who_may_not_operate_the_workspace_cannot_choose_it(desk: Desk, signed_in: SignIn, who: str) -> None:
    client = signed_in(getattr(desk, who))
    assert "No workspace" in page(client.get("/tasks/new/")).text("main .empty h2")
    assert client.post("/tasks/new/", form(desk)).status_code == 422
    assert not Task.objects.exists()


def test_another_workspaces_profile_is_not_offered_and_cannot_be_chosen(desk: Desk, signed_in: SignIn) -> None:
    theirs = scripted_profile(desk.outsider, "replies: [{text: hi}]")
    theirs.profile.workspace = make_workspace(desk.outsider)
    theirs.profile.save()
    offered = page(signed_in(desk.operator).get("/tasks/new/")).all("#id_profile option")
    assert str(desk.version.pk) in {option["value"] for option in offered}
    assert str(theirs.pk) not in {option["value"] for option in offered}
    response = signed_in(desk.operator).post("/tasks/new/", form(desk, profile=theirs.pk))
    assert response.status_code == 422
    assert not Task.objects.exists()


def test_a_sole_workspace_and_profile_are_chosen_already(desk: Desk, signed_in: SignIn) -> None:
    got = page(signed_in(desk.operator).get("/tasks/new/"))
    assert got.one("#id_workspace option[selected]")["value"] == str(desk.workspace.pk)
    assert got.one("#id_profile option[selected]")["value"] == str(desk.version.pk)


def test_attachments_are_stored_for_the_engine(desk: Desk, signed_in: SignIn, uploads: Path) -> None:
    files = [SimpleUploadedFile("../../a b.txt", b"one"), SimpleUploadedFile("b.bin", b"\x00" * 300_000)]
    signed_in(desk.operator).post(
        "/tasks/new/",
        form(
            desk,
            files=files,
            archive=SimpleUploadedFile("p.zip", a_zip()),
            git_url="https://example.org/team/project.git",
        ),
    )
    intake = Task.objects.get().intake
    assert [file["name"] for file in intake["files"]] == ["a b.txt", "b.bin"]
    for stored in [*intake["files"], intake["archive"]]:
        assert Path(stored["path"]).is_relative_to(uploads)
    assert Path(intake["files"][1]["path"]).read_bytes() == b"\x00" * 300_000
    assert Path(intake["archive"]["path"]).read_bytes() == a_zip()
    assert intake["git_url"] == "https://example.org/team/project.git"


@pytest.mark.parametrize(
    "url", ["--upload-pack=touch /tmp/x", "file:///etc/passwd", "ext::sh -c id", "git@host:x", "not a url"]
)
def test_a_git_url_that_is_none_is_refused_and_what_was_typed_is_kept(desk: Desk, signed_in: SignIn, url: str) -> None:
    response = signed_in(desk.operator).post("/tasks/new/", form(desk, git_url=url, title="Keep <me>"))
    assert response.status_code == 422
    got = page(response)
    got.one("#form-errors")
    assert got.one("#id_git_url")["value"] == url
    assert got.one("#id_git_url")["aria-invalid"] == "true"
    assert got.text("#id_instruction") == "Tidy up."
    assert got.one("#id_title")["value"] == "Keep <me>"
    assert not Task.objects.exists()


def test_a_file_that_is_too_large_is_refused_and_nothing_is_left(
    desk: Desk, signed_in: SignIn, settings: Any, uploads: Path
) -> None:
    settings.UPLOAD_MAX_BYTES = 1024 * 1024
    response = signed_in(desk.operator).post(
        "/tasks/new/",
        form(
            desk,
            files=[SimpleUploadedFile("small", b"x"), SimpleUploadedFile("big.bin", b"x" * (1024 * 1024 + 1))],
        ),
    )
    assert response.status_code == 422
    got = page(response)
    assert "big.bin is larger than 1 MB" in got.text("#form-errors")
    assert got.text("#id_instruction") == "Tidy up."
    assert "choose them again" in got.text("main p[role=status]")
    assert not Task.objects.exists()
    assert not list(uploads.glob("*"))


def test_an_archive_that_is_none_is_refused(desk: Desk, signed_in: SignIn, uploads: Path) -> None:
    response = signed_in(desk.operator).post(
        "/tasks/new/", form(desk, archive=SimpleUploadedFile("p.zip", b"not an archive at all"))
    )
    assert response.status_code == 422
    assert "p.zip is not a zip or tar archive" in page(response).text("#form-errors")
    assert not list(uploads.glob("*"))


def test_an_empty_instruction_is_refused(desk: Desk, signed_in: SignIn) -> None:
    response = signed_in(desk.operator).post("/tasks/new/", form(desk, instruction=" \n "))
    assert response.status_code == 422
    assert "Write what the agent is to do." in page(response).text("main .errors")


def test_an_upload_without_the_forms_token_is_refused(desk: Desk) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(desk.operator)
    assert client.post("/tasks/new/", form(desk)).status_code == 403
    assert not Task.objects.exists()


def test_the_page_takes_no_other_method_and_no_stranger(desk: Desk, signed_in: SignIn, client: Client) -> None:
    assert signed_in(desk.operator).put("/tasks/new/").status_code == 405
    assert client.get("/tasks/new/").status_code == 302
