"""What a model call locks, everybody locks in one order: the task, its budgets, the pool. Else two wait for ever."""

from __future__ import annotations

from collections import defaultdict
from decimal import Decimal
from functools import partial
from typing import Any

import pytest
from django.db import connection

from tests.engine.moments import killed_at
from tests.engine.test_budgets import PRICED, STEPS, budget
from tests.harness import minute_passes, quota_pool, scripted_task, work
from workspaces.actions.budget_settings import change_budget
from workspaces.actions.pen import writing
from workspaces.domain.states import BudgetScope, TaskStatus
from workspaces.models import ModelCall, Task

pytestmark = pytest.mark.django_db(transaction=True)

ORDER = ("workspaces_task", "workspaces_budgetaccount", "workspaces_quotapool")


class Locks:
    """The tables of which rows were locked, by transaction."""

    def __init__(self) -> None:
        self.taken: dict[str, list[int]] = defaultdict(list)

    def __call__(self, execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        done = execute(sql, params, many, context)
        plain = str(sql).replace('"', "")
        if "FOR NO KEY UPDATE" in plain and "SKIP LOCKED" not in plain and connection.in_atomic_block:
            tables = [at for at, name in enumerate(ORDER) if f"FROM {name} " in plain or f"FROM {name}\n" in plain]
            xid = connection.connection.execute("SELECT pg_current_xact_id()::text").fetchone()[0]
            self.taken[xid] += tables
        return done


def test_no_budget_is_locked_after_a_pool_and_no_task_after_either() -> None:
    """Through a dead worker's call, a wait for the pool, one for a budget, and an end."""
    task = scripted_task(STEPS, **PRICED)
    quota_pool(task.profile_version, requests_per_minute=1)
    limit = budget(BudgetScope.WORKSPACE, "0.006", task=task)
    killed_at(task, "workspaces.engine.think:provider_of")
    locks = Locks()
    with connection.execute_wrapper(locks):
        assert work(task).waiting_for == "quota", "what the dead worker sent counts against the minute"
        assert ModelCall.objects.get(task=task).status == "dropped"
        waited_for = set()
        for _ in range(8):
            if Task.objects.get(pk=task.pk).status == TaskStatus.SUCCEEDED.value:
                break
            minute_passes()
            waited_for.add(work(task).waiting_for)
            if task.waiting_for == "budget":
                change_budget(limit.pk, limit_usd=Decimal(1), reason="go on", actor=task.created_by)
    assert work(task).status == TaskStatus.SUCCEEDED.value
    assert waited_for >= {"budget", "quota"}
    assert {2, 1, 0} <= {table for taken in locks.taken.values() for table in taken}
    wrong = [taken for taken in locks.taken.values() if taken != sorted(taken)]
    assert not wrong, wrong


def test_a_transaction_that_concerns_two_pools_takes_them_by_id_and_the_doings_of_one_in_turn() -> None:
    """A call of one pool that a dead worker left is dropped where the next one is leased at another."""
    task = scripted_task(STEPS)
    done: list[str] = []
    with writing(task.pk) as pen:
        for what, pool in (("drop at 2", 2), ("lease at 1", 1), ("lease at 2", 2)):
            pen.last(partial(done.append, what), pool=pool)
        assert done == []
    assert done == ["lease at 1", "drop at 2", "lease at 2"]
