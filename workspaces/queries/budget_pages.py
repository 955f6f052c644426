"""What the budget pages show: each budget with its account of now, who waits for it, and what drew on it.

Of others' spending there is the sum alone: a task that the reader does not see is neither named nor numbered.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from django.contrib.auth.models import AnonymousUser
from django.db import connection
from django.db.models import Q, QuerySet

from workspaces.domain.budget_pace import Pace, pace
from workspaces.domain.states import BudgetPeriod, BudgetScope, TaskStatus, WaitingFor
from workspaces.models import Budget, BudgetAccount, BudgetWait, Task, User

from .access import visible_tasks
from .budget_access import may_change_budget, visible_budgets
from .budgets import COLUMNS, Account, full_name_of, name_of, read_account
from .database import database_now

LISTED = 200
ENDED_LISTED = 50
WAITS_READ = 2_000
FRESH = timedelta(hours=24)  # a threshold that was passed before that has been seen

# The account of now of each budget; of one that counts each task by itself the one that is used up most.
_NOW = f"""
SELECT DISTINCT ON (budget.id) {COLUMNS}, account.starts_at, count(*) OVER (PARTITION BY budget.id)
  FROM workspaces_budgetaccount AS account JOIN workspaces_budget AS budget ON budget.id = account.budget_id
 WHERE budget.id = ANY(%(budgets)s) AND account.starts_at <= %(now)s
   AND (account.ends_at IS NULL OR account.ends_at > %(now)s)
   AND (budget.period <> 'task' OR budget.scope IN ('task', 'workspace') OR %(all)s
        OR account.period_key = ANY(%(keys)s))
 ORDER BY budget.id, greatest((account.spent_usd + account.assumed_usd) / nullif(budget.limit_usd, 0),
          (account.spent_tokens + account.assumed_tokens)::numeric / nullif(budget.limit_tokens, 0)) DESC NULLS LAST,
          account.id DESC
"""  # noqa: S608 - no value from outside is in it


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a bar: where it begins and how wide it is, in percent of the limit."""

    kind: str
    start: float
    width: float


@dataclass(frozen=True, slots=True)
class Shown:
    """A budget as it stands now. `account` None: nothing was drawn on it yet."""

    budget: Budget
    name: str
    account: Account | None
    starts_at: datetime | None
    accounts: int
    may_change: bool
    now: datetime
    waiting: Sequence[int] = ()  # the tasks that wait for it and that the reader sees
    others_waiting: int = 0

    @property
    def percent(self) -> int:
        return int(self.account.figures.percent) if self.account else 0

    @property
    def waits(self) -> int:
        return len(self.waiting) + self.others_waiting

    @property
    def used_up(self) -> bool:
        return self.account is not None and self.account.figures.used_up

    @property
    def passed(self) -> list[int]:
        return sorted(entry["percent"] for entry in self.account.alerted) if self.account else []

    @property
    def passed_at(self) -> list[tuple[int, datetime]]:
        told = self.account.alerted if self.account else []
        return sorted((entry["percent"], datetime.fromisoformat(entry["at"])) for entry in told)

    @property
    def pace(self) -> Pace | None:
        account = self.account
        if account is None or self.starts_at is None or self.budget.ended_at is not None:
            return None
        if account.period is BudgetPeriod.TASK:  # a task ends when it is done, not at a time
            return None
        return pace(account.figures.percent, self.starts_at, account.ends_at, self.now)

    @property
    def limits(self) -> list[Limit]:
        """In USD, in tokens, or both."""
        return limits_of(self.budget, self.account)


@dataclass(frozen=True, slots=True)
class Limit:
    """One of a budget's two limits, with what stands against it."""

    unit: str
    limit: Decimal | int
    spent: Decimal | int
    assumed: Decimal | int
    reserved: Decimal | int
    left: Decimal | int
    parts: Sequence[Part] = field(default_factory=tuple)

    @property
    def percent(self) -> int:
        return int((self.spent + self.assumed) * 100 / self.limit) if self.limit else 100


def limits_of(budget: Budget, account: Account | None) -> list[Limit]:
    found = []
    figures = account.figures if account else None
    for unit, limit in (("usd", budget.limit_usd), ("tokens", budget.limit_tokens)):
        if limit is None:
            continue
        sums: list[Any] = [Decimal(0) if unit == "usd" else 0] * 3
        if figures is not None:
            of = (figures.spent, figures.assumed, figures.reserved)
            sums = [each.known_usd if unit == "usd" else each.tokens for each in of]
        spent, assumed, reserved = sums
        left = limit - spent - assumed - reserved
        found.append(Limit(unit, limit, spent, assumed, reserved, left, parts_of(limit, sums)))
    return found


def parts_of(limit: Decimal | int, sums: Sequence[Decimal | int]) -> list[Part]:
    """What is over the limit does not leave the bar: the figures beside it say by how much."""
    parts, start = [], 0.0
    for kind, amount in zip(("spent", "assumed", "reserved"), sums, strict=True):
        share = float(amount) * 100 / float(limit) if limit else (100.0 if amount else 0.0)
        width = max(0.0, min(share, 100 - start))
        if width:
            parts.append(Part(kind, round(start, 2), round(width, 2)))
        start += width
    return parts


