"""The effect ledger among branches and forks: one makes an effect, the others wait for it, get its result, or ask."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from tests.engine.moments import at, killed_at
from tests.engine.test_recovery import charge
from tests.harness import SEND_INVOICE, check_history, events, scripted_task, work
from workspaces.actions.errors import Refused
from workspaces.actions.escalations import answer_escalation
from workspaces.actions.rollbacks import fork, roll_back
from workspaces.actions.tasks import cancel_task, pause_task, resume_task
from workspaces.domain.effects import effect_key
from workspaces.domain.escalations import Decision
from workspaces.domain.states import PauseMode, TaskStatus
from workspaces.engine.boxes import sandbox_for
from workspaces.models import Checkpoint, Escalation, Incident, LedgerEntry, Task, ToolCall
from workspaces.queries.history import effects_since

pytestmark = pytest.mark.django_db(transaction=True)
RUN = "workspaces.tools.declared:DeclaredTool.run"
ONE = """
replies:
  - calls: [{name: note, arguments: {section: a, text: b}}]
  - calls: [{name: charge, arguments: {amount: 5}}]
  - calls: [{name: finish, arguments: {summary: "{{last_result}}"}}]
"""
TWO = """
replies:
  - calls:
      - {name: charge, arguments: {amount: 5}}
      - {name: charge, arguments: {amount: %s}}
  - calls: [{name: finish, arguments: {summary: done}}]
"""
TWICE = """
replies:
  - calls: [{name: charge, arguments: {amount: 5}}]
  - calls: [{name: charge, arguments: {amount: 5}}]
  - calls: [{name: finish, arguments: {summary: done}}]
