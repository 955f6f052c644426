"""A model call that was given up, or whose worker died, may be billed: it counts as one of unknown price."""

from __future__ import annotations

import pytest

from tests.engine.moments import killed_at
from tests.engine.test_pause import THINKS_LONG, a_worker
from tests.harness import eventually, scripted_task, work
from workspaces.actions.rollbacks import roll_back
from workspaces.actions.tasks import cancel_task, pause_task
from workspaces.domain.states import PauseMode, TaskStatus
from workspaces.models import Checkpoint, ModelCall, Task

pytestmark = pytest.mark.django_db(transaction=True)
TWO = """
replies:
  - calls: [{name: note, arguments: {section: a, text: b}}]
    usage: {input: 10, output: 5}
  - calls: [{name: finish, arguments: {summary: done}}]
    usage: {input: 10, output: 5}
"""
PRICES = {"input_usd_per_mtok": "1", "output_usd_per_mtok": "1"}
SENT = "workspaces.engine.think:provider_of"


def statuses(task: Task) -> list[str]:
    return list(ModelCall.objects.filter(task=task).order_by("pk").values_list("status", flat=True))


@pytest.mark.parametrize("order", ["pause", "cancel"])
def test_a_call_that_an_order_drops_counts_as_unpriced(order: str) -> None:
    task = scripted_task(THINKS_LONG, **PRICES)
    with a_worker(task):
        eventually(lambda: statuses(task) == ["running"])
        if order == "pause":
            pause_task(task.pk, mode=PauseMode.NOW, reason="stop", actor=task.created_by)
        else:
            cancel_task(task.pk, reason="stop", actor=task.created_by)
    task.refresh_from_db()
    assert statuses(task) == ["dropped"]
    assert (task.unpriced_calls, task.cost_usd) == (1, 0)


def test_a_call_whose_worker_died_counts_as_unpriced_and_the_others_do_not() -> None:
    task = work(killed_at(scripted_task(TWO, **PRICES), SENT))
    assert task.status == TaskStatus.SUCCEEDED
    assert statuses(task) == ["dropped", "replied", "replied"]
    assert task.unpriced_calls == 1
    assert float(task.cost_usd) == pytest.approx(30e-6)


def test_a_call_that_nobody_will_read_is_not_left_under_way_by_a_cancel() -> None:
    task = killed_at(scripted_task(TWO, **PRICES), SENT)
    cancel_task(task.pk, reason="no", actor=task.created_by)
    task.refresh_from_db()
    assert (task.status, statuses(task), task.unpriced_calls) == ("cancelled", ["dropped"], 1)


def test_a_call_that_nobody_will_read_is_not_left_under_way_by_a_rollback() -> None:
    task = killed_at(scripted_task(TWO, **PRICES), SENT)
    pause_task(task.pk, mode=PauseMode.BOUNDARY, reason="look", actor=task.created_by)
    roll_back(Checkpoint.objects.get(task=task).pk, reason="back", actor=task.created_by)
    task.refresh_from_db()
    assert (statuses(task), task.unpriced_calls) == (["dropped"], 1)


@pytest.mark.parametrize(("fault", "unpriced"), [("timeout", 1), ("rate_limit", 0), ("connection", 0)])
def test_a_failure_counts_as_unpriced_where_the_provider_may_have_worked(fault: str, unpriced: int) -> None:
    task = scripted_task(f"replies: [{{fault: {{kind: {fault}}}}}]", **PRICES)
    work(task, until=lambda task: "failed" in statuses(task))  # the next try may be due at once
    assert task.unpriced_calls == unpriced
