"""Budgets in the engine: reserved before a call, settled after; without room a task waits until it is raised."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from tests.engine.moments import killed_at
from tests.harness import events, kinds, make_workspace, scripted_task, work
from workspaces.actions.budget_holds import meter
from workspaces.actions.budget_settings import change_budget, create_budget, end_budget
from workspaces.actions.budget_waits import wake_for_room
from workspaces.actions.clock import database_now
from workspaces.actions.rollbacks import fork
from workspaces.domain.prices import Unit
from workspaces.domain.states import BudgetPeriod, BudgetScope, UsagePurpose
from workspaces.models import AuditEntry, Budget, BudgetAccount, Checkpoint, ModelCall, Price, Step, Task
from workspaces.providers.base import TokenUsage
from workspaces.queries.integrity import verify
from workspaces.queries.prices import per_token, price_book

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


def test_a_sandbox_that_runs_on_without_room_makes_its_task_wait_at_the_next_call() -> None:
    task = scripted_task(STEPS, **PRICED)
    limit = budget(BudgetScope.WORKSPACE, "0.1", task=task)

    def metered(next_usd: str) -> bool:
        where = {"user_id": task.created_by_id, "workspace_id": task.workspace_id, "task_id": task.pk}
        return meter(
            **where,
            purpose=UsagePurpose.SANDBOX,
            spent_usd=Decimal(0),
            next_usd=Decimal(next_usd),
            at=database_now(),
        )

    assert metered("0.0999")
    assert not metered("0.2"), "more than the budget has"
    assert account(limit).reserved_usd == 0
    work(task, until=lambda now: now.status == "waiting")
    assert (task.status, task.waiting_for, task.steps_taken) == ("waiting", "budget", 0)
    change_budget(limit.pk, limit_usd=Decimal(1), reason="let it run", actor=task.created_by)
    assert metered("0.2")
    assert work(task).status == "succeeded"
    assert account(limit).reserved_usd == Decimal("0.2"), "what the sandbox holds, and nothing else"


def test_several_budgets_without_room_are_all_named_and_figures_only_where_they_may_be_seen() -> None:
    task = scripted_task(STEPS, **PRICED)
    for scope in (BudgetScope.SITE, BudgetScope.USER, BudgetScope.WORKSPACE):
        budget(scope, "0.001", task=task)
    budget(BudgetScope.PROFILE, "5", task=task, period=BudgetPeriod.MONTH)
    work(task)
    assert (task.status, task.waiting_for) == ("waiting", "budget")
    said = task.waiting_reason
    assert "The site's budget in total has no room for this call: it may need up to $0.00" in said
    assert f"budget of user {task.created_by}" in said
    assert f"budget of workspace {task.workspace.name} in total has no room for this call: $0 of $0.001 spent" in said
    assert "profile" not in said
    assert not ModelCall.objects.filter(task=task).exists()
    assert not Step.objects.filter(task=task).exists(), "nothing was begun"


def test_ending_the_budget_lets_the_task_go_on() -> None:
    task = scripted_task(STEPS, **PRICED)
    limit = budget(BudgetScope.USER, "0.001", task=task)
    work(task)
    assert task.waiting_for == "budget"
    end_budget(limit.pk, reason="no longer", actor=task.created_by)
    assert work(task).status == "succeeded"
    assert account(limit).spent_usd == 0, "an ended budget counts nothing"


def test_a_price_that_nobody_knows_waits_and_is_never_taken_for_nothing() -> None:
    unpriced = {"detectors": {"observe_only": True}}
    task = scripted_task(STEPS, **unpriced)
    limit = budget(BudgetScope.TASK, "100", task=task)
    work(task)
    assert task.waiting_for == "budget"
    assert "the price of this model is not known" in task.waiting_reason
    wake_for_room()
    assert Task.objects.get(pk=task.pk).status == "waiting", "nothing has changed"
    now = database_now()
    by = {"created_by": task.created_by, "created_at": now, "valid_from": now, "reason": "as agreed"}
    for unit in (Unit.INPUT, Unit.OUTPUT):
        Price.objects.create(subject="scripted", unit=unit.value, usd=Decimal(1), **by)
    assert wake_for_room() == 1
    assert work(task).status == "succeeded"
    assert account(limit).spent_usd == 3 * EACH


def test_a_budget_of_tokens_needs_no_price() -> None:
    task = scripted_task(STEPS, max_output_tokens=1000, detectors={"observe_only": True})
    limit = budget(BudgetScope.WORKSPACE, task=task, limit_tokens=4_500)
    work(task)
    assert task.waiting_for == "budget"
    assert "3,000 tokens of 4,500 tokens spent" in task.waiting_reason
    change_budget(limit.pk, limit_tokens=6_000, reason="more", actor=task.created_by)
    assert work(task).status == "succeeded"
    assert account(limit).spent_tokens == 4_500


def test_a_fork_draws_on_what_its_origin_has_left() -> None:
    task = work(scripted_task(STEPS, **PRICED))
    limit = budget(BudgetScope.TASK, "0.007", task=task)
    place = budget(BudgetScope.WORKSPACE, "9", task=task, period=BudgetPeriod.MONTH)
    each = budget(BudgetScope.SITE, "9", task=task, period=BudgetPeriod.TASK)
    assert account(limit).spent_usd == 3 * EACH, "what it spent before counts"
    begin = Checkpoint.objects.filter(task=task).order_by("seq").first()
    assert begin is not None
    other = work(fork(begin.pk, reason="again", actor=task.created_by))
    assert (other.status, other.waiting_for) == ("waiting", "budget")
    assert f"budget of task {task.pk}" in other.waiting_reason
    assert account(limit).spent_usd == account(place).spent_usd == account(each).spent_usd == 4 * EACH
    assert account(each).period_key == f"task:{task.pk}"
    check_budgets()


def test_a_threshold_is_told_once_by_the_task_that_passes_it() -> None:
    task = scripted_task(STEPS, **PRICED)
    limit = budget(BudgetScope.TASK, "0.0035", task=task, alerts=[30, 60])
    work(task)
    change_budget(limit.pk, limit_usd=Decimal("0.0042"), reason="a little more", actor=task.created_by)
    work(task)
    told = events(task, "budget.threshold")
    assert [(event["threshold"], event["spent_usd"]) for event in told] == [(30, "0.001500000"), (60, "0.003000000")]
    assert [entry["percent"] for entry in account(limit).alerted] == [30, 60]
    change_budget(limit.pk, limit_usd=Decimal("0.1"), alerts=[30, 60], reason="a lot more", actor=task.created_by)
    assert account(limit).alerted == [], "of the new limit nothing is reached"


def test_a_killed_worker_leaves_what_it_reserved_as_assumed() -> None:
    task = scripted_task(STEPS, **PRICED)
    limit = budget(BudgetScope.WORKSPACE, "1", task=task)
    killed_at(task, "workspaces.engine.think:provider_of")
    held = account(limit).reserved_usd
    assert held > 0
    check_budgets()
    assert work(task).status == "succeeded"
    left = account(limit)
    assert (left.reserved_usd, left.assumed_usd, left.spent_usd) == (0, held, 3 * EACH)
    check_budgets()


@pytest.mark.parametrize(("fault", "assumed"), [("timeout", True), ("server", False)])
def test_a_call_that_never_answered_is_assumed_and_one_that_was_refused_is_given_back(
    fault: str, assumed: bool
) -> None:
    task = scripted_task(f"replies: [{{fault: {{kind: {fault}}}}}]", **PRICED)
    limit = budget(BudgetScope.WORKSPACE, "1", task=task)
    work(task)
    failed = list(ModelCall.objects.filter(task=task, error_kind=fault))
    told = account(limit)
    assert told.reserved_usd == told.reserved_tokens == 0
    assert told.assumed_usd == (sum(call.reserved_usd or 0 for call in failed) if assumed else 0)
    assert told.assumed_tokens == (sum(call.held_tokens or 0 for call in failed) if assumed else 0)
    assert failed
    check_budgets()


def test_those_who_cannot_go_on_hide_nobody_who_can(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workspaces.actions.budget_waits.BATCH", 1)
    stuck, unpriced, other = scripted_task(STEPS, **PRICED), scripted_task(STEPS), scripted_task(STEPS, **PRICED)
    for task in (stuck, unpriced):
        budget(BudgetScope.TASK, "0.0001", task=task)
        assert work(task).waiting_for == "budget"
    limit = budget(BudgetScope.TASK, "0.0001", task=other)
    assert work(other).waiting_for == "budget"
    change_budget(limit.pk, limit_usd=Decimal(1), reason="it is worth it", actor=other.created_by)
    assert work(other).status == "succeeded"
    assert {Task.objects.get(pk=each.pk).status for each in (stuck, unpriced)} == {"waiting"}


@pytest.mark.parametrize("kind", ["site price", "list"])
def test_nobody_writes_himself_a_price_of_nothing_to_get_past_a_budget_of_the_site(kind: str) -> None:
    free: dict[str, Any] = {"input_usd_per_mtok": Decimal(0), "output_usd_per_mtok": Decimal(0)}
    if kind == "list":
        free |= {"provider": "openai", "model": "gpt-4o-mini"}
    version = scripted_task(STEPS).profile_version
    for name, value in free.items():
        setattr(version, name, value)
    if kind == "site price":
        for unit in (Unit.INPUT, Unit.OUTPUT):
            at = database_now()
            actor = version.created_by
            Price.objects.create(
                subject="scripted", unit=unit.value, usd=3, valid_from=at, created_at=at, created_by=actor, reason="r"
            )
    of_site = per_token(version, version.model)
    assert of_site is not None
    assert of_site.output_usd == 0, "a profile of the site is made by staff, who may"
    version.profile.workspace = make_workspace(version.created_by)
    most = per_token(version, version.model)
    assert most is not None
    assert min(most.input_usd, most.output_usd) > 0
    usage = TokenUsage(input_tokens=1000, output_tokens=1000)
    assert all(row.cost_usd for row in price_book().priced(version, version.model, usage))
    version.base_url = "http://127.0.0.1:1/v1"  # one's own server, which may be free
    known = per_token(version, version.model)
    assert known is not None
    assert (known.output_usd == 0) == (kind == "list")
    version.input_usd_per_mtok = version.output_usd_per_mtok = Decimal(500)
    dearer = per_token(version, version.model)
    assert dearer is not None
    assert dearer.input_usd == dearer.output_usd == Decimal("0.0005")


@pytest.mark.parametrize("scope", [BudgetScope.USER, BudgetScope.WORKSPACE, BudgetScope.PROFILE, BudgetScope.TASK])
def test_setting_a_budget_reads_the_records_of_its_scope_and_not_all(scope: BudgetScope) -> None:
    """Nobody spends meanwhile, and anybody may set one for themselves."""
    task = scripted_task(STEPS, **PRICED)
    with CaptureQueriesContext(connection) as caught:
        budget(scope, "1", task=task, period=BudgetPeriod.TASK if scope is BudgetScope.TASK else BudgetPeriod.MONTH)
    (asked,) = [each["sql"] for each in caught if "workspaces_usagerecord AS usage" in each["sql"]]
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")
        cursor.execute(f"EXPLAIN {asked}")
        plan = "\n".join(row[0] for row in cursor.fetchall())
    assert "Seq Scan on workspaces_usagerecord" not in plan


def check_budgets() -> None:
    broken = [row.what for result in verify() if result.rule.name.startswith("budget") for row in result.rows]
    assert not broken, broken