"""


@pytest.fixture
def bank(tmp_path: Path) -> Path:
    return tmp_path / "bank"


def charged(bank: Path) -> list[str]:
    return bank.read_text().split() if bank.exists() else []


def task_with(bank: Path, scenario: str = ONE, **tool: Any) -> Task:
    return scripted_task(scenario, declared_tools=[charge(bank) | tool])


def fork_of(task: Task, step: int = 1) -> Task:
    checkpoint = Checkpoint.objects.filter(task=task, step_number=step).order_by("seq").last()
    assert checkpoint is not None
    return fork(checkpoint.pk, reason="try", actor=task.created_by)


def question(task: Task) -> Escalation:
    return Escalation.objects.filter(task=task, status="open").order_by("pk").first()  # type: ignore[return-value]


def answer(task: Task, decision: Decision, words: str = "looked", **more: Any) -> None:
    answer_escalation(question(task).pk, decision=decision, actor=task.created_by, words=words, **more)


def lost(bank: Path, *, made: bool = False, **tool: Any) -> Task:
    """A task whose worker died with the effect begun (or made), and that asks what happened."""
    task = killed_at(task_with(bank, **tool), RUN, before=not made)
    sandbox_for(task.workspace).stop()  # which forgets what its commands gave
    task = work(task)
    assert question(task).kind == "unknown_outcome"
    return task


def test_an_outcome_that_nobody_knows_is_an_incident_until_a_person_says(bank: Path) -> None:
    task = lost(bank)
    found = Incident.objects.get(task=task)
    assert (found.kind, found.rung, question(task).incident) == ("unknown_outcome", "escalated", found)
    answer(task, Decision.NOT_DONE)
    found.refresh_from_db()
    assert (found.state, found.resolved_by) == ("resolved", task.created_by)
    assert work(task).status == "succeeded"


def together(tasks: list[Task], patched: pytest.MonkeyPatch) -> list[Task]:
    """Each in a thread of its own, all at the ledger at the same moment."""
    barrier = threading.Barrier(len(tasks))
    at(patched, "workspaces.actions.calls:take_up", lambda: barrier.wait(30), times=len(tasks))

    def advance(task: Task) -> None:
        try:
            work(task)
        finally:
            connection.close()

    threads = [threading.Thread(target=advance, args=(task,)) for task in tasks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    patched.undo()
    return [work(task) for task in tasks]


def test_of_many_forks_that_come_to_one_effect_at_once_one_makes_it(
    bank: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    origin = work(
        task_with(bank, command=f"sleep 0.5; echo x >> {bank}; echo charged"), until=lambda t: t.steps_taken == 1
    )
    ended = together([origin, fork_of(origin), fork_of(origin)], monkeypatch)
    assert [task.status for task in ended] == [TaskStatus.SUCCEEDED] * 3
    assert [task.result for task in ended] == [ended[0].result] * 3
    assert charged(bank) == ["x"]
    assert LedgerEntry.objects.get().state == "completed"


def test_of_two_who_are_told_that_it_did_not_happen_one_makes_it(bank: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    origin = lost(bank)
    forks = [work(fork_of(origin)), work(fork_of(origin))]
    for task in forks:
        assert question(task).kind == "unknown_outcome"
        answer(task, Decision.NOT_DONE)
    ended = together(forks, monkeypatch)
    assert [task.status for task in ended] == [TaskStatus.SUCCEEDED] * 2
    assert len(charged(bank)) == 1
    with pytest.raises(Refused, match="completed this very effect"):
        answer(origin, Decision.NOT_DONE)
    answer(origin, Decision.HAPPENED)
    assert "charged" in work(origin).result
    assert len(charged(bank)) == 1


def test_a_fork_waits_while_another_makes_the_effect_and_a_person_cannot_say_how_it_ended(
    bank: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    origin = lost(bank)
    waits, asks = work(fork_of(origin)), work(fork_of(origin))
    answer(waits, Decision.NOT_DONE)
    told: list[str] = []

    def meanwhile() -> None:
        for decision in (Decision.NOT_DONE, Decision.HAPPENED):
            with pytest.raises(Refused, match="makes this very effect now"):
                answer(asks, decision)
        third = work(fork_of(origin))
        told.append(third.waiting_reason)
        assert (third.status, third.waiting_for) == (TaskStatus.WAITING, "timer")

    at(monkeypatch, RUN, meanwhile)
    work(waits)
    assert f"task {waits.pk} runs charge" in told[0]
    third = Task.objects.order_by("pk").last()
    assert third is not None
    assert third.status == TaskStatus.QUEUED, "it was called when the effect was made"
    assert work(third).status == TaskStatus.SUCCEEDED
    answer(asks, Decision.HAPPENED)
    assert work(asks).status == TaskStatus.SUCCEEDED
    assert len(charged(bank)) == 1


def test_an_effect_that_a_fork_made_while_the_call_was_held_is_replayed(bank: Path) -> None:
    origin = work(task_with(bank, effect="irreversible"))
    other = work(fork_of(origin, step=2))
    for task in (other, origin):
        answer(task, Decision.APPROVE)
        assert work(task).status == TaskStatus.SUCCEEDED
    assert len(charged(bank)) == 1
    (replayed,) = events(origin, "call.replayed")
    assert replayed["of"] == ToolCall.objects.get(task=other, name="charge").pk
    assert ToolCall.objects.get(task=origin, name="charge").attempt == 0


@pytest.mark.parametrize("order", ["rollback", "cancel", "reject"])
def test_an_effect_whose_call_is_given_up_is_not_said_to_be_under_way(bank: Path, order: str) -> None:
    task = lost(bank)
    first = Checkpoint.objects.get(task=task, step_number=1)
    if order == "cancel":
        cancel_task(task.pk, reason="no", actor=task.created_by)
    elif order == "reject":
        answer(task, Decision.REJECT)
    else:
        roll_back(first.pk, reason="back", actor=task.created_by)
        assert events(task, "task.rolled_back")[0]["kept_effects"][0]["state"] == "unknown"
    assert LedgerEntry.objects.get().state == "unknown"
    check_history(task)
    other = work(fork_of(task))
    assert "begun before" in question(other).question
    assert charged(bank) == []


@pytest.mark.parametrize("made", [False, True])
def test_after_a_rollback_the_lost_effect_is_asked_about_and_keeps_its_key(bank: Path, made: bool) -> None:
    task = lost(bank, made=made)
    roll_back(Checkpoint.objects.get(task=task, step_number=1).pk, reason="back", actor=task.created_by)
    work(task)
    resume_task(task.pk, actor=task.created_by)
    task = work(task)
    assert question(task).kind == "unknown_outcome"
    answer(task, Decision.NOT_DONE)
    task = work(task)
    assert task.status == TaskStatus.SUCCEEDED
    assert charged(bank) == [LedgerEntry.objects.get().key] * (2 if made else 1)


def test_a_fork_gives_the_same_key_to_the_other_side(bank: Path) -> None:
    task = lost(bank, made=True)
    other = work(fork_of(task))
    answer(other, Decision.NOT_DONE)
    assert work(other).status == TaskStatus.SUCCEEDED
    first, second = charged(bank)
    assert first == second


def test_what_happened_before_a_checkpoint_is_not_named_as_undone_by_a_rollback_to_it(bank: Path) -> None:
    task = lost(bank)
    pending = Checkpoint.objects.filter(task=task).order_by("seq").last()
    first = Checkpoint.objects.get(task=task, step_number=1)
    assert pending is not None
    assert (effects_since(first).count(), effects_since(pending).count()) == (1, 0)


def test_a_call_that_is_edited_into_an_earlier_one_is_made_beside_it(bank: Path) -> None:
    task = work(task_with(bank, TWO % 7, effect="irreversible"))
    answer(task, Decision.APPROVE)
    answer(task, Decision.EDIT, arguments={"amount": 5})
    assert work(task).status == TaskStatus.SUCCEEDED
    assert len(set(charged(bank))) == 2


def test_a_call_whose_twin_was_rejected_is_the_first_of_its_kind(bank: Path) -> None:
    task = work(task_with(bank, TWO % 5, effect="irreversible"))
    answer(task, Decision.REJECT)
    answer(task, Decision.APPROVE)
    assert work(task).status == TaskStatus.SUCCEEDED
    made = ToolCall.objects.get(task=task, name="charge", attempt=1)
    assert charged(bank) == [effect_key(task.pk, made.arguments_hash, 1)]


@pytest.mark.parametrize("forge", ["arguments", "hash", "both", "used", "expired", "another"])
def test_a_held_call_runs_with_nothing_but_its_own_approval(bank: Path, forge: str) -> None:
    task = work(task_with(bank, effect="irreversible"))
    answer(task, Decision.APPROVE)
    call = ToolCall.objects.get(task=task, name="charge")
    changes: dict[str, Callable[[], object]] = {
        "arguments": lambda: ToolCall.objects.filter(pk=call.pk).update(arguments={"amount": 900}),
        "hash": lambda: call.approvals.update(arguments_hash="f" * 64),
        "both": lambda: ToolCall.objects.filter(pk=call.pk).update(arguments={"amount": 9}, arguments_hash="f" * 64),
        "used": lambda: call.approvals.update(used_at=timezone.now()),
        "expired": lambda: call.approvals.update(expires_at=timezone.now()),
        "another": lambda: call.approvals.update(tool_call=ToolCall.objects.get(task=task, name="note")),
    }
    changes[forge]()
    task = work(task, tampered=forge == "another")
    assert "no unexpired approval" in question(task).question
    assert charged(bank) == []
    pause_task(task.pk, mode=PauseMode.BOUNDARY, reason="x", actor=task.created_by)


def test_a_held_call_that_is_rejected_while_an_earlier_one_is_taken_up_is_not_asked_about_again(
    bank: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = scripted_task(
        """
        replies:
          - calls:
              - {name: charge, arguments: {amount: 5}}
              - {name: send_invoice, arguments: {customer: Acme, amount: 1}}
          - calls: [{name: finish, arguments: {summary: done}}]
        """,
        declared_tools=[charge(bank), SEND_INVOICE],
    )
    task = killed_at(task, RUN)
    sandbox_for(task.workspace).stop()
    task = work(task)
    pending = Checkpoint.objects.filter(task=task).order_by("seq").last()
    assert pending is not None
    roll_back(pending.pk, reason="again", actor=task.created_by)
    work(task)
    resume_task(task.pk, actor=task.created_by)
    # on the new branch the invoice is asked about at once, the charge when it is taken up
    at(monkeypatch, "workspaces.actions.steps:escalate_call", lambda: answer(task, Decision.REJECT))
    task = work(task)
    assert question(task).kind == "unknown_outcome"
    answer(task, Decision.NOT_DONE)
    assert work(task).status == TaskStatus.SUCCEEDED
    assert Escalation.objects.filter(task=task, tool_call__branch=task.branch).count() == 2


@pytest.mark.parametrize("step", [0, 1])
def test_a_second_meant_effect_is_made_once_also_in_a_fork_that_is_given_the_first(bank: Path, step: int) -> None:
    origin = work(task_with(bank, TWICE), until=lambda t: t.steps_taken == 1)
    assert work(fork_of(origin, step=step)).status == TaskStatus.SUCCEEDED
    assert len(charged(bank)) == len(set(charged(bank))) == 2
    assert work(origin).status == TaskStatus.SUCCEEDED
    assert len(charged(bank)) == 2


def test_after_a_rollback_two_equal_effects_of_one_step_are_each_given_their_own_result(bank: Path) -> None:
    task = work(task_with(bank, TWO % 5, command=f"echo x >> {bank}; wc -l < {bank}"))
    roll_back(Checkpoint.objects.get(task=task, step_number=0).pk, reason="again", actor=task.created_by)
    work(task)
    resume_task(task.pk, actor=task.created_by)
    assert work(task).status == TaskStatus.SUCCEEDED
    replayed = ToolCall.objects.filter(branch__number=2, name="charge").order_by("position")
    assert [call.result.split()[-1] for call in replayed] == ["1", "2"]
    assert len(charged(bank)) == 2


def test_what_a_person_says_in_a_fork_lets_another_of_the_lineage_make_the_effect(bank: Path) -> None:
    """The auditor counts the answer wherever it was given: the one who was asked need not be the first to run."""
    origin = lost(bank)
    asked = work(fork_of(origin))
    answer(asked, Decision.NOT_DONE)
    first = Checkpoint.objects.filter(task=origin, step_number=1).order_by("seq").first()
    assert first is not None
    roll_back(first.pk, reason="once more", actor=origin.created_by)
    work(origin)
    resume_task(origin.pk, actor=origin.created_by)
    assert work(origin).status == TaskStatus.SUCCEEDED
    assert work(asked).status == TaskStatus.SUCCEEDED
    assert len(charged(bank)) == 1
