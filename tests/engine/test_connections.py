"""What commands try to reach is in the trace: each attempt once, also after a crash and in a flood."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from django.conf import LazySettings

from tests.harness import events, kinds, make_user, make_workspace, scripted_task, work
from tests.sandboxes.conftest import open_driver
from workspaces.actions.network import SHOWN_EACH, connections_made, set_isolation
from workspaces.actions.terminal import order_command
from workspaces.domain.states import TaskStatus
from workspaces.engine import boxes, lifecycle, terminal
from workspaces.engine.connections import record_last_connections
from workspaces.models import Task, Workspace
from workspaces.sandboxes.base import Connection

pytestmark = pytest.mark.django_db(transaction=True)

FETCH = "python3 -c 'import urllib.request as r; r.urlopen(\\\"http://{}/\\\", timeout=20)'"
LISTED, OTHER = FETCH.format("listed.invalid"), FETCH.format("other.example:8080")
TRIES = f"""
replies:
  - calls: [{{name: shell, arguments: {{command: "{FETCH.format("refused.example")}; echo tried"}}}}]
  - calls: [{{name: shell, arguments: {{command: "echo quiet"}}}}]
  - calls:
      - {{name: shell, arguments: {{command: "{LISTED}; {OTHER}; true"}}}}
  - calls: [{{name: finish, arguments: {{summary: done}}}}]
"""


@pytest.fixture
def own_drivers(settings: LazySettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    driver = open_driver("docker", "content", tmp_path / "probe")
    monkeypatch.setattr(boxes, "_drivers", {})
    settings.SANDBOX_ROOT = tmp_path / "sandboxes"
    settings.SANDBOX_STORE = "content"
    yield
    for mine in boxes.open_drivers():
        for key in mine.awake():
            mine.open(boxes.SandboxSpec(key=key)).stop()
        for network in driver.client.networks.list(names=[f"agentdesk-out-{mine.site}"]):  # type: ignore[attr-defined]
            network.remove()
        mine.close()
    driver.close()


def with_a_list(workspace: Workspace, *hosts: str) -> Workspace:
    options = {"site_network": "allowlist", "site_runtime": "runc", "runtime": "runc", "reason": "packages"}
    set_isolation(workspace, network="allowlist", allow=" ".join(hosts), actor=workspace.owner, **options)
    workspace.refresh_from_db()
    return workspace


@pytest.mark.docker
@pytest.mark.usefixtures("own_drivers")
def test_each_attempt_is_an_event_of_the_step_that_made_it() -> None:
    workspace = with_a_list(make_workspace(make_user(), driver="docker"), "listed.invalid:80")
    task = work(scripted_task(TRIES, workspace=workspace))
    assert task.status == TaskStatus.SUCCEEDED, kinds(task)[-5:]
    told = events(task, "network.connection")
    assert [(one["host"], one["port"], one["allowed"]) for one in told] == [
        ("refused.example", 80, False),
        ("listed.invalid", 80, False),  # on the list, and nowhere in the world
        ("other.example", 8080, False),
    ]
    assert "list" in told[0]["why"]
    assert "resolve" in told[1]["why"]
    order = kinds(task)
    first = order.index("network.connection")
    assert order[first - 1] == "call.finished"
    workspace.refresh_from_db()
    assert workspace.network_read > 0

    # an operator's command is told when it ends, to the task that was there last
    command = order_command(
        workspace.pk, text=FETCH.format("typed.example").replace("\\", ""), limit_s=30, actor=workspace.owner
    )
    terminal.run(command.pk)
    assert [one["host"] for one in events(task, "network.connection")][3:] == ["typed.example"]

    # what a task left running is told when the sandbox ends, to the task that was there last
    sandbox = boxes.sandbox_for(workspace)
    sandbox.exec(["sh", "-c", FETCH.format("late.example").replace("\\", "")], key="late")
    Workspace.objects.filter(pk=workspace.pk).update(used_at="2020-01-01T00:00Z", idle_timeout_s=1)
    Task.objects.filter(pk=task.pk).update(status_since="2020-01-01T00:00Z")
    assert lifecycle.sleep(workspace.pk)
    assert [one["host"] for one in events(task, "network.connection")][4:] == ["late.example"]


def test_two_who_read_the_same_log_tell_it_once_and_a_flood_is_counted() -> None:
    workspace = make_workspace(make_user())
    task = scripted_task(TRIES, workspace=workspace)
    made = [Connection(1.0, "a.example", 80, False, why="not on the list")] * (SHOWN_EACH + 3)
    made += [Connection(2.0, f"h{number}.example", 443, True) for number in range(SHOWN_EACH + 5)]
    for _ in range(2):
        connections_made(task.pk, made, after=0, position=77)
    told = events(task, "network.connection")
    assert sum(one.get("times", 1) for one in told) == len(made)
    assert len(told) == 2 * SHOWN_EACH + 1
    assert Workspace.objects.get(pk=workspace.pk).network_read == 77


def test_a_workspace_without_a_list_has_no_log_to_read() -> None:
    task = work(scripted_task(TRIES.replace("python3", "true")))
    assert "network.connection" not in kinds(task)
    record_last_connections(Workspace.objects.get(pk=task.workspace_id))
