"""Old checkpoints are dropped and their bytes freed; what is offered can be restored, and what is needed stays."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection, transaction
from django.db.models.functions import Now

from tests.actions.test_incidents import FINDING
from tests.harness import eventually, scripted_task, somebody_waits_for_a_lock, work
from workspaces import dispatch
from workspaces.actions import retention as decisions
from workspaces.actions import sleep as moves
from workspaces.actions.checkpoints import store_snapshot
from workspaces.actions.errors import Refused
from workspaces.actions.incidents import report, resolve_incident
from workspaces.actions.pen import writing
from workspaces.actions.rollbacks import fork, roll_back
from workspaces.actions.tasks import pause_task, resume_task
from workspaces.domain.states import EscalationKind, PauseMode, TaskStatus
from workspaces.engine import lifecycle, retention
from workspaces.engine.boxes import driver_for, sandbox_for
from workspaces.models import Checkpoint, Escalation, Snapshot, Task, Workspace
from workspaces.queries.database import collector_held_off
from workspaces.sandboxes.base import SandboxError, SnapshotMissing

pytestmark = pytest.mark.django_db(transaction=True)

TEN = """
replies:
  - repeat: 10
    calls: [{name: shell, arguments: {command: "echo {{index}} >> log"}}]
  - calls: [{name: finish, arguments: {summary: done}}]
