"""What one budget's page shows: its periods, what drew on it lately, who changed it. Writes nothing.

Of others' spending there is the sum alone: a task that the reader does not see is neither named nor numbered.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from django.db import connection

from workspaces.domain.budget_words import OPEN_SCOPES, limits_in_words
from workspaces.domain.prices import TOKEN_UNITS
from workspaces.domain.states import BudgetPeriod
from workspaces.models import AuditEntry, Budget, BudgetAccount, Task, User

from .access import visible_tasks
from .budgets import Account, accounts

ACCOUNTS_LISTED = 60
DRAWN_LATELY = timedelta(days=7)
DREW_LISTED = 12
CHANGES_LISTED = 50
_TOKENS = tuple(unit.value for unit in TOKEN_UNITS)


def accounts_of(budget: Budget, user: User) -> list[tuple[Account, datetime]]:
    """Its periods, the newest first. Of tasks that the reader does not see there is none."""
    rows = BudgetAccount.objects.filter(budget=budget)
    if budget.period == BudgetPeriod.TASK.value and not user.is_staff and budget.scope not in OPEN_SCOPES:
        mine = visible_tasks(user).order_by("-pk").values_list("pk", flat=True)[:1_000]
        rows = rows.filter(period_key__in=[f"task:{pk}" for pk in mine])
    begun = dict(rows.order_by("-starts_at", "-pk").values_list("pk", "starts_at")[:ACCOUNTS_LISTED])
    found = {account.id: account for account in accounts(begun)}
    return [(found[pk], starts_at) for pk, starts_at in begun.items()]


@dataclass(frozen=True, slots=True)
class PeriodRow:
    """An account in a list: its period's name, and what stands in it beside the limits of now."""

    budget: Budget
    account: Account
    starts_at: datetime

    @property
    def name(self) -> str:
        return self.account.key.replace("task:", "task ")

    @property
    def task_id(self) -> int | None:
        number = self.account.key.removeprefix("task:")
        return int(number) if self.account.period is BudgetPeriod.TASK and number.isdigit() else None

    @property
    def limit_usd(self) -> Decimal | None:
        return self.budget.limit_usd

    @property
    def limit_tokens(self) -> int | None:
        return self.budget.limit_tokens

    @property
    def spent_usd(self) -> Decimal:
        return self.account.figures.spent.known_usd

    @property
    def spent_tokens(self) -> int:
        return self.account.figures.spent.tokens

    @property
    def assumed_usd(self) -> Decimal:
        return self.account.figures.assumed.known_usd

    @property
    def assumed_tokens(self) -> int:
        return self.account.figures.assumed.tokens

    @property
    def percent(self) -> int:
        return int(self.account.figures.percent)

    @property
    def passed(self) -> list[dict[str, Any]]:
        return sorted(self.account.alerted, key=lambda entry: int(entry["percent"]))


@dataclass(frozen=True, slots=True)
class Drew:
    """What a task drew lately; `task` None: all those that the reader does not see, and what is of no task."""

    task: Task | None
    usd: Decimal
    tokens: int
    unpriced: int = 0  # records without a price


_DREW = f"""
WITH RECURSIVE places(id) AS (
    SELECT workspace_id FROM workspaces_budget WHERE id = %(budget)s
    UNION SELECT below.id FROM workspaces_workspace AS below JOIN places ON below.forked_from_id = places.id),
line(id) AS (
    SELECT task_id FROM workspaces_budget WHERE id = %(budget)s
    UNION SELECT below.id FROM workspaces_task AS below JOIN line ON below.forked_from_id = line.id)
SELECT rollup.task_id, sum(rollup.cost_usd),
       coalesce(sum(rollup.quantity) FILTER (WHERE rollup.unit IN {_TOKENS}), 0), sum(rollup.unpriced)
  FROM workspaces_budget AS budget CROSS JOIN workspaces_usagerollup AS rollup
 WHERE budget.id = %(budget)s AND rollup.hour >= %(since)s
   AND CASE budget.scope WHEN 'site' THEN true
            WHEN 'user' THEN rollup.user_id = budget.user_id
            WHEN 'workspace' THEN rollup.workspace_id IN (SELECT id FROM places)
            WHEN 'profile' THEN rollup.profile_id = budget.profile_id
            ELSE rollup.task_id IN (SELECT id FROM line) END
 GROUP BY rollup.task_id ORDER BY 2 DESC, 3 DESC LIMIT 500
"""  # noqa: S608 - no value from outside is in it


def drew_lately(budget: Budget, user: User, since: datetime) -> list[Drew]:
    """Who drew most, first; those that the reader does not see as one."""
    with connection.cursor() as cursor:
        cursor.execute(_DREW, {"budget": budget.pk, "since": since})
        rows = [(task, usd, int(tokens), int(unpriced)) for task, usd, tokens, unpriced in cursor if usd or tokens]
    seen = visible_tasks(user).select_related("workspace").in_bulk([task for task, *_ in rows if task is not None])
    found = [Drew(seen[task], *sums) for task, *sums in rows if task in seen][:DREW_LISTED]
    named = {drew.task.pk for drew in found if drew.task is not None}
    rest = [Drew(None, *sums) for task, *sums in rows if task not in named]
    if rest:
        usd = sum((each.usd for each in rest), Decimal(0))
        found.append(Drew(None, usd, sum(each.tokens for each in rest), sum(each.unpriced for each in rest)))
    return found


@dataclass(frozen=True, slots=True)
class BudgetChange:
    """`values`: (name, "old → new") of what differs, in words."""

    what: str
    values: list[tuple[str, str]]
    actor: User | None
    at: datetime
    reason: str


def changes_of(budget: Budget) -> list[BudgetChange]:
    """Who set, changed and ended it, and why; the newest first."""
    told = AuditEntry.objects.filter(action__startswith="budget.", data__budget=budget.pk).select_related("actor")
    return [
        BudgetChange(
            entry.action.removeprefix("budget."),
            limits_in_words(entry.data.get("old"), entry.data.get("new")),
            entry.actor,
            entry.at,
            entry.reason,
        )
        for entry in told.order_by("-pk")[:CHANGES_LISTED]
    ]
