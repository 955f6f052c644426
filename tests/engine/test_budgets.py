"""Budgets in the engine: reserved before a call, settled after; without room a task waits until it is raised."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from tests.harness import events, kinds, scripted_task, work
from workspaces.actions.budget_settings import change_budget, create_budget
from workspaces.domain.states import BudgetPeriod, BudgetScope
from workspaces.models import AuditEntry, Budget, BudgetAccount, ModelCall, Task

pytestmark = pytest.mark.django_db(transaction=True)

# each call: 1,000 in and 500 out at 1 USD a million, 0.0015 USD; it reserves its prompt and 1,000 of output
STEPS = """
replies:
  - {calls: [{name: note, arguments: {section: a, text: one}}], usage: {input: 1000, output: 500}}
  - {calls: [{name: note, arguments: {section: a, text: two}}], usage: {input: 1000, output: 500}}
  - {calls: [{name: finish, arguments: {summary: done}}], usage: {input: 1000, output: 500}}
"""
PRICED: dict[str, Any] = {
    "input_usd_per_mtok": "1",
    "output_usd_per_mtok": "1",
    "max_output_tokens": 1000,
    "detectors": {"observe_only": True},
}
EACH = Decimal("0.0015")


def budget(scope: BudgetScope, usd: str | None = None, *, task: Task, **fields: Any) -> Budget:
    target = {
        BudgetScope.SITE: {},
        BudgetScope.USER: {"user": task.created_by},
        BudgetScope.WORKSPACE: {"workspace": task.workspace},
        BudgetScope.PROFILE: {"profile": task.profile_version.profile},
        BudgetScope.TASK: {"task": task},
    }[scope]
    staff = task.created_by
    staff.is_staff = True
    limit = Decimal(usd) if usd is not None else None
    given: dict[str, Any] = {"period": BudgetPeriod.TOTAL, "reason": "a test", "limit_usd": limit} | fields
    return create_budget(scope=scope, actor=staff, **target, **given)


def account(of: Budget) -> BudgetAccount:
    return BudgetAccount.objects.get(budget=of)


def test_without_room_a_task_waits_with_everything_kept_and_goes_on_when_the_budget_is_raised() -> None:
    task = scripted_task(STEPS, **PRICED)
    limit = budget(BudgetScope.TASK, "0.005", task=task)
    work(task)
    assert (task.status, task.waiting_for) == ("waiting", "budget")
    assert "$0.003 of $0.005 spent" in task.waiting_reason
    assert (account(limit).spent_usd, account(limit).reserved_usd) == (2 * EACH, 0)
    asked = ModelCall.objects.filter(task=task).count()
    change_budget(limit.pk, limit_usd=Decimal(1), reason="it is worth it", actor=task.created_by)
    work(task)
    assert task.status == "succeeded"
    assert ModelCall.objects.filter(task=task).count() == asked + 1 == 3
    assert account(limit).spent_usd == 3 * EACH == task.cost_usd
    assert [event["what"] for event in events(task, "budget.changed")] == ["set", "changed"]
    assert AuditEntry.objects.get(action="budget.changed").reason == "it is worth it"
    assert kinds(task).count("step.started") == 3
