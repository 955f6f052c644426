"""Which budgets bind what is about to be spent, and what stands in their accounts. Writes nothing."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from django.db import connection

from workspaces.domain.budget_words import named, period_words
from workspaces.domain.budgets import Amount, Figures, Span, span_of
from workspaces.domain.prices import TOKEN_UNITS
from workspaces.domain.states import BudgetPeriod, BudgetScope, UsagePurpose
from workspaces.models import Budget, BudgetAccount, BudgetHold, Task


@dataclass(frozen=True, slots=True)
class Spender:
    """Who spends: `task_id` None where it is of no task. A task spends for its own profile, whichever model answers."""

    user_id: int
    workspace_id: int
    task_id: int | None

    @classmethod
    def of(cls, task: Task) -> Spender:
        return cls(task.created_by_id, task.workspace_id, task.pk)


@dataclass(frozen=True, slots=True)
class Bound:
    """A budget that binds, and its account at the time in question. `account_id` None: there is none yet."""

    budget_id: int
    scope: BudgetScope
    span: Span
    made_at: datetime
    account_id: int | None


# A fork draws on the budgets of the task, and of the workspace, that it was forked from. The empty first part keeps a
# budget from being set or ended until this transaction is over (see actions/budget_settings.py); no row is locked.
_BOUND = """
WITH RECURSIVE standing AS (SELECT id FROM workspaces_budget WHERE false FOR KEY SHARE),
places(id, up) AS (
    SELECT id, forked_from_id FROM workspaces_workspace WHERE id = %(workspace)s
    UNION SELECT above.id, above.forked_from_id FROM workspaces_workspace AS above JOIN places ON above.id = places.up),
line(id, up) AS (
    SELECT id, forked_from_id FROM workspaces_task WHERE id = %(task)s
    UNION SELECT above.id, above.forked_from_id FROM workspaces_task AS above JOIN line ON above.id = line.up)
SELECT budget.id, budget.scope, budget.period, budget.created_at, origin.id, origin.created_at, account.id
  FROM workspaces_budget AS budget
  LEFT JOIN workspaces_task AS origin ON origin.id = CASE WHEN budget.scope = 'task' THEN budget.task_id
       ELSE (SELECT coalesce(root_id, id) FROM workspaces_task WHERE id = %(task)s) END
  LEFT JOIN workspaces_budgetaccount AS account ON account.budget_id = budget.id AND account.period_key =
       CASE budget.period WHEN 'day' THEN %(day)s WHEN 'month' THEN %(month)s WHEN 'total' THEN %(total)s
            ELSE 'task:' || origin.id END
 WHERE budget.ended_at IS NULL
   AND (budget.scope = 'site' OR budget.user_id = %(user)s
        OR budget.profile_id = (SELECT version.profile_id FROM workspaces_task AS task
              JOIN workspaces_profileversion AS version ON version.id = task.profile_version_id
             WHERE task.id = %(task)s)
        OR budget.workspace_id IN (SELECT id FROM places) OR budget.task_id IN (SELECT id FROM line))
 ORDER BY budget.id
"""


def bound(spender: Spender, at: datetime) -> list[Bound]:
    """The budgets that bind `spender`, each with the period that `at` falls into; in order of budgets."""
    keys = {
        period.value: span.key
        for period in (BudgetPeriod.DAY, BudgetPeriod.MONTH, BudgetPeriod.TOTAL)
        if (span := span_of(period, at, since=at, origin=None)) is not None
    }
    values = {
        "user": spender.user_id,
        "workspace": spender.workspace_id,
        "task": spender.task_id,
        **keys,
    }
    with connection.cursor() as cursor:
        cursor.execute(_BOUND, values)
        rows = cursor.fetchall()
    found = []
    for budget_id, scope, period, made_at, origin_id, origin_at, account_id in rows:
        origin = (origin_id, origin_at) if origin_id is not None else None
        of_task = scope == BudgetScope.TASK.value
        span = span_of(BudgetPeriod(period), at, since=origin_at if of_task else made_at, origin=origin)
        if span is not None and span.holds(at):
            found.append(Bound(budget_id, BudgetScope(scope), span, made_at, account_id))
    return found


def sandbox_short(workspace_id: int) -> Decimal:
    """USD that the workspace's running sandbox takes until it is metered again, and found no room for."""
    short = BudgetHold.objects.filter(workspace=workspace_id, purpose=UsagePurpose.SANDBOX.value, short_usd__gt=0)
    return short.values_list("short_usd", flat=True).first() or Decimal(0)


