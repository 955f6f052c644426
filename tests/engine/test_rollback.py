"""Rollback and fork: conversation, scratchpad, pending calls and files go back together; effects stay done."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from django.db import connection, transaction
from django.utils import timezone

from tests.harness import SEND_INVOICE, events, scripted_task, work
from workspaces import dispatch
from workspaces.actions import schedule
from workspaces.actions.errors import Refused
from workspaces.actions.escalations import answer_escalation
from workspaces.actions.rollbacks import fork, roll_back
from workspaces.actions.tasks import pause_task, resume_task, send_message
from workspaces.domain.escalations import Decision
from workspaces.domain.states import PauseMode, TaskStatus
from workspaces.engine import runner
from workspaces.engine.boxes import driver_for, sandbox_for
from workspaces.models import AuditEntry, Checkpoint, Escalation, Event, LedgerEntry, Task
from workspaces.queries.history import conversation

pytestmark = pytest.mark.django_db(transaction=True)

FOUR_WRITES = """
replies:
  - calls: [{name: shell, arguments: {command: "echo one > log; mkdir -p d; ln -s log l; chmod 600 log"}}]
  - calls:
      - {name: note, arguments: {section: plan, text: "two"}}
      - {name: shell, arguments: {command: "echo two >> log"}}
  - calls:
      - {name: note, arguments: {section: plan, text: "three"}}
      - {name: shell, arguments: {command: "echo three >> log; rm -r d"}}
  - calls: [{name: shell, arguments: {command: "echo four >> log"}}]
  - calls: [{name: finish, arguments: {summary: "{{last_result}}"}}]
"""


def paused_after(steps: int, scenario: str = FOUR_WRITES, **profile: object) -> Task:
    task = work(scripted_task(scenario, **profile), until=lambda t: t.steps_taken >= steps)
    pause_task(task.pk, mode=PauseMode.BOUNDARY, reason="look", actor=task.created_by)
    return work(task)


def checkpoint_of(task: Task, step: int) -> Checkpoint:
    return Checkpoint.objects.filter(task=task, step_number=step).order_by("seq").last()  # type: ignore[return-value]


def log(task: Task) -> str:
    return sandbox_for(task.workspace).read("log").decode()


def test_files_conversation_and_scratchpad_go_back_together() -> None:
    task = paused_after(4)
    assert log(task).split() == ["one", "two", "three", "four"]
    target = checkpoint_of(task, 2)
    roll_back(target.pk, reason="wrong turn", actor=task.created_by)
    task = work(task)
    assert task.status == TaskStatus.PAUSED
    assert log(task).split() == ["one", "two"]
    assert task.scratchpad == {"plan": "two"}
    assert {entry.path for entry in sandbox_for(task.workspace).list()} >= {"d", "l", "log"}
    assert task.branch is not None
    assert max(message.seq for message in conversation(task.branch)) <= target.seq
    assert AuditEntry.objects.get(action="task.rollback").reason == "wrong turn"


def test_after_a_rollback_the_task_goes_on_to_the_same_end() -> None:
    task = paused_after(4)
    roll_back(checkpoint_of(task, 1).pk, reason="again", actor=task.created_by)
    work(task)
    resume_task(task.pk, actor=task.created_by)
    task = work(task)
    assert task.status == TaskStatus.SUCCEEDED
    assert log(task).split() == ["one", "two", "three", "four"]
    assert task.branch is not None
    assert task.branch.number == 2


def test_a_running_task_is_not_rolled_back() -> None:
    task = work(scripted_task(FOUR_WRITES), until=lambda t: t.steps_taken >= 1)
    with pytest.raises(Refused, match="Pause it first"):
        roll_back(checkpoint_of(task, 1).pk, reason="x", actor=task.created_by)


def test_a_rollback_needs_a_reason() -> None:
    task = paused_after(2)
    with pytest.raises(Refused, match="Say why"):
        roll_back(checkpoint_of(task, 1).pk, reason="  ", actor=task.created_by)


INVOICE_TWICE = """
replies:
  - calls: [{name: shell, arguments: {command: "echo a > log"}}]
  - calls: [{name: send_invoice, arguments: {customer: Acme, amount: 1}}]
  - calls: [{name: shell, arguments: {command: "echo b >> log"}}]
  - calls: [{name: finish, arguments: {summary: "{{last_result}}"}}]
"""


def sent_and_paused() -> Task:
    task = work(scripted_task(INVOICE_TWICE, declared_tools=[SEND_INVOICE | {"command": "cat; echo; date +%N"}]))
    answer_escalation(
        Escalation.objects.get(task=task, status="open").pk, decision=Decision.APPROVE, actor=task.created_by
    )
    task = work(task, until=lambda t: t.steps_taken >= 3)
    pause_task(task.pk, mode=PauseMode.BOUNDARY, reason="look", actor=task.created_by)
    return work(task)


def test_of_many_who_roll_back_at_once_one_does() -> None:
    task = paused_after(3)
    checkpoint = checkpoint_of(task, 1)
    together = threading.Barrier(5)

    def press(reason: str) -> str:
        together.wait(10)
        try:
            roll_back(checkpoint.pk, reason=reason, actor=task.created_by)
            return "done"
        except Refused as refusal:
            return str(refusal)
        finally:
            connection.close()

    with ThreadPoolExecutor(5) as pool:
        told = sorted(pool.map(press, ["a", "b", "c", "d", "e"]))
    assert told.count("done") == 1, told
    assert all("already" in words for words in told if words != "done")
    assert task.branches.count() == 2
    work(task)
    resume_task(task.pk, actor=task.created_by)
    assert work(task).status == TaskStatus.SUCCEEDED.value


def test_who_waits_while_the_task_is_taken_back_writes_on_the_new_branch() -> None:
    """The lock comes with the task's new row, whose branch the waiting statement could not see."""
    task = paused_after(3)
    failed: list[Exception] = []

    def say() -> None:
        try:
            send_message(task.pk, text="careful", actor=task.created_by)
        except (Refused, Task.DoesNotExist) as error:
            failed.append(error)
        finally:
            connection.close()

    speaker = threading.Thread(target=say)
    with transaction.atomic():
        roll_back(checkpoint_of(task, 1).pk, reason="again", actor=task.created_by)
        speaker.start()
        speaker.join(0.5)
        assert speaker.is_alive(), "it waits for the lock"
    speaker.join(10)
    assert not failed, failed
    said = Event.objects.filter(task=task, kind="message.added").get()
    assert said.branch_number == 2


