"""Random histories of workers that die, people who answer, roll back and fork: a completed effect is never made again.

The effects are counted outside, in a file that stands for the other side: each line is the key of one effect, so a
line that is there twice is an effect made twice, whatever the database says. Built on the real engine and database;
only the worker's death is simulated (an exception that nothing catches, then a lease that ran out).
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

from tests.engine.moments import Killed, at, die
from tests.engine.test_recovery import charge
from tests.harness import check_history, scripted_task, work
from workspaces.actions.errors import Refused
from workspaces.actions.escalations import answer_escalation
from workspaces.actions.rollbacks import fork, roll_back
from workspaces.actions.schedule import end_waits
from workspaces.actions.tasks import pause_task, resume_task
from workspaces.domain.escalations import Decision
from workspaces.domain.states import EscalationKind, PauseMode, TaskStatus
from workspaces.engine import runner
from workspaces.engine.boxes import sandbox_for
from workspaces.models import Checkpoint, Escalation, Task

pytestmark = pytest.mark.django_db(transaction=True)

# the same call twice on one line is meant twice; `send` is held until somebody approves it
SCENARIO = """
replies:
  - calls: [{name: charge, arguments: {amount: 1}}]
  - calls:
      - {name: write_file, arguments: {path: a.txt, content: x}}
      - {name: send, arguments: {amount: 2}}
      - {name: charge, arguments: {amount: 3}}
  - calls: [{name: charge, arguments: {amount: 1}}]
  - calls: [{name: finish, arguments: {summary: done}}]
"""
ON_ONE_LINE = 4  # effects
DEATHS = [
    ("workspaces.actions.leases:claim", False),
    ("workspaces.actions.model_calls:intend", False),
    ("workspaces.actions.model_calls:store_reply", True),
    ("workspaces.actions.model_calls:store_reply", False),
    ("workspaces.actions.calls:store_judged", True),
    ("workspaces.actions.calls:store_judged", False),
    ("workspaces.actions.calls:take_up", False),
    ("workspaces.actions.calls:start_call", True),
    ("workspaces.actions.calls:start_call", False),
    ("workspaces.tools.declared:DeclaredTool.run", True),
    ("workspaces.tools.declared:DeclaredTool.run", False),
    ("workspaces.actions.calls:finish_call", True),
    ("workspaces.actions.calls:finish_call", False),
    ("workspaces.actions.checkpoints:settle_step", True),
    ("workspaces.actions.checkpoints:settle_step", False),
]
ACTS = ["advance", "advance", "die", "die", "die with its sandbox", "answer", "roll back", "fork", "pause", "resume"]
MOST_FORKS = 2


class History:
    """One origin task and its forks, and what the other side has seen."""

    def __init__(self, folder: Path) -> None:
        self.bank = folder / "bank"
        send = {**charge(self.bank), "name": "send", "effect": "irreversible"}
        self.tasks = [scripted_task(SCENARIO, declared_tools=[charge(self.bank), send])]

    def made(self) -> Counter[str]:
        return Counter(self.bank.read_text().split()) if self.bank.exists() else Counter()

    def check(self) -> None:
        twice = [key for key, times in self.made().items() if times > 1]
        assert not twice, f"made again: {twice}"

    def act(self, data: st.DataObject) -> None:
        task = self.tasks[data.draw(st.integers(0, len(self.tasks) - 1), label="task")]
        task.refresh_from_db()
        act = data.draw(st.sampled_from(ACTS), label="act")
        try:
            match act:
                case "advance":
                    runner.advance(task.pk)
                case "die" | "die with its sandbox":
                    place, before = data.draw(st.sampled_from(DEATHS), label="place")
                    self.die(task, place, before=before)
                    if act != "die":
                        sandbox_for(task.workspace).stop()
                case "answer":
                    self.answer(task, data.draw(st.integers(0, 1), label="question"))
                case "roll back" | "fork":
                    self.go_back(task, act, data.draw(st.integers(0, 8), label="checkpoint"))
                case "pause":
                    pause_task(task.pk, mode=PauseMode.BOUNDARY, reason="look", actor=task.created_by)
                case "resume":
                    resume_task(task.pk, actor=task.created_by)
        except Refused as refused:
            note(f"{act}: {refused}")
        self.check()

    def die(self, task: Task, place: str, *, before: bool) -> None:
        with pytest.MonkeyPatch.context() as patched:
            at(patched, place, die, before=before)
            try:
                runner.advance(task.pk)
            except Killed:
                Task.objects.filter(pk=task.pk).exclude(lease_until=None).update(lease_until=task.created_at)

    def answer(self, task: Task, which: int) -> bool:
        """As somebody who has looked at the other side before saying what happened there."""
        questions = list(Escalation.objects.filter(task=task, status="open").select_related("tool_call"))
        if not questions:
            return False
        question = questions[which % len(questions)]
        decision = Decision.APPROVE
        if question.kind == EscalationKind.UNKNOWN_OUTCOME.value:
            assert question.tool_call is not None
            seen = question.tool_call.effect_key in self.made()
            decision = Decision.HAPPENED if seen else Decision.NOT_DONE
        elif question.kind != EscalationKind.HELD_CALL.value:
            decision = Decision.CONTINUE
        answer_escalation(question.pk, decision=decision, actor=task.created_by, words="looked")
        return True

    def go_back(self, task: Task, act: str, which: int) -> None:
        checkpoints = list(Checkpoint.objects.filter(task=task).order_by("seq"))
        if not checkpoints:
            return
        chosen = checkpoints[which % len(checkpoints)]
        if act == "roll back":
            roll_back(chosen.pk, reason="once more", actor=task.created_by)
        elif len(self.tasks) <= MOST_FORKS:
            self.tasks.append(fork(chosen.pk, reason="try", actor=task.created_by))

    def come_to_an_end(self) -> None:
        """No more deaths: everything is resumed and answered until all tasks are done."""
        for _ in range(40):
            open_ones = [task for task in self.tasks if work(task).status != TaskStatus.SUCCEEDED.value]
            if not open_ones:
                return
            for task in open_ones:
                try:
                    if task.status == TaskStatus.PAUSED.value:
                        resume_task(task.pk, actor=task.created_by)
                    elif not self.answer(task, 0):
                        Task.objects.filter(pk=task.pk, status="waiting").update(waiting_until=task.created_at)
                        end_waits()
                except Refused as refused:
                    note(str(refused))
        raise AssertionError([(task.pk, task.status, task.waiting_reason) for task in self.tasks])


@contextmanager
def history() -> Iterator[History]:
    with tempfile.TemporaryDirectory() as folder:
        made = History(Path(folder))
        try:
            yield made
        finally:
            for task in made.tasks:
                sandbox_for(task.workspace).stop()


@settings(
    max_examples=8,
    deadline=None,
    derandomize=True,
    phases=[Phase.generate],  # a history of minutes is not worth minutes of shrinking
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.data_too_large],
)
@given(st.data())
def test_a_completed_effect_is_never_made_again(data: st.DataObject) -> None:
    with history() as made:
        for _ in range(data.draw(st.integers(6, 14), label="acts")):
            made.act(data)
        made.come_to_an_end()
        made.check()
        assert len(made.made()) == ON_ONE_LINE, "forks and branches walk the same line: each effect once, none missing"
        for task in made.tasks:
            check_history(task)