# What was booked in the scope and period of an account before there was one. `but`: the model call that is just being
# settled, whose records stand there already. A call counts in the period in which it was admitted.
_TOKENS = tuple(unit.value for unit in TOKEN_UNITS)
_BOOKED = f"""
WITH RECURSIVE places(id) AS (
    SELECT workspace_id FROM workspaces_budget WHERE id = %(budget)s
    UNION SELECT below.id FROM workspaces_workspace AS below JOIN places ON below.forked_from_id = places.id),
line(id) AS (
    SELECT task_id FROM workspaces_budget WHERE id = %(budget)s
    UNION SELECT below.id FROM workspaces_task AS below JOIN line ON below.forked_from_id = line.id)
SELECT coalesce(sum(usage.cost_usd), 0),
       coalesce(sum(usage.quantity) FILTER (WHERE usage.unit IN {_TOKENS}), 0)
  FROM workspaces_budget AS budget CROSS JOIN workspaces_usagerecord AS usage
  LEFT JOIN workspaces_modelcall AS call ON call.id = usage.model_call_id
 WHERE budget.id = %(budget)s AND usage.model_call_id IS DISTINCT FROM %(but)s
   AND usage.created_at >= %(since)s AND coalesce(call.started_at, usage.created_at) >= %(since)s
   AND (%(until)s::timestamptz IS NULL OR coalesce(call.started_at, usage.created_at) < %(until)s)
   AND {{scoped}}
"""  # noqa: S608 - no value from outside is in it
# Chosen here and not by the statement, which could not use an index then: nobody spends while a budget is set.
_SCOPED = {
    BudgetScope.SITE: "true",
    BudgetScope.USER: "usage.user_id = budget.user_id",
    BudgetScope.WORKSPACE: "usage.workspace_id IN (SELECT id FROM places)",
    BudgetScope.PROFILE: "usage.profile_id = budget.profile_id",
    BudgetScope.TASK: "usage.task_id IN (SELECT id FROM line)",
}
_OF_ORIGIN = (
    " AND usage.task_id IN (SELECT id FROM workspaces_task WHERE id = %(origin)s"
    " UNION ALL SELECT id FROM workspaces_task WHERE root_id = %(origin)s)"
)


def booked(each: Bound, *, but: int | None = None) -> Amount:
    """What the usage records in its scope and period say."""
    by_task = each.span.key.startswith("task:") and each.scope is not BudgetScope.TASK
    values = {
        "budget": each.budget_id,
        "but": but,
        "since": each.span.starts_at,
        "until": each.span.ends_at,
        "origin": int(each.span.key.removeprefix("task:")) if by_task else None,
    }
    with connection.cursor() as cursor:
        cursor.execute(_BOOKED.format(scoped=_SCOPED[each.scope] + (_OF_ORIGIN if by_task else "")), values)
        usd, tokens = cursor.fetchone()
    return Amount(usd, int(tokens))


COLUMNS = """account.id, budget.id, budget.scope, budget.period, budget.limit_usd, budget.limit_tokens, budget.alerts,
       account.period_key, account.ends_at, account.alerted, account.exhausted_at,
       account.spent_usd, account.spent_tokens, account.assumed_usd, account.assumed_tokens,
       account.reserved_usd, account.reserved_tokens, budget.ended_at"""
