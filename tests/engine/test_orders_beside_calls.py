"""An order that comes while the task is busy with what is no step of its own: a summary, a check of its last words."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.engine.moments import at
from tests.engine.test_claims_held import FOUND
from tests.engine.test_compaction import NOTE, SAID, long_task
from tests.harness import scripted_task, work
from workspaces.actions.errors import Refused
from workspaces.actions.rollbacks import roll_back
from workspaces.actions.tasks import cancel_task, pause_task, resume_task
from workspaces.domain.states import PauseMode, TaskStatus
from workspaces.models import Checkpoint, Incident, ModelCall, Summary, Task

pytestmark = pytest.mark.django_db(transaction=True)

ASKED = "workspaces.engine.side_calls:_asked"
STORED = "workspaces.actions.compactions:store_compaction"
CHECKED = f"""
side: {{claim_check: {{{FOUND}, delay_s: DELAY}}}}
replies:
  - calls: [{{name: list_files, arguments: {{}}}}]
  - {{repeat: 9, calls: [{{name: finish, arguments: {{summary: "Die Rechnung ist raus."}}}}]}}
"""


def compacting() -> Task:
    return long_task(14, NOTE, text=SAID)


def claiming(*, delay_s: int) -> Task:
    return scripted_task(CHECKED.replace("DELAY", str(delay_s)), detectors={"claims_model": True})


def ordered(task: Task, place: str, what: Callable[[], object], *, before: bool = True) -> Task:
    with pytest.MonkeyPatch.context() as patched:
        passed = at(patched, place, what, before=before)
        task = work(task)
    assert passed, f"{place} was not reached"
    return task


@pytest.mark.parametrize("place", [ASKED, STORED])
@pytest.mark.parametrize("before", [True, False])
def test_a_cancel_in_the_midst_of_a_compaction_ends_the_task(place: str, before: bool) -> None:
    task = compacting()
    task = ordered(task, place, lambda: cancel_task(task.pk, reason="stop", actor=task.created_by), before=before)
    assert task.status == TaskStatus.CANCELLED
    assert not ModelCall.objects.filter(task=task, status="running").exists()


@pytest.mark.parametrize("place", [ASKED, STORED])
@pytest.mark.parametrize("mode", list(PauseMode))
def test_a_pause_in_the_midst_of_a_compaction_holds_and_the_task_goes_on_after_it(place: str, mode: PauseMode) -> None:
    task = compacting()
    task = ordered(task, place, lambda: pause_task(task.pk, mode=mode, reason="wait", actor=task.created_by))
    assert task.status == TaskStatus.PAUSED
    resume_task(task.pk, actor=task.created_by)
    task = work(task)
    assert task.status == TaskStatus.SUCCEEDED
    assert Summary.objects.filter(task=task).exists()


def test_a_task_whose_summary_is_being_written_is_not_taken_back() -> None:
    task = compacting()

    def back() -> None:
        first = Checkpoint.objects.filter(task=task).earliest("seq")
        with pytest.raises(Refused):
            roll_back(first.pk, reason="back", actor=task.created_by)

    assert ordered(task, ASKED, back).status == TaskStatus.SUCCEEDED


def test_a_cancel_while_last_words_are_checked_ends_the_task_as_cancelled() -> None:
    task = claiming(delay_s=120)
    task = ordered(task, ASKED, lambda: cancel_task(task.pk, reason="stop", actor=task.created_by))
    assert task.status == TaskStatus.CANCELLED
    assert ModelCall.objects.get(task=task, purpose="claim_check").status == "dropped"


def test_a_pause_while_last_words_are_checked_loses_neither_the_check_nor_the_end() -> None:
    task = claiming(delay_s=4)
    task = ordered(task, ASKED, lambda: pause_task(task.pk, mode=PauseMode.NOW, reason="wait", actor=task.created_by))
    if task.status == TaskStatus.PAUSED:  # else the order came after the answer
        resume_task(task.pk, actor=task.created_by)
        task = work(task)
    assert task.status == TaskStatus.SUCCEEDED
    assert Incident.objects.get(task=task).pattern == "model_check"