"""


def paused(steps: int = 9, **profile: Any) -> Task:
    """With `steps` and one checkpoints, each with a snapshot of its own."""
    task = work(
        scripted_task(TEN, **({"keep_last": 2, "keep_every": 4} | profile)), until=lambda t: t.steps_taken >= steps
    )
    pause_task(task.pk, mode=PauseMode.BOUNDARY, reason="look", actor=task.created_by)
    return work(task)


def offered(task: Task) -> list[int]:
    """Positions of the checkpoints that can be gone back to."""
    found = Checkpoint.objects.filter(task=task).order_by("seq").values_list("snapshot__dropped_at", flat=True)
    return [number for number, dropped_at in enumerate(found, start=1) if dropped_at is None]


def checkpoint(task: Task, position: int) -> Checkpoint:
    return Checkpoint.objects.filter(task=task).order_by("seq").select_related("snapshot")[position - 1]


def readable(task: Task) -> list[int]:
    store = driver_for(task.workspace).snapshots
    found = []
    for position in range(1, Checkpoint.objects.filter(task=task).count() + 1):
        try:
            store.list(checkpoint(task, position).snapshot.ref)
        except SnapshotMissing:
            continue
        found.append(position)
    return found


def test_the_first_the_newest_and_each_so_many_th_stay_and_the_others_bytes_are_freed() -> None:
    task = paused()
    assert offered(task) == list(range(1, 11))
    assert decisions.retain(task.pk) == 5
    assert offered(task) == [1, 4, 8, 9, 10]
    assert readable(task) == list(range(1, 11))
    assert retention.free() >= 5
    assert readable(task) == [1, 4, 8, 9, 10]
    assert Snapshot.objects.filter(dropped_at__isnull=False, freed_at=None).count() == 0
    assert decisions.retain(task.pk) == 0


def test_each_checkpoint_that_is_offered_can_be_restored_and_no_other() -> None:
    task = paused()
    retention.run()
    for position in range(1, 11):
        target = checkpoint(task, position)
        if position in (1, 4, 8, 9, 10):
            roll_back(target.pk, reason="back", actor=task.created_by)
            task = work(task)
            assert sandbox_for(task.workspace).list() == [] if position == 1 else True
            if position > 1:
                assert len(sandbox_for(task.workspace).read("log").split()) == position - 1
        else:
            for deed in (roll_back, fork):
                with pytest.raises(Refused, match="no longer kept"):
                    deed(target.pk, reason="back", actor=task.created_by)
    assert Task.objects.count() == 1


def test_a_tasks_newest_checkpoint_stays_whatever_the_profile_says() -> None:
    task = paused(keep_last=1, keep_every=0)
    retention.run()
    assert offered(task) == [1, 10]


def test_what_a_fork_began_with_stays_as_long_as_the_fork_may_go_back_to_it() -> None:
    task = paused()
    made = fork(checkpoint(task, 6).pk, reason="try", actor=task.created_by, hold=True)
    decisions.retain(task.pk)
    assert 6 in offered(task)
    assert sandbox_for(work(made).workspace).read("log").split() == [b"0", b"1", b"2", b"3", b"4"]
    decisions.retain(task.pk)
    decisions.retain(made.pk)
    assert 6 in offered(task)  # it is the fork's first


def test_what_is_to_be_put_back_stays_until_it_is() -> None:
    task = paused(keep_every=0)
    Task.objects.filter(pk=task.pk).update(disk_restore=checkpoint(task, 3).snapshot)
    decisions.retain(task.pk)
    assert offered(task) == [1, 3, 9, 10]
    task = work(task)
    assert sandbox_for(task.workspace).read("log").split() == [b"0", b"1"]
    decisions.retain(task.pk)
    assert offered(task) == [1, 9, 10]


def test_the_checkpoint_that_an_open_question_stands_at_stays() -> None:
    task = paused(keep_every=0)
    at = checkpoint(task, 5).created_at
    question = Escalation.objects.create(
        task=task, kind=EscalationKind.PROVIDER.value, question="?", opened_at=at, deadline=at + timedelta(days=9)
    )
    decisions.retain(task.pk)
    assert offered(task) == [1, 5, 9, 10]
    Escalation.objects.filter(pk=question.pk).update(status="withdrawn")
    decisions.retain(task.pk)
    assert offered(task) == [1, 9, 10]


def test_the_checkpoint_before_an_incident_stays_until_it_is_resolved() -> None:
    task = paused(keep_every=0)
    finding = replace(FINDING, first_seq=checkpoint(task, 5).seq + 1, last_seq=task.last_seq)
    with writing(task.pk) as pen:
        incident = report(pen, finding).incident
    decisions.retain(task.pk)
    assert offered(task) == [1, 5, 9, 10]
    resolve_incident(incident.pk, actor=task.created_by, reason="seen")
    decisions.retain(task.pk)
    assert offered(task) == [1, 9, 10]


def test_a_snapshot_without_a_checkpoint_goes_after_a_while_unless_it_is_needed() -> None:
    task = paused(2)
    store = driver_for(task.workspace).snapshots
    spare = Snapshot.objects.create(
        workspace=task.workspace,
        ref=sandbox_for(task.workspace).snapshot().ref,
        added_bytes=0,
        total_bytes=0,
        files=0,
        duration_s=0,
    )
    Task.objects.filter(pk=task.pk).update(status_since=Now() - timedelta(days=1))
    Workspace.objects.filter(pk=task.workspace_id).update(used_at=Now() - timedelta(days=1))
    assert lifecycle.sleep(task.workspace_id)
    slept = Workspace.objects.get(pk=task.workspace_id).slept_snapshot
    assert slept is not None
    retention.run()
    assert store.list(spare.ref)  # its checkpoint may be about to be written
    Snapshot.objects.update(created_at=Now() - timedelta(days=1))
    retention.run()
    with pytest.raises(SnapshotMissing):
        store.list(spare.ref)
    assert store.list(slept.ref)
    moves.use_workspace(task.workspace_id)
    retention.run()
    assert store.list(slept.ref), "the newest there is, should the node be lost"
    store_snapshot(task.workspace, sandbox_for(task.workspace).snapshot())
    retention.run()
    with pytest.raises(SnapshotMissing):
        store.list(slept.ref)


def test_a_call_that_may_have_to_be_undone_keeps_the_snapshot_before_it() -> None:
    task = paused(3)
    undo = Snapshot.objects.create(
        workspace=task.workspace, ref="0" * 32, added_bytes=0, total_bytes=0, files=0, duration_s=0
    )
    store_snapshot(task.workspace, sandbox_for(task.workspace).snapshot())
    Snapshot.objects.update(created_at=Now() - timedelta(days=1))
    call = task.steps.order_by("number").last().tool_calls.get()  # type: ignore[union-attr]
    type(call).objects.filter(pk=call.pk).update(status="running", snapshot_before=undo)
    retention.run()
    undo.refresh_from_db()
    assert undo.dropped_at is None
    type(call).objects.filter(pk=call.pk).update(status="done")
    retention.run()
    undo.refresh_from_db()
    assert undo.dropped_at is not None


def test_a_rollback_and_a_drop_at_the_same_time_take_turns() -> None:
    task = paused(keep_every=0)
    target = checkpoint(task, 5)
    locked, go = threading.Event(), threading.Event()

    def hold() -> None:
        """A rollback that has chosen its checkpoint and not yet committed."""
        with transaction.atomic():
            decisions.offered_snapshot(target.snapshot_id)
            Task.objects.filter(pk=task.pk).update(disk_restore=target.snapshot)
            locked.set()
            assert go.wait(60)
        connection.close()

    def drop() -> int:
        try:
            return decisions.retain(task.pk)
        finally:
            connection.close()

    with ThreadPoolExecutor(2) as pool:
        holder = pool.submit(hold)
        assert locked.wait(60)
        dropper = pool.submit(drop)
        eventually(somebody_waits_for_a_lock, within_s=60)
        assert not dropper.done()
        go.set()
        holder.result(60)
        assert dropper.result(60) == 6
    assert offered(task) == [1, 5, 9, 10]


def test_what_could_not_be_freed_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    task = paused()
    decisions.retain(task.pk)
    store = driver_for(task.workspace).snapshots
    drop = store.drop

    def fails(ref: str) -> None:
        drop(ref)
        raise SandboxError("killed before it was written down")

    with monkeypatch.context() as broken:
        broken.setattr(store, "drop", fails)
        assert retention.free() == 0
    assert Snapshot.objects.filter(dropped_at__isnull=False, freed_at=None).count() == 5
    assert retention.free() == 5
    assert offered(task) == readable(task) == [1, 4, 8, 9, 10]


def test_only_tasks_with_news_are_gone_through() -> None:
    task = paused(2)
    assert task.pk in decisions.due()
    retention.run()
    assert task.pk not in decisions.due()
    Task.objects.filter(pk=task.pk).update(last_event_at=Now())
    assert task.pk in decisions.due()


def test_a_task_goes_on_after_its_old_checkpoints_went() -> None:
    task = paused()
    retention.run()
    resume_task(task.pk, actor=task.created_by)
    task = work(task)
    assert task.status == TaskStatus.SUCCEEDED
    assert len(sandbox_for(task.workspace).read("log").split()) == 10


def test_the_scheduler_calls_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    called = []
    monkeypatch.setattr(dispatch, "housekeeping", lambda: called.append(True))
    call_command("scheduler", once=True)
    assert called == [True]


def test_nothing_is_freed_while_a_backup_copies() -> None:
    task = paused()
    held, over = threading.Event(), threading.Event()

    def copy() -> None:
        with collector_held_off():
            held.set()
            assert over.wait(60)
        connection.close()

    with ThreadPoolExecutor(1) as pool:
        backup = pool.submit(copy)
        assert held.wait(60)
        retention.run()
        assert offered(task) == [1, 4, 8, 9, 10]
        assert readable(task) == list(range(1, 11))
        over.set()
        backup.result(60)
    retention.run()
    assert readable(task) == [1, 4, 8, 9, 10]