_ACCOUNTS = f"""
SELECT {COLUMNS}
  FROM workspaces_budgetaccount AS account JOIN workspaces_budget AS budget ON budget.id = account.budget_id
 WHERE account.id = ANY(%s) ORDER BY account.id
"""  # noqa: S608 - no value from outside is in it


@dataclass(frozen=True, slots=True)
class Account:
    """What stands in one account, with what its budget says; `ended`: the budget is."""

    id: int
    budget_id: int
    scope: BudgetScope
    period: BudgetPeriod
    alerts: list[int]
    key: str
    ends_at: datetime | None
    alerted: list[dict[str, Any]]
    exhausted_at: datetime | None
    figures: Figures
    ended: bool


def accounts(ids: Iterable[int], *, lock: bool = False) -> list[Account]:
    """In order of ids, which is the order in which they are locked."""
    with connection.cursor() as cursor:
        cursor.execute(_ACCOUNTS + (" FOR NO KEY UPDATE OF account" if lock else ""), [sorted(set(ids))])
        return [read_account(row) for row in cursor.fetchall()]


def read_account(row: tuple[Any, ...]) -> Account:
    """A row of COLUMNS."""
    pk, budget, scope, period, usd, tokens, alerts, key, ends_at, alerted, exhausted_at, *rest = row
    spent_usd, spent_tokens, assumed_usd, assumed_tokens, reserved_usd, reserved_tokens, ended_at = rest
    return Account(
        pk,
        budget,
        BudgetScope(scope),
        BudgetPeriod(period),
        _json(alerts),
        key,
        ends_at,
        _json(alerted),
        exhausted_at,
        Figures(
            usd,
            tokens,
            Amount(spent_usd, spent_tokens),
            Amount(assumed_usd, assumed_tokens),
            Amount(reserved_usd, reserved_tokens),
        ),
        ended_at is not None,
    )


def figures_of(account: BudgetAccount) -> Figures:
    """Of a row with its budget at hand."""
    return Figures(
        account.budget.limit_usd,
        account.budget.limit_tokens,
        Amount(account.spent_usd, account.spent_tokens),
        Amount(account.assumed_usd, account.assumed_tokens),
        Amount(account.reserved_usd, account.reserved_tokens),
    )


def name_of(budget: Budget) -> str:
    """ "the budget of workspace Papers" """
    what = {
        BudgetScope.SITE: lambda: "",
        BudgetScope.USER: lambda: budget.user.get_username() if budget.user else "",
        BudgetScope.WORKSPACE: lambda: budget.workspace.name if budget.workspace else "",
        BudgetScope.PROFILE: lambda: budget.profile.name if budget.profile else "",
        BudgetScope.TASK: lambda: str(budget.task_id),
    }[BudgetScope(budget.scope)]()
    return named(BudgetScope(budget.scope), what)


def full_name_of(budget: Budget, key: str) -> str:
    """With its period: "the budget of workspace Papers for 2026-12"."""
    if budget.scope == BudgetScope.TASK.value and budget.period == BudgetPeriod.TASK.value:
        return name_of(budget)
    return f"{name_of(budget)} {period_words(BudgetPeriod(budget.period), key)}"


def _json(value: Any) -> Any:
    """A raw cursor gives JSON as text."""
    return json.loads(value) if isinstance(value, str) else value


def account_now(budget: Budget) -> Bound | None:
    """The account that a budget begins with. None where each task gets one of its own, at its next call."""
    scope, period = BudgetScope(budget.scope), BudgetPeriod(budget.period)
    origin = (budget.task.pk, budget.task.created_at) if budget.task is not None else None
    since = budget.task.created_at if budget.task is not None else budget.created_at
    span = span_of(period, budget.created_at, since=since, origin=origin)
    return Bound(budget.pk, scope, span, budget.created_at, None) if span is not None else None
