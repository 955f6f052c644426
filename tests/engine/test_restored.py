"""After a restore: which state each disk gets, who holds what, and what is told about files that are lost."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db.models.functions import Now
from django.utils import timezone

from tests.harness import events, make_user, scripted_task, work
from workspaces.actions import steps
from workspaces.actions.errors import FenceLost
from workspaces.actions.leases import claim
from workspaces.actions.restored import alerts_restored, task_restored, unfinished_tasks, workspaces_restored
from workspaces.domain.states import TaskStatus
from workspaces.engine.boxes import sandbox_for
from workspaces.models import (
    ActionLink,
    AlertWatch,
    Checkpoint,
    Delivery,
    Endpoint,
    Heartbeat,
    Message,
    Task,
    ToolCall,
    Workspace,
)
from workspaces.queries.disks import saved_disk

pytestmark = pytest.mark.django_db(transaction=True)

SCENARIO = """
replies:
  - calls: [{name: write_file, arguments: {path: a.txt, content: one}}]
  - calls:
      - {name: write_file, arguments: {path: a.txt, content: two}}
      - {name: write_file, arguments: {path: b.txt, content: three}}
  - calls: [{name: finish, arguments: {summary: done}}]
"""


class Died(BaseException):
    """The end of everything, at a line."""


def dies_before(monkeypatch: pytest.MonkeyPatch, module: object, name: str, *, times: int) -> None:
    """The `times`-th call of it never begins."""
    original = getattr(module, name)
    left = [times]

    def deadly(*args: object, **more: object) -> object:
        left[0] -= 1
        if not left[0]:
            raise Died
        return original(*args, **more)

    monkeypatch.setattr(module, name, deadly)


def workspace_of(task: Task) -> Workspace:
    return Workspace.objects.select_related("slept_snapshot", "held_by").get(pk=task.workspace_id)


def test_a_finished_call_whose_files_are_in_no_snapshot_is_told_to_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    from workspaces.actions import calls

    task = work(scripted_task(SCENARIO), until=lambda task: task.steps_taken == 1)
    with monkeypatch.context() as patched:
        dies_before(patched, calls, "start_call", times=2)  # the first of the two is done, nothing was saved after it
        with pytest.raises(Died):
            work(task)
    first = ToolCall.objects.filter(task=task, step__number=2).order_by("position")[0]
    assert first.status == "done"
    saved = saved_disk(workspace_of(task))
    assert saved.snapshot is not None
    assert saved.undone == [], "the snapshot of before the second call holds the first one's file"
    saved.snapshot.delete()  # as if the backup had been made a moment before it
    state = saved_disk(workspace_of(task))
    assert state.snapshot is not None
    assert state.undone == ["write_file"]
    task_restored(task.pk, made_at="yesterday", snapshot=state.snapshot, undone=state.undone)
    sandbox_for(task.workspace).restore(state.snapshot.ref)
    assert sandbox_for(task.workspace).read("a.txt") == b"one"
    assert events(task, "task.restored") == [
        {"made_at": "yesterday", "snapshot": state.snapshot.ref, "undone": ["write_file"]}
    ]
    told = Message.objects.filter(task=task, role="user").order_by("pk").last()
    assert told is not None
    assert "write_file" in told.content
    assert work(task).status == TaskStatus.SUCCEEDED


def test_whoever_held_a_task_can_write_no_more_and_the_task_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    task = work(scripted_task(SCENARIO), until=lambda task: task.steps_taken == 1)
    held = claim(task.pk, worker="gone", lease_s=600)
    assert held is not None
    assert unfinished_tasks() == [task.pk]
    state = saved_disk(workspace_of(task))
    assert state.snapshot is not None
    Workspace.objects.update(network_read=5_000, left_running=True)
    AlertWatch.objects.create(kind="", looked_at=Now(), since=Now())
    Heartbeat.objects.create(key="x", role="worker", host="x", pid=1, started_at=Now(), seen_at=Now())
    workspaces_restored({task.workspace_id: state.snapshot})
    assert not AlertWatch.objects.exists(), "nobody has watched this installation yet"
    assert not Heartbeat.objects.exists(), "nor are another one's workers missed here"
    assert (workspace_of(task).network_read, workspace_of(task).left_running) == (0, False), "the log begins anew"
    task_restored(task.pk, made_at="yesterday", snapshot=state.snapshot, undone=[])
    with pytest.raises(FenceLost):
        steps.workspace_woke(task.pk, held.fence, duration_s=0)
    assert workspace_of(task).state == "asleep"
    assert work(task).status == TaskStatus.SUCCEEDED
    assert not events(task, "task.taken_over")
    assert unfinished_tasks() == []


def test_a_workspace_without_a_task_gets_what_its_last_task_left() -> None:
    task = work(scripted_task(SCENARIO))
    last = Checkpoint.objects.filter(task=task).order_by("-seq")[0]
    assert saved_disk(workspace_of(task)).snapshot == last.snapshot


def test_what_waited_to_be_sent_is_given_up_and_no_old_link_acts() -> None:
    user = make_user()
    endpoint = Endpoint.objects.create(
        name="desk", kind="webhook", owner=user, address="https://example.com", created_by=user,
        failing_since=timezone.now(), failures=3,
    )  # fmt: skip
    until = timezone.now() + timedelta(hours=1)
    waits, arrived = (
        Delivery.objects.create(
            endpoint=endpoint, type="endpoint.test.v1", body={}, state=state, expires_at=until, leased_until=until
        )
        for state in ("pending", "delivered")
    )
    unused, used = (
        ActionLink.objects.create(
            action="acknowledge", endpoint=endpoint, delivery=arrived, acts_as=user, expires_at=until, used_at=used_at
        )
        for used_at in (None, timezone.now())
    )
    alerts_restored()
    for row in (endpoint, waits, arrived, unused, used):
        row.refresh_from_db()
    assert (waits.state, waits.leased_until, waits.fence) == ("failed", None, 1)
    assert "restored from a backup" in waits.error
    assert arrived.state == "delivered"
    assert (unused.revoked_at is None, used.revoked_at is None) == (False, True)
    assert (endpoint.state, endpoint.failing_since, endpoint.failures) == ("enabled", None, 0)
