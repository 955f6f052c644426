"""The budgets that bind one task: what is left of each, and what would be enough. Writes nothing."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_UP, Decimal

from workspaces.domain.states import WaitingFor
from workspaces.models import Budget, BudgetWait, Task, User

from .budget_access import may_change_budget
from .budget_pages import Shown, binding_budgets, with_names
from .budgets import Spender, accounts, bound, full_name_of
from .database import database_now

SHOWN = Decimal("0.0001")


@dataclass(frozen=True, slots=True)
class Binds:
    """A budget above a task. `short`: it is why the task waits; `told`: the reader may see its figures."""

    shown: Shown
    short: bool
    told: bool


def binding_task(task: Task, user: User) -> list[Binds]:
    """Every budget above the task, those that it waits for first, then the one with the least left."""
    now = database_now()
    spans = bound(Spender.of(task), now)
    if not spans:
        return []
    budgets = with_names(Budget.objects.filter(pk__in=[each.budget_id for each in spans])).in_bulk()
    found = {account.id: account for account in accounts(each.account_id for each in spans if each.account_id)}
    told = set(binding_budgets(user).filter(pk__in=budgets).values_list("pk", flat=True))
    waits = task.waiting_for == WaitingFor.BUDGET.value
    short: set[int] = set()
    if waits:
        short = set(BudgetWait.objects.filter(task=task).values_list("short", flat=True).first() or [])
    binds = []
    for each in spans:
        budget = budgets[each.budget_id]
        account = found.get(each.account_id) if each.account_id else None
        one = Shown(
            budget,
            full_name_of(budget, each.span.key),
            account,
            each.span.starts_at,
            1,
            may_change_budget(user, budget),
            now,
            waiting=[task.pk] if each.account_id in short else [],
        )
        binds.append(Binds(one, each.account_id in short, budget.pk in told))
    return sorted(binds, key=lambda one: (not one.short, -one.shown.percent, one.shown.budget.pk))


def own_budget(task: Task) -> Budget | None:
    """The one in force that is set for the task itself; of several the newest."""
    return Budget.objects.filter(task=task, ended_at=None).order_by("-pk").first()


@dataclass(frozen=True, slots=True)
class Suggestion:
    """What a raised limit has to be at least, so that a task that waits can go on."""

    usd: Decimal | None
    tokens: int | None


def enough_for(budget: Budget, task: Task) -> Suggestion | None:
    """None where the task does not wait for this budget."""
    wait = BudgetWait.objects.filter(task=task, task__waiting_for=WaitingFor.BUDGET.value).first()
    if wait is None:
        return None
    account = next((each for each in accounts(wait.short) if each.budget_id == budget.pk), None)
    if account is None:
        return None
    figures, usd, tokens = account.figures, account.figures.limit_usd, account.figures.limit_tokens
    need_usd, need_tokens = wait.expected_usd, wait.expected_tokens
    if usd is not None and need_usd is not None and figures.left_usd is not None and figures.left_usd < need_usd:
        usd = (usd - figures.left_usd + need_usd).quantize(SHOWN, rounding=ROUND_UP)
    if tokens is not None and figures.left_tokens is not None and figures.left_tokens < need_tokens:
        tokens = tokens - figures.left_tokens + need_tokens
    return Suggestion(usd, tokens)
