"""Workspaces: seen by members only, shared by owners only; signing in; records for staff, read-only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db.models.functions import Now
from django.test import Client

from tests.web.pages import page
from tests.web.people import Desk
from workspaces.models import AuditEntry, Membership, Snapshot, User, Workspace

pytestmark = pytest.mark.django_db

SignIn = Callable[[User], Client]


def test_members_see_it_and_outsiders_get_404(desk: Desk, signed_in: SignIn) -> None:
    path = f"/workspaces/{desk.workspace.pk}/"
    for user, role in ((desk.owner, "owner"), (desk.operator, "operator"), (desk.viewer, "viewer")):
        got = page(signed_in(user).get(path))
        assert role in got.text(".page-head")
        assert role in page(signed_in(user).get("/workspaces/")).text("tbody tr")
    assert signed_in(desk.outsider).get(path).status_code == 404
    page(signed_in(desk.outsider).get("/workspaces/")).none("tbody tr")


def test_a_workspace_without_isolation_says_so_on_every_page(desk: Desk, signed_in: SignIn) -> None:
    client = signed_in(desk.viewer)
    for path in ("/", "/inbox/", "/workspaces/", "/profiles/", "/tasks/new/"):
        assert "without isolation" in page(client.get(path)).text("#not-isolated")
    page(signed_in(desk.outsider).get("/")).none("#not-isolated")


def test_somebody_makes_a_workspace_and_owns_it(desk: Desk, signed_in: SignIn) -> None:
    client = signed_in(desk.outsider)
    assert client.post("/workspaces/new/", {"name": "lab", "driver": "docker"}).status_code == 302
    workspace = Workspace.objects.get(name="lab")
    assert (workspace.owner, workspace.driver) == (desk.outsider, "docker")
    again = client.post("/workspaces/new/", {"name": "lab", "driver": "docker"})
    assert again.status_code == 422
    assert "already" in page(again).text(".notice-error")
    assert page(again).one("#id_name")["value"] == "lab"
    assert client.post("/workspaces/new/", {"name": "x", "driver": "moon"}).status_code == 422
    assert client.post("/workspaces/new/", {"name": "  ", "driver": "docker"}).status_code == 422


def test_snapshots_whose_bytes_are_gone_are_not_counted(desk: Desk, signed_in: SignIn) -> None:
    sizes = {"total_bytes": 5 * 1024**2, "files": 1, "duration_s": 0}
    made = [
        Snapshot.objects.create(workspace=desk.workspace, ref=f"{number:032x}", added_bytes=1024**2, **sizes)
        for number in range(3)
    ]
    Snapshot.objects.filter(pk=made[0].pk).update(dropped_at=Now(), freed_at=Now())
    found = page(signed_in(desk.viewer).get(f"/workspaces/{desk.workspace.pk}/"))
    told = {term.get_text(strip=True): term.find_next("dd").get_text(" ", strip=True) for term in found.all("dt")}
    assert told["Snapshots"].startswith("2, 2")


def member(client: Client, desk: Desk, user: str, role: str) -> Any:
    return client.post(f"/workspaces/{desk.workspace.pk}/members/", {"user": user, "role": role})


def role_of(desk: Desk, user: User) -> str | None:
    return Membership.objects.filter(workspace=desk.workspace, user=user).values_list("role", flat=True).first()


def test_an_owner_adds_changes_and_removes_members(desk: Desk, signed_in: SignIn) -> None:
    owner = signed_in(desk.owner)
    assert member(owner, desk, desk.outsider.username, "viewer").status_code == 302
    assert role_of(desk, desk.outsider) == "viewer"
    member(owner, desk, desk.outsider.username, "operator")
    assert role_of(desk, desk.outsider) == "operator"
    member(owner, desk, desk.outsider.username, "none")
    assert role_of(desk, desk.outsider) is None
    assert AuditEntry.objects.filter(action="workspace.member", data__user=desk.outsider.username).count() == 3


@pytest.mark.parametrize(("who", "status"), [("outsider", 404), ("viewer", 403), ("operator", 403)])
def test_nobody_else_changes_members(desk: Desk, signed_in: SignIn, who: str, status: int) -> None:
    assert member(signed_in(getattr(desk, who)), desk, desk.viewer.username, "owner").status_code == status
    assert role_of(desk, desk.viewer) == "viewer"
    page_of = signed_in(desk.viewer).get(f"/workspaces/{desk.workspace.pk}/")
    page(page_of).none("#add-member")


def test_the_owner_keeps_the_role_and_names_have_to_exist(desk: Desk, signed_in: SignIn) -> None:
    owner = signed_in(desk.owner)
    assert member(owner, desk, desk.owner.username, "viewer").status_code == 409
    assert member(owner, desk, "nobody-at-all", "viewer").status_code == 409
    assert member(owner, desk, desk.viewer.username, "king").status_code == 409
    assert owner.get(f"/workspaces/{desk.workspace.pk}/members/").status_code == 405


def test_a_refused_name_leaves_the_page_and_a_taken_one_loads_it_anew(desk: Desk, signed_in: SignIn) -> None:
    owner, path = signed_in(desk.owner), f"/workspaces/{desk.workspace.pk}/"
    htmx = {"HX-Request": "true"}
    refused = owner.post(path + "members/", {"user": "nobody-at-all", "role": "viewer"}, headers=htmx)
    assert (refused.status_code, refused["HX-Retarget"]) == (409, "#notice")
    taken = owner.post(path + "members/", {"user": desk.outsider.username, "role": "viewer"}, headers=htmx)
    assert taken["HX-Redirect"] == path
    assert "is viewer now" in page(owner.get(path)).text("#notice")
    for form in page(owner.get(path)).all("main form[method=post]"):
        assert form["hx-post"] == form["action"], "a plain form would lose what was typed"


@pytest.mark.parametrize("name", ["a\x00b", "\x00", "x" * 100_000])
def test_a_name_that_no_user_can_have_is_refused(desk: Desk, signed_in: SignIn, name: str) -> None:
    path = f"/workspaces/{desk.workspace.pk}/members/"
    response = signed_in(desk.owner).post(path, {"user": name, "role": "viewer"})
    assert response.status_code == 409
    assert "Nobody here signs in as" in page(response).text("#problem")


def test_signing_in_and_out(client: Client) -> None:
    user = User.objects.create_user("ann", password="correct horse battery")
    refused = client.post("/sign-in/", {"username": "ann", "password": "wrong"})
    assert "do not go together" in page(refused).text(".notice-error")
    assert page(refused).one("#id_username")["value"] == "ann"
    again = client.post("/sign-in/", {"username": "ann", "password": "correct horse battery", "next": "/inbox/"})
    assert again.headers["Location"] == "/inbox/"
    assert str(user) in page(client.get("/")).text(".menu-body p")
    assert client.get("/sign-out/").status_code == 405
    assert client.post("/sign-out/").headers["Location"] == "/sign-in/"
    assert client.get("/").status_code == 302


def test_the_sign_in_page_leads_nowhere_else(client: Client) -> None:
    User.objects.create_user("ann", password="correct horse battery")
    form = {"username": "ann", "password": "correct horse battery", "next": "https://evil.example/"}
    assert client.post("/sign-in/", form).headers["Location"] == "/"


def test_records_are_for_staff_and_read_only(desk: Desk, signed_in: SignIn) -> None:
    task = desk.task()
    assert signed_in(desk.owner).get("/admin/workspaces/task/").status_code == 302
    staff = signed_in(desk.staff)
    assert staff.get("/admin/workspaces/task/").status_code == 200
    assert staff.get(f"/admin/workspaces/task/{task.pk}/change/").status_code == 200
    assert staff.post(f"/admin/workspaces/task/{task.pk}/change/", {"status": "failed"}).status_code == 403
    for model in ("event", "message", "auditentry", "task", "providerkey", "profileversion"):
        assert staff.get(f"/admin/workspaces/{model}/").status_code == 200
        assert staff.get(f"/admin/workspaces/{model}/add/").status_code == 403


def test_what_does_not_exist_is_a_page_in_our_style(desk: Desk, signed_in: SignIn) -> None:
    response = signed_in(desk.owner).get("/tasks/999999/")
    assert response.status_code == 404
    assert page(response).text("main h1") == "There is nothing here"
    page(response).one("nav.topnav")


def test_a_form_that_is_too_large_is_told_so(desk: Desk, signed_in: SignIn) -> None:
    client = signed_in(desk.owner)
    for form in ({"name": "x" * 5_000_000}, {f"field{at}": "" for at in range(2_000)}):
        body = "&".join(f"{name}={value}" for name, value in form.items())
        response = client.post("/workspaces/new/", body, content_type="application/x-www-form-urlencoded")
        assert response.status_code == 413
        assert "attach" in page(response).text("#problem")
        response = client.post(
            "/workspaces/new/", body, content_type="application/x-www-form-urlencoded", headers={"HX-Request": "true"}
        )
        assert response.status_code == 413
        assert "attach" in page(response).text(".notice")


@pytest.mark.parametrize("user", ["owner", ""])
def test_a_request_that_cannot_be_read_is_told_so(desk: Desk, signed_in: SignIn, client: Client, user: str) -> None:
    client = signed_in(desk.owner) if user else client
    evil = client.get("/", headers={"Host": "evil.example"})
    assert evil.status_code == 400
    assert "cannot be read" in page(evil).text("#problem")
    assert b"evil.example" not in evil.content