def binding_budgets(user: User) -> QuerySet[Budget]:
    """Those that the user may see, and those that bind what the user does: of the site, and of its profiles."""
    mine = visible_budgets(user)
    if user.is_staff:
        return mine
    own_tasks = Task.objects.filter(created_by=user)
    profiles = own_tasks.values("profile_version__profile")
    others = Q(scope=BudgetScope.SITE.value) | Q(profile__workspace=None, profile__in=profiles)
    return Budget.objects.filter(Q(pk__in=mine.values("pk")) | others)


def standing(user: User, *, ids: Iterable[int] | None = None) -> list[Shown]:
    """Budgets in force that bind the user: what tasks wait for first, then what is used up most."""
    budgets = binding_budgets(user).filter(ended_at=None)
    if ids is not None:
        budgets = budgets.filter(pk__in=list(ids))
    found = shown(user, list(with_names(budgets).order_by("pk")[:LISTED]))
    return sorted(found, key=lambda each: (-each.waits, not each.used_up, -each.percent, each.budget.pk))


def ended(user: User) -> list[Budget]:
    budgets = binding_budgets(user).exclude(ended_at=None)
    return list(with_names(budgets).select_related("ended_by").order_by("-ended_at")[:ENDED_LISTED])


def with_names(budgets: QuerySet[Budget]) -> QuerySet[Budget]:
    return budgets.select_related("user", "workspace", "profile__workspace", "task__workspace", "created_by")


def shown(user: User, budgets: Sequence[Budget]) -> list[Shown]:
    """Four queries, however many budgets; of a reader who is no staff, what they may change is asked one by one."""
    now = database_now()
    current = _accounts_now(user, [budget.pk for budget in budgets], now)
    waiting, others = waiting_for([budget.pk for budget in budgets], user)
    found = []
    for budget in budgets:
        account, starts_at, count = current.get(budget.pk, (None, None, 0))
        name = full_name_of(budget, account.key) if account else name_of(budget)
        may = budget.ended_at is None and may_change_budget(user, budget)
        tasks = waiting[budget.pk]
        found.append(Shown(budget, name, account, starts_at, count, may, now, tasks, others[budget.pk]))
    return found


def _accounts_now(
    user: User, budgets: Sequence[int], now: datetime
) -> dict[int, tuple[Account | None, datetime | None, int]]:
    keys: list[str] = []
    if not user.is_staff:
        keys = [f"task:{pk}" for pk in visible_tasks(user).order_by("-pk").values_list("pk", flat=True)[:1_000]]
    with connection.cursor() as cursor:
        cursor.execute(_NOW, {"budgets": list(budgets), "now": now, "all": user.is_staff, "keys": keys})
        rows = cursor.fetchall()
    found: dict[int, tuple[Account | None, datetime | None, int]] = {}
    for row in rows:
        account = read_account(row[:-2])
        found[account.budget_id] = (account, row[-2], row[-1])
    return found


def waiting_for(budgets: Sequence[int], user: User) -> tuple[Mapping[int, list[int]], Mapping[int, int]]:
    """Tasks that wait because of each: those that the user sees by id, the others counted."""
    waits = BudgetWait.objects.filter(
        task__status=TaskStatus.WAITING.value, task__waiting_for=WaitingFor.BUDGET.value
    ).values_list("task_id", "short")[:WAITS_READ]
    rows = list(waits)
    ids = {account for _, short in rows for account in short}
    of = dict(BudgetAccount.objects.filter(pk__in=ids, budget__in=budgets).values_list("pk", "budget_id"))
    seen = set(visible_tasks(user).filter(pk__in=[task for task, _ in rows]).values_list("pk", flat=True))
    named: dict[int, list[int]] = defaultdict(list)
    others: dict[int, int] = defaultdict(int)
    for task, short in rows:
        for budget in {of[account] for account in short if account in of}:
            if task in seen:
                named[budget].append(task)
            else:
                others[budget] += 1
    return named, others


def alert_ids(user: User | AnonymousUser) -> set[int]:
    """Budgets that a person should look at: used up, or past a threshold since yesterday. Of those the user may see."""
    now = database_now()
    current = BudgetAccount.objects.filter(
        Q(ends_at=None) | Q(ends_at__gt=now), budget__in=visible_budgets(user), budget__ended_at=None
    )
    since = (now - FRESH).isoformat()
    told = current.exclude(alerted=[], exhausted_at=None).values_list("budget_id", "alerted", "exhausted_at")
    return {
        budget
        for budget, passed, exhausted_at in told
        if exhausted_at is not None or any(entry["at"] > since for entry in passed)
    }


def alerts(user: User) -> list[Shown]:
    """The gravest first."""
    ids = alert_ids(user)
    return standing(user, ids=ids) if ids else []
