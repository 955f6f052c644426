"""Nodes: placement by the memory that is left, and the move of a workspace whose engine was killed."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.conf import LazySettings
from django.db import connection
from django.db.models.functions import Now

from tests.harness import events, kinds, make_user, make_workspace, scripted_task, work
from tests.sandboxes.conftest import open_driver
from tests.sandboxes.second_engine import SecondEngine, second_engine
from workspaces.actions import nodes as moves
from workspaces.actions import schedule
from workspaces.actions.checkpoints import store_snapshot
from workspaces.actions.ledger import Turn
from workspaces.actions.tasks import pause_task
from workspaces.actions.terminal import order_command
from workspaces.domain.isolation import engine_runtime
from workspaces.domain.states import PauseMode, TaskStatus, WaitingFor
from workspaces.engine import act, boxes, nodes, terminal
from workspaces.models import AuditEntry, Escalation, Leftover, Message, Node, Snapshot, Task, ToolCall, Workspace
from workspaces.queries.disks import saved_disk
from workspaces.sandboxes import make_driver
from workspaces.sandboxes.base import SandboxDriver, SandboxUnavailable
from workspaces.sandboxes.engines import Engine, EngineFacts

pytestmark = pytest.mark.django_db(transaction=True)

GB = 1024**3
WRITES = """
replies:
  - calls: [{name: shell, arguments: {command: "echo one >log"}}]
  - calls: [{name: shell, arguments: {command: "echo two >>log"}}]
  - calls: [{name: shell, arguments: {command: "cat log"}}]
  - calls: [{name: finish, arguments: {summary: done}}]
