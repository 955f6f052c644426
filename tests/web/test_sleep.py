"""What the pages say about a workspace's sleep, who may wake it, and who says after how long it sleeps."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.db.models.functions import Now
from django.test import Client

from tests.harness import make_workspace, scripted_task
from tests.web.pages import page
from tests.web.people import Desk
from workspaces.models import AuditEntry, User, Workspace

pytestmark = pytest.mark.django_db

SignIn = Callable[[User], Client]


def put(workspace: Workspace, **fields: object) -> None:
    Workspace.objects.filter(pk=workspace.pk).update(**fields)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"state": "asleep"}, "Storage only"),
        ({"state": "awake"}, "awake"),
        ({"state": "waking", "state_until": Now()}, "waking"),
        ({"state": "falling_asleep", "state_until": Now()}, "falling asleep"),
        ({"state": "asleep", "wake_wanted_at": Now()}, "waiting to wake"),
    ],
)
def test_the_workspace_says_whether_it_sleeps(
    desk: Desk, signed_in: SignIn, fields: dict[str, object], words: str
) -> None:
    put(desk.workspace, **fields)
    client = signed_in(desk.viewer)
    for path in (f"/workspaces/{desk.workspace.pk}/", f"/workspaces/{desk.workspace.pk}/state/"):
        assert words in page(client.get(path)).text("#workspace-state")
    assert (
        words.split()[0].lower() in page(client.get("/workspaces/")).text("tbody tr").lower() or words == "Storage only"
    )


def test_how_many_wake_before_it_is_told(desk: Desk, signed_in: SignIn) -> None:
    for _ in range(2):
        put(make_workspace(desk.owner), wake_wanted_at=Now())
    workspace = desk.workspace
    put(workspace, wake_wanted_at=Now())
    Workspace.objects.exclude(pk=workspace.pk).update(wake_wanted_at="2020-01-01T00:00:00Z")
    shown = page(signed_in(desk.viewer).get(f"/workspaces/{workspace.pk}/state/"))
    assert "2 wake before it" in shown.text("#workspace-state")


def test_the_state_of_another_users_workspace_is_a_404(desk: Desk, signed_in: SignIn) -> None:
    client = signed_in(desk.outsider)
    assert client.get(f"/workspaces/{desk.workspace.pk}/state/").status_code == 404
    for what in ("wake", "idle-timeout"):
        assert client.post(f"/workspaces/{desk.workspace.pk}/{what}/").status_code == 404


def test_an_operator_wakes_it_by_hand_and_a_viewer_cannot(desk: Desk, signed_in: SignIn) -> None:
    path = f"/workspaces/{desk.workspace.pk}/"
    assert "Wake it" not in page(signed_in(desk.viewer).get(path)).text("main")
    assert "Wake it" in page(signed_in(desk.operator).get(path)).text("main")
    assert signed_in(desk.viewer).post(path + "wake/").status_code == 403
    assert Workspace.objects.get(pk=desk.workspace.pk).wake_wanted_at is None
    assert signed_in(desk.operator).post(path + "wake/").status_code == 302
    assert Workspace.objects.get(pk=desk.workspace.pk).wake_wanted_at is not None
    assert AuditEntry.objects.get(action="workspace.wake").actor == desk.operator
    assert "Wake it" not in page(signed_in(desk.operator).get(path)).text("main")


def test_an_owner_says_when_it_sleeps(desk: Desk, signed_in: SignIn) -> None:
    path = f"/workspaces/{desk.workspace.pk}/"
    owner = signed_in(desk.owner)
    assert "as the site says" in page(owner.get(path)).text("main")
    for minutes, seconds, words in (("90", 5400, "1 h 30 min"), ("0", 0, "never"), ("", None, "as the site says")):
        assert owner.post(path + "idle-timeout/", {"minutes": minutes}).status_code == 302
        assert Workspace.objects.get(pk=desk.workspace.pk).idle_timeout_s == seconds
        assert words in page(owner.get(path)).text("main")
    for wrong in ("-1", "soon", "99999999"):
        assert owner.post(path + "idle-timeout/", {"minutes": wrong}).status_code == 409
    assert signed_in(desk.operator).post(path + "idle-timeout/", {"minutes": "1"}).status_code == 403
    assert AuditEntry.objects.filter(action="workspace.idle_timeout").count() == 3


def test_the_files_of_a_sleeping_workspace_are_shown_at_once_and_an_operator_wakes_it(
    desk: Desk, signed_in: SignIn
) -> None:
    task = scripted_task("replies: [{content: hi}]", workspace=desk.workspace)
    path = f"/tasks/{task.pk}/panels/files/"
    assert "asleep" not in page(signed_in(desk.viewer).get(path)).text("#files")
    assert Workspace.objects.get(pk=desk.workspace.pk).wake_wanted_at is None
    assert "It is waking" in page(signed_in(desk.operator).get(path)).text("#files")
    assert Workspace.objects.get(pk=desk.workspace.pk).wake_wanted_at is not None


def test_the_fleet_says_that_a_tasks_workspace_sleeps(desk: Desk, signed_in: SignIn) -> None:
    task = scripted_task("replies: [{content: hi}]", workspace=desk.workspace)
    client = signed_in(desk.viewer)
    assert "asleep" in page(client.get("/")).text(f"#task-row-{task.pk} .fleet-where")
    put(desk.workspace, state="awake")
    assert "asleep" not in page(client.get("/")).text(f"#task-row-{task.pk} .fleet-where")
