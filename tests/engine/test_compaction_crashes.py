"""A worker dies between two lines of a compaction: the next one comes to the same end and pays for nothing twice."""

from __future__ import annotations

import pytest

from tests.engine.moments import killed_at
from tests.engine.test_compaction import NO_SUMMARY, NOTE, SAID, long_task, receipts
from tests.engine.test_contexts import check, received
from tests.engine.test_recovery import let_the_lease_run_out, run_until_killed
from tests.harness import scripted_task, work
from workspaces.actions.rollbacks import roll_back
from workspaces.domain.states import TaskStatus
from workspaces.engine.boxes import sandbox_for
from workspaces.models import Checkpoint, ModelCall, Replacement, Step, Summary, Task, UsageRecord
from workspaces.providers.base import ChatRequest
from workspaces.queries.contexts import request_of

pytestmark = pytest.mark.django_db(transaction=True)

__all__ = ["received"]

STORE = "workspaces.actions.compactions:store_compaction"


def summarised(task: Task) -> Task:
    """Carried to its end, with one paid summary for each that is there."""
    task = work(task)
    assert task.status == TaskStatus.SUCCEEDED
    asked = ModelCall.objects.filter(task=task, purpose="summary", status="replied")
    assert asked.count() == Summary.objects.filter(task=task).count() > 0
    assert all(UsageRecord.objects.filter(model_call=call).exists() for call in asked)
    assert [receipt["summarised"]["model_call"] for receipt in receipts(task)] == [
        row.model_call_id for row in Summary.objects.filter(task=task).order_by("pk")
    ]
    return task


@pytest.mark.parametrize("before", [True, False])
def test_a_worker_that_dies_around_the_row_of_a_summary_leads_to_one_summary(
    received: dict[str, ChatRequest], before: bool
) -> None:
    task = killed_at(long_task(14, NOTE, text=SAID), STORE, before=before)
    call = ModelCall.objects.get(task=task, purpose="summary")
    assert call.status == "replied"
    assert Summary.objects.filter(task=task).count() == (0 if before else 1)
    task = summarised(task)
    assert Summary.objects.filter(task=task).earliest("pk").model_call == call, "the paid reply was not asked for again"
    check(received, task)


def test_a_process_that_is_killed_before_its_summary_is_stored_leads_to_one_summary() -> None:
    task = long_task(14, NOTE, text=SAID)
    run_until_killed(task, "workspaces.actions.compactions", "store_compaction", "before")
    call = ModelCall.objects.get(task=task, purpose="summary")
    let_the_lease_run_out(task)
    task = summarised(task)
    assert Summary.objects.filter(task=task).earliest("pk").model_call == call


@pytest.mark.parametrize("before", [True, False])
def test_a_worker_that_dies_around_the_row_of_a_file_leaves_one_file_that_every_later_checkpoint_holds(
    before: bool,
) -> None:
    task = killed_at(long_task(8, context_policy=NO_SUMMARY), STORE, before=before)
    assert Replacement.objects.filter(task=task).exists() is not before
    written = [entry.path for entry in sandbox_for(task.workspace).list(recursive=True) if "context/m" in entry.path]
    assert written, "the file is there before its row"
    task = work(task)
    assert task.status == TaskStatus.SUCCEEDED
    first = receipts(task)[0]
    assert [item["path"] for item in first["offloaded"]] == sorted(written)
    row = Replacement.objects.filter(task=task).earliest("pk")
    after = Checkpoint.objects.filter(task=task, seq__gt=row.seq).earliest("seq")
    roll_back(after.pk, reason="is the file in it?", actor=task.created_by)
    assert sandbox_for(work(task).workspace).read(row.path).decode() == row.message.content
    assert all(request_of(step).exact for step in Step.objects.filter(task=task))


def test_a_step_that_touches_no_file_after_a_file_was_moved_has_it_in_its_checkpoint() -> None:
    """The row alone says that the disk has changed: the worker that wrote the file is gone."""
    scenario = f"""
    replies:
      - calls: [{{name: shell, arguments: {{command: 'seq 1 3000'}}}}]
      - calls: [{NOTE}]
        repeat: 3
      - calls: [{{name: finish, arguments: {{summary: done}}}}]
    """
    policy = {"summarise": False, "keep_recent": 1, "start_at": 0.5, "target": 0.4}
    task = scripted_task(scenario, context_window_tokens=10_000, max_output_tokens=500, context_policy=policy)
    task = killed_at(task, STORE, before=False)
    row = Replacement.objects.get(task=task)
    task = work(task)
    after = Checkpoint.objects.filter(task=task, seq__gt=row.seq).earliest("seq")
    roll_back(after.pk, reason="is the file in it?", actor=task.created_by)
    assert sandbox_for(work(task).workspace).read(row.path).decode() == row.message.content