"""


def facts(memory_gb: int, *runtimes: str) -> EngineFacts:
    return EngineFacts(memory_gb * GB, 4, runtimes or ("runc",), "28.0")


@pytest.fixture
def three(settings: LazySettings) -> None:
    settings.NODES = {name: f"unix:///nowhere/{name}" for name in "abc"}
    for name, memory in (("a", 4), ("b", 16), ("c", 8)):
        moves.saw(name, settings.NODES[name], facts(memory))


def holding(node: str, memory_gb: int) -> Task:
    """A task that holds a workspace awake on a node."""
    task = scripted_task(WRITES)
    Workspace.objects.filter(pk=task.workspace_id).update(
        driver="docker", node=node, memory_bytes=memory_gb * GB, held_by=task, state="awake"
    )
    return task


def placed(memory_gb: int = 1) -> str | None:
    workspace = make_workspace(make_user(), driver="docker")
    Workspace.objects.filter(pk=workspace.pk).update(memory_bytes=memory_gb * GB)
    return moves.place_workspace(workspace.pk, names=["a", "b", "c"], runtime="runc")


@pytest.mark.usefixtures("three")
def test_a_workspace_is_placed_where_the_most_memory_is_left() -> None:
    assert placed() == "b"
    holding("b", 10)
    assert placed() == "c"
    holding("c", 6)
    assert placed() == "b"
    assert placed(memory_gb=64) == "b"  # fits nowhere: the roomiest
    moves.missed("b", "", "connection refused")
    assert placed() == "a"


@pytest.mark.usefixtures("three")
def test_those_that_are_placed_and_not_awake_yet_take_their_room() -> None:
    assert [placed(memory_gb=7) for _ in range(3)] == ["b", "b", "c"]  # 16, 9 and then 8 of 2, 8 and 4


@pytest.mark.usefixtures("three")
def test_a_node_without_the_runtime_takes_nothing() -> None:
    workspace = make_workspace(make_user(), driver="docker")
    place = moves.place_workspace
    assert place(workspace.pk, names=["a", "b"], runtime="runsc") is None
    moves.saw("a", "", facts(1, "runc", "runsc"))
    assert place(workspace.pk, names=["a", "b"], runtime="runsc") == "a"
    assert place(workspace.pk, names=["a", "b"], runtime="runsc") == "a"  # placed is placed


@pytest.mark.usefixtures("three")
def test_how_long_a_node_has_been_silent_is_kept_until_it_answers(settings: LazySettings) -> None:
    moves.missed("a", "", "refused")
    Node.objects.filter(name="a").update(failing_since=Now() - timedelta(seconds=settings.NODE_LOST_S + 1))
    moves.missed("a", "", "refused again")
    nodes._health.forget()
    assert "has not answered" in nodes.lost("a")
    assert "refused again" in nodes.lost("a")
    assert nodes.lost("b") == ""
    assert "no longer" in nodes.lost("z")
    moves.saw("a", "", facts(1))
    nodes._health.forget()
    assert nodes.lost("a") == ""


@pytest.mark.usefixtures("three")
def test_what_finished_calls_wrote_and_the_move_loses_is_told_to_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    two = """
    replies:
      - calls: [{name: shell, arguments: {command: "echo one >log"}}]
      - calls:
          - {name: shell, arguments: {command: "echo two >>log"}}
          - {name: shell, arguments: {command: "echo three >>log"}}
      - calls: [{name: finish, arguments: {summary: done}}]
    """
    start = act.call_actions.start_call

    def dies_before_the_third(task_id: int, fence: int, call: ToolCall, **more: Any) -> Turn:
        if call.position == 1:
            raise SandboxUnavailable("the engine went away")
        return start(task_id, fence, call, **more)

    monkeypatch.setattr(act.call_actions, "start_call", dies_before_the_third)
    task = work(scripted_task(two))
    assert (task.status, task.waiting_for) == (TaskStatus.WAITING, WaitingFor.TIMER)
    first = ToolCall.objects.get(task=task, step__number=2, position=0)
    assert first.status == "done"
    saved = saved_disk(Workspace.objects.get(pk=task.workspace_id))
    assert saved.snapshot is not None
    assert saved.undone == [], "what was saved for the second call holds the first one's lines"
    saved.snapshot.delete()  # as if the engine had gone a moment earlier
    Workspace.objects.filter(pk=task.workspace_id).update(driver="docker", node="a")
    move = moves.move_workspace(task.pk, task.fence, names=["a", "b"], runtime="runc", why="gone")
    assert move is not None
    assert (move.node, move.snapshot) == ("b", first.snapshot_before)
    told = Message.objects.filter(task=task).order_by("seq").last()
    assert told is not None
    assert first.call_id in told.content
    (moved,) = events(task, "workspace.moved")
    assert (moved["from_node"], moved["node"]) == ("a", "b")


@pytest.mark.usefixtures("three")
def test_what_an_operator_wrote_and_the_move_loses_is_told_to_the_model() -> None:
    task = work(scripted_task(WRITES), until=lambda t: t.steps_taken >= 1)
    pause_task(task.pk, mode=PauseMode.BOUNDARY, reason="to look", actor=task.created_by)
    task = work(task)
    command = order_command(task.workspace_id, text="echo mended >>log", limit_s=30, actor=task.created_by)
    terminal.run(command.pk)
    Workspace.objects.filter(pk=task.workspace_id).update(driver="docker", node="a")
    move = moves.move_workspace(task.pk, task.fence, names=["a", "b"], runtime="runc", why="gone")
    assert move is not None
    told = Message.objects.filter(task=task).order_by("seq").last()
    assert told is not None
    assert "before a command of the operator" in told.content
    assert "a command of the operator" in events(task, "workspace.moved")[0]["lost"]


@pytest.mark.usefixtures("three")
def test_what_was_dropped_is_never_chosen() -> None:
    task = scripted_task(WRITES)
    place = Workspace.objects.get(pk=task.workspace_id)
    kept, dropped = (store_snapshot(place, boxes.sandbox_for(place).snapshot()) for _ in range(2))
    assert saved_disk(place).snapshot == dropped
    Snapshot.objects.filter(pk=dropped.pk).update(dropped_at=Now())
    assert saved_disk(place).snapshot == kept


@pytest.mark.usefixtures("three")
def test_a_workspace_that_another_task_holds_is_not_moved_under_it() -> None:
    task = holding("a", 1)
    other = scripted_task(WRITES, workspace=Workspace.objects.get(pk=task.workspace_id))
    move = {"names": ["a", "b"], "runtime": "runc", "why": "gone"}
    assert moves.move_workspace(other.pk, other.fence, **move) is None
    assert moves.move_workspace(task.pk, task.fence, names=["a"], runtime="runc", why="gone") is None  # no other node
    assert not Leftover.objects.exists()
    assert moves.move_workspace(task.pk, task.fence, **move) is not None


@pytest.mark.usefixtures("three")
def test_what_slept_is_moved_whole() -> None:
    task = work(scripted_task(WRITES), until=lambda t: t.steps_taken >= 1)
    place = Workspace.objects.filter(pk=task.workspace_id)
    snapshot = store_snapshot(place.get(), boxes.sandbox_for(place.get()).snapshot())
    place.update(driver="docker", node="a", state="asleep", slept_snapshot=snapshot)
    move = moves.move_workspace(task.pk, task.fence, names=["a", "b"], runtime="runc", why="gone")
    assert move is not None
    assert move.snapshot == snapshot
    assert "asleep" in events(task, "workspace.moved")[0]["lost"]
    task.refresh_from_db()
    assert task.disk_restore == snapshot


def test_a_worker_is_sent_to_look_each_ten_seconds_where_containers_are_used(
    settings: LazySettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[str] = []
    monkeypatch.setattr(schedule.dispatch, "look_at_nodes", lambda: sent.append("look"))
    settings.NODES = {"a": "unix:///nowhere/a"}
    assert not schedule.call_for_nodes()  # nobody has a container
    make_workspace(make_user(), driver="docker")
    assert schedule.call_for_nodes()
    assert nodes.look()
    assert "nowhere" in Node.objects.get(name="a").error
    assert schedule.call_for_nodes()
    assert not schedule.call_for_nodes()
    Node.objects.update(called_at=Now() - timedelta(seconds=11))
    assert schedule.call_for_nodes()
    assert sent == ["look"] * 3


def test_only_one_worker_looks_and_a_node_that_is_no_longer_named_is_forgotten(settings: LazySettings) -> None:
    settings.NODES = {"a": "unix:///nowhere/a"}
    moves.saw("old", "", facts(1))
    with psycopg.connect(**connection.get_connection_params() | {"cursor_factory": None}) as other:
        other.execute("SELECT pg_advisory_lock(%s)", [nodes._LOOKING])
        assert not nodes.look()
        other.execute("SELECT pg_advisory_unlock(%s)", [nodes._LOOKING])  # a closed connection lets go a moment later
    assert Node.objects.filter(name="old").exists()
    assert nodes.look()
    assert list(Node.objects.values_list("name", flat=True)) == ["a"]


def test_who_opens_an_idle_workspace_of_a_lost_node_moves_it_and_finds_its_files(
    settings: LazySettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.NODES = {"a": "unix:///nowhere/a", "b": "unix:///nowhere/b"}
    settings.NODE_LOST_S = 0
    local = make_driver("local", tmp_path)

    def reached(name: str, node: str = "") -> SandboxDriver:
        if name == "docker" and node != "b":
            raise SandboxUnavailable("that engine is gone")
        return local

    monkeypatch.setattr(boxes, "driver_named", reached)
    monkeypatch.setattr(nodes, "driver_named", reached)
    task = work(scripted_task(WRITES))
    place = Workspace.objects.filter(pk=task.workspace_id)
    place.update(driver="docker", node="a")
    old = place.get().sandbox_key
    moves.missed("a", "", "gone")
    moves.saw("b", "", facts(4))
    nodes._health.forget()
    place.update(held_by=task)
    with pytest.raises(SandboxUnavailable, match="moves when task"):
        nodes.leave_lost(place.get())
    place.update(held_by=None)
    workspace = place.get()
    command = order_command(workspace.pk, text="echo three >>log", limit_s=30, actor=workspace.owner)
    terminal.run(command.pk)
    command.refresh_from_db()
    assert command.status == "finished", command.why
    workspace.refresh_from_db()
    assert (workspace.node, workspace.sandbox_key != old) == ("b", True)
    assert local.open(boxes.SandboxSpec(workspace.sandbox_key)).read("log") == b"one\ntwo\nthree\n"
    assert Leftover.objects.get(node="a").sandbox_key == old
    assert AuditEntry.objects.get(action="workspace.moved").data == {"from_node": "a", "node": "b"}
    nodes.leave_lost(workspace)  # it is where it can be
    assert Leftover.objects.count() == 1


@pytest.fixture
def two_engines(settings: LazySettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SecondEngine]:
    """The machine's own engine is "a", one of this test's own is "b"; both with drivers of this test's own."""
    open_driver("docker", "content", tmp_path / "probe").close()  # skips where there is no Docker
    with second_engine() as engine:
        monkeypatch.setattr(boxes, "_drivers", {})
        monkeypatch.setattr(boxes, "_engines", {})
        settings.NODES = {"a": "unix:///var/run/docker.sock", "b": engine.address}
        settings.SANDBOX_ROOT = tmp_path / "sandboxes"
        settings.SANDBOX_STORE = "content"
        settings.NODE_LOST_S = 0
        yield engine
        for driver in boxes.open_drivers():
            try:
                for key in driver.awake():
                    driver.open(boxes.SandboxSpec(key=key)).stop()
            except SandboxUnavailable:
                pass
            driver.close()