def test_a_snapshot_that_is_lost_is_said_once_and_another_checkpoint_can_be_taken() -> None:
    task = paused_after(3)
    lost = checkpoint_of(task, 1)
    driver_for(task.workspace).snapshots.drop(lost.snapshot.ref)
    roll_back(lost.pk, reason="back", actor=task.created_by)
    for _ in range(4):
        runner.advance(task.pk)
    assert len(events(task, "escalation.opened")) == 1
    assert Escalation.objects.get(task=task).status == "open"
    task.refresh_from_db()
    assert (task.status, task.lease_until) == (TaskStatus.PAUSED.value, None)
    roll_back(checkpoint_of(task, 2).pk, reason="then there", actor=task.created_by)
    task = work(task)
    assert log(task).split() == ["one", "two"]
    resume_task(task.pk, actor=task.created_by)
    assert work(task).status == TaskStatus.SUCCEEDED


def test_what_has_failed_is_called_again_by_the_scheduler_and_not_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[int] = []
    task = paused_after(3)
    lost = checkpoint_of(task, 1)
    driver_for(task.workspace).snapshots.drop(lost.snapshot.ref)
    roll_back(lost.pk, reason="back", actor=task.created_by)
    monkeypatch.setattr(dispatch, "advance", called.append)
    runner.advance(task.pk)
    assert called == []
    assert schedule.redispatch_due(after_s=5) == 0
    Task.objects.filter(pk=task.pk).update(dispatched_at=timezone.now() - timedelta(seconds=6))
    assert schedule.redispatch_due(after_s=5) == 1
    assert called == [task.pk]


def test_a_completed_irreversible_effect_is_replayed_after_a_rollback() -> None:
    task = sent_and_paused()
    recorded = LedgerEntry.objects.get()
    roll_back(checkpoint_of(task, 1).pk, reason="x", actor=task.created_by)
    work(task)
    resume_task(task.pk, actor=task.created_by)
    task = work(task)
    assert task.status == TaskStatus.SUCCEEDED
    (replayed,) = events(task, "call.replayed")
    assert replayed["result"] == recorded.result
    assert LedgerEntry.objects.count() == 1
    assert events(task, "task.rolled_back")[0]["kept_effects"][0]["name"] == "send_invoice"


def test_a_completed_irreversible_effect_is_replayed_in_a_fork() -> None:
    origin = sent_and_paused()
    task = work(fork(checkpoint_of(origin, 1).pk, reason="try", actor=origin.created_by))
    assert task.status == TaskStatus.SUCCEEDED
    assert len(events(task, "call.replayed")) == 1
    assert LedgerEntry.objects.count() == 1


def test_a_fork_has_files_and_a_scratchpad_of_its_own() -> None:
    origin = paused_after(3)
    task = fork(checkpoint_of(origin, 2).pk, reason="try", actor=origin.created_by, instruction="go on")
    assert task.scratchpad == {"plan": "two"}
    task = work(task)
    assert task.status == TaskStatus.SUCCEEDED
    assert task.workspace_id != origin.workspace_id
    assert log(task).split() == ["one", "two", "three", "four"]
    assert log(origin).split() == ["one", "two", "three"]


def test_a_rollback_to_a_held_call_holds_it_again() -> None:
    task = work(scripted_task(INVOICE_TWICE, declared_tools=[SEND_INVOICE]))
    held = Checkpoint.objects.filter(task=task).exclude(pending=[]).get()
    answer_escalation(
        Escalation.objects.get(task=task, status="open").pk,
        decision=Decision.REJECT,
        actor=task.created_by,
        words="no",
    )
    task = work(task)
    assert task.status == TaskStatus.SUCCEEDED
    roll_back(held.pk, reason="approve after all", actor=task.created_by)
    work(task)
    resume_task(task.pk, actor=task.created_by)
    task = work(task)
    assert task.waiting_for == "operator"
    answer_escalation(
        Escalation.objects.get(task=task, status="open").pk, decision=Decision.APPROVE, actor=task.created_by
    )
    task = work(task)
    assert task.status == TaskStatus.SUCCEEDED
    assert LedgerEntry.objects.get().state == "completed"


def test_a_rollback_is_refused_while_another_task_works_in_the_workspace() -> None:
    first = work(scripted_task(FOUR_WRITES))
    second = scripted_task(FOUR_WRITES, workspace=first.workspace)
    work(second, until=lambda t: t.steps_taken >= 1)
    with pytest.raises(Refused, match="Fork from the checkpoint instead"):
        roll_back(checkpoint_of(first, 1).pk, reason="x", actor=first.created_by)
