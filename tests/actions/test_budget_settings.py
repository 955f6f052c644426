"""Who sets budgets, and what is refused; and what a sandbox holds in them."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from tests.engine.test_budgets_at_once import a_day_passes
from tests.harness import add_member, make_user, make_workspace, scripted_task
from workspaces.actions.budget_holds import meter
from workspaces.actions.budget_settings import change_budget, create_budget, end_budget
from workspaces.actions.clock import database_now
from workspaces.actions.errors import Refused
from workspaces.actions.restored import workspaces_restored
from workspaces.domain.roles import Role
from workspaces.domain.states import BudgetPeriod, BudgetScope, UsagePurpose
from workspaces.models import AuditEntry, Budget, BudgetAccount, BudgetHold, User, Workspace
from workspaces.queries.budget_access import visible_budgets

pytestmark = pytest.mark.django_db(transaction=True)


def set_budget(scope: BudgetScope, actor: User, **fields: Any) -> Budget:
    given: dict[str, Any] = {"period": BudgetPeriod.MONTH, "limit_usd": Decimal(5), "reason": "to be careful"}
    return create_budget(scope=scope, actor=actor, **(given | fields))


def test_everybody_sets_what_is_theirs_to_set_and_changes_no_budget_that_is_set_for_them() -> None:
    staff, owner, operator, outsider = make_user(is_staff=True), make_user(), make_user(), make_user()
    place = make_workspace(owner)
    add_member(place, operator, Role.OPERATOR)
    task = scripted_task("replies: []", workspace=place)
    for actor, scope, target in [
        (owner, BudgetScope.SITE, {}),
        (operator, BudgetScope.WORKSPACE, {"workspace": place}),
        (owner, BudgetScope.USER, {"user": operator}),
        (owner, BudgetScope.PROFILE, {"profile": task.profile_version.profile}),
        (outsider, BudgetScope.TASK, {"task": task}),
    ]:
        with pytest.raises(Refused):
            set_budget(scope, actor, **target)
    of_site = set_budget(BudgetScope.SITE, staff)
    of_place = set_budget(BudgetScope.WORKSPACE, owner, workspace=place)
    of_task = set_budget(BudgetScope.TASK, operator, task=task, period=BudgetPeriod.TOTAL)
    by_owner = set_budget(BudgetScope.TASK, owner, task=task, period=BudgetPeriod.DAY)
    imposed = set_budget(BudgetScope.USER, staff, user=operator)
    own = set_budget(BudgetScope.USER, operator, user=operator)
    assert of_task.period == BudgetPeriod.TASK, "a total of a task is the task's"
    for actor, theirs, not_theirs in [
        (owner, [of_place, of_task, by_owner], [of_site, imposed, own]),
        (operator, [of_task, own], [of_place, by_owner, imposed]),
        (outsider, [], [of_place, of_task]),
    ]:
        for each in theirs:
            change_budget(each.pk, limit_usd=Decimal(actor.pk) + 7, reason="as agreed", actor=actor)
        for each in not_theirs:
            with pytest.raises(Refused):
                end_budget(each.pk, reason="in my way", actor=actor)
    assert set(visible_budgets(operator)) == {of_place, of_task, by_owner, imposed, own}
    assert set(visible_budgets(owner)) == {of_place, of_task, by_owner}
    assert not visible_budgets(outsider).exists()
    assert visible_budgets(staff).count() == 6


def test_a_change_says_old_new_and_why_and_what_makes_no_sense_is_refused() -> None:
    staff = make_user(is_staff=True)
    budget = set_budget(BudgetScope.SITE, staff)
    change_budget(budget.pk, limit_usd=None, limit_tokens=1000, alerts=[90, 10], reason="count tokens", actor=staff)
    entry = AuditEntry.objects.get(action="budget.changed")
    assert (entry.reason, entry.data["old"]["limit_usd"]) == ("count tokens", "5.000000000")
    assert entry.data["new"] == {"limit_usd": None, "limit_tokens": 1000, "alerts": [10, 90]}
    for wrong in (
        {"limit_tokens": None},
        {"limit_tokens": -1},
        {"limit_usd": Decimal("NaN")},
        {"alerts": [0]},
        {"alerts": [101]},
        {"limit_tokens": 1000},
        {"limit_tokens": 5, "reason": " "},
    ):
        with pytest.raises(Refused):
            change_budget(budget.pk, actor=staff, **({"reason": "why not"} | wrong))  # type: ignore[arg-type]
    with pytest.raises(Refused):
        set_budget(BudgetScope.USER, staff)
    end_budget(budget.pk, reason="enough", actor=staff)
    with pytest.raises(Refused, match="has ended"):
        change_budget(budget.pk, limit_tokens=7, reason="after all", actor=staff)


def metered(place: Workspace, spent: str, then: str | None) -> bool:
    """What a sandbox of the workspace has cost since the last time, and what it will until the next."""
    return meter(
        user_id=place.owner_id,
        workspace_id=place.pk,
        task_id=None,
        purpose=UsagePurpose.SANDBOX,
        spent_usd=Decimal(spent),
        next_usd=Decimal(then) if then is not None else None,
        at=database_now(),
    )


def test_a_running_sandbox_holds_what_it_costs_until_it_is_metered_again() -> None:
    owner = make_user()
    place = make_workspace(owner)
    assert metered(place, "0", "1"), "without a budget nothing is held"
    assert not BudgetHold.objects.exists()
    limit = set_budget(BudgetScope.WORKSPACE, owner, workspace=place, limit_usd=Decimal("0.25"))

    def told() -> tuple[Decimal, Decimal]:
        account = BudgetAccount.objects.get(budget=limit)
        return account.spent_usd, account.reserved_usd

    assert metered(place, "0", "0.1")
    assert told() == (0, Decimal("0.1"))
    assert metered(place, "0.12", "0.1")
    assert told() == (Decimal("0.12"), Decimal("0.1"))
    assert not metered(place, "0.08", "0.1"), "0.05 is left"
    assert told() == (Decimal("0.20"), 0)
    assert metered(place, "0", "0.04")
    assert metered(place, "0.01", None), "it sleeps"
    assert told() == (Decimal("0.21"), 0)
    assert not BudgetHold.objects.exists()


def test_what_a_sandbox_held_before_midnight_is_given_back_there_and_what_it_cost_counts_when_it_is_metered() -> None:
    owner = make_user()
    place = make_workspace(owner)
    limit = set_budget(BudgetScope.WORKSPACE, owner, workspace=place, period=BudgetPeriod.DAY)
    assert metered(place, "0", "0.1")
    a_day_passes(limit)
    assert metered(place, "0.08", "0.1")
    old, new = BudgetAccount.objects.filter(budget=limit).order_by("starts_at")
    assert (old.spent_usd, old.reserved_usd) == (0, 0)
    assert (new.spent_usd, new.reserved_usd) == (Decimal("0.08"), Decimal("0.1"))
    workspaces_restored({})
    new.refresh_from_db()
    assert (new.spent_usd, new.reserved_usd) == (Decimal("0.08"), 0), "after a restore no sandbox runs"