@pytest.mark.docker
def test_a_runtime_that_no_engine_has_is_a_question_to_a_person_at_once(tmp_path: Path) -> None:
    probe = open_driver("docker", "content", tmp_path / "probe")
    offered = probe.engine.facts().runtimes
    probe.close()
    if engine_runtime("kata", offered):
        pytest.skip("this engine has kata")
    workspace = make_workspace(make_user(), driver="docker")
    Workspace.objects.filter(pk=workspace.pk).update(runtime="kata")
    task = work(scripted_task(WRITES, workspace=Workspace.objects.get(pk=workspace.pk)))
    assert (task.status, task.waiting_for) == (TaskStatus.WAITING, WaitingFor.OPERATOR)
    question = Escalation.objects.get(task=task).question
    assert "does not offer the runtime kata" in question
    assert "runc" in question


@pytest.mark.docker
@pytest.mark.long
def test_a_task_goes_on_on_another_node_when_its_engine_is_killed(two_engines: SecondEngine) -> None:
    nodes.look()
    Node.objects.filter(name="a").update(memory_bytes=GB)  # so that b is the roomier one
    task = work(scripted_task(WRITES, driver="docker"), until=lambda t: t.steps_taken >= 1)
    before = Workspace.objects.get(pk=task.workspace_id)
    assert before.node == "b"
    assert boxes.driver_named("docker", "b").awake() == [before.sandbox_key]
    assert boxes.driver_named("docker", "a").awake() == []

    two_engines.kill()
    task = work(task)
    assert (task.status, task.waiting_for) == (TaskStatus.WAITING, WaitingFor.TIMER)  # it may be back in a moment
    nodes.look()
    assert Node.objects.get(name="b").failing_since is not None
    Task.objects.filter(pk=task.pk).update(status="queued", waiting_for="", waiting_reason="", waiting_since=None)
    Task.objects.filter(pk=task.pk).update(waiting_until=None)
    task = work(task)
    assert task.status == TaskStatus.SUCCEEDED, kinds(task)[-9:]
    after = Workspace.objects.get(pk=task.workspace_id)
    assert after.node == "a"
    assert after.sandbox_key != before.sandbox_key
    assert boxes.sandbox_for(after).read("log") == b"one\ntwo\n"
    (moved,) = events(task, "workspace.moved")
    assert (moved["from_node"], moved["node"], moved["checkpoint_seq"] is not None) == ("b", "a", True)
    assert moved["lost"]
    assert ToolCall.objects.get(task=task, step__number=1).attempt == 1

    old_disk = boxes.driver_named("docker", "b").store.path(before.sandbox_key)  # type: ignore[attr-defined]
    assert old_disk.exists()
    two_engines.start()
    nodes.look()
    assert Leftover.objects.get(sandbox_key=before.sandbox_key).removed_at is not None
    there = Engine(two_engines.address)
    assert there.client.containers.list(all=True) == []
    there.close()
    assert not old_disk.exists()
    assert boxes.sandbox_for(after).read("log") == b"one\ntwo\n"
    assert Node.objects.get(name="b").failing_since is None
