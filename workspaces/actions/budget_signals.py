"""What a budget signals: a threshold that is passed, a limit that is reached, and that it is so no longer.

A trouble is of one account, so of one period. It ends when the limit is raised, when the budget is ended, or when its
period is over (`end_periods`, by the scheduler: nobody may spend in the next one). It concerns whom the budget is for,
not whose task came upon it: a budget adds up what else a person or the site spends.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Q

from workspaces.domain.alerts import AlertKind, Edge
from workspaces.domain.budget_words import no_room_words, used_words
from workspaces.domain.budgets import NOTHING, Amount, Figures
from workspaces.domain.incidents import Severity
from workspaces.domain.states import BudgetScope
from workspaces.models import Budget, BudgetAccount, Task
from workspaces.queries.budgets import Account, figures_of, full_name_of
from workspaces.queries.signals import standing

from .alert_signals import signal
from .clock import database_now

WARNS_FROM = 80  # percent: below, it is worth knowing
BATCH = 500
LOOKS_BACK = timedelta(days=3)  # a scheduler that was away for longer leaves what ended before to a person
THRESHOLD, LIMIT = AlertKind.BUDGET_THRESHOLD, AlertKind.BUDGET_EXHAUSTED
_PREFIX = {THRESHOLD: "threshold", LIMIT: "limit"}


def passed(account: Account, percents: Sequence[int], now: datetime) -> None:
    """Of an account that passed `percents` of its limit just now."""
    severity = Severity.WARNING if max(percents) >= WARNS_FROM else Severity.INFO
    subject = _subject(THRESHOLD, account.id)
    edge = Edge.WORSE if standing(THRESHOLD, [subject]) else Edge.BEGAN
    words = f"{{}} is past {max(percents)} %: {used_words(account.figures)}."
    _signal(THRESHOLD, edge, account.id, _budget(account), account.key, account.figures, words, severity, now)


def reached(account: Account, now: datetime, need: Amount = NOTHING) -> None:
    """Of an account that has no room any more: for anything, or for the `need` of a call that waits."""
    words = f"{{}} is used up: {used_words(account.figures)}."
    if not account.figures.used_up:
        words = no_room_words("{}", account.figures, need, account.ends_at, told=True)
    _signal(LIMIT, Edge.BEGAN, account.id, _budget(account), account.key, account.figures, words, Severity.ERROR, now)


def no_longer(accounts: Iterable[BudgetAccount], kind: AlertKind, why: str, now: datetime) -> None:
    """`accounts` with their budgets at hand; those whose trouble goes on."""
    rows = {_subject(kind, account.pk): account for account in accounts}
    for subject in sorted(standing(kind, rows)):
        row = rows[subject]
        severity = Severity.ERROR if kind is LIMIT else Severity.WARNING
        _signal(kind, Edge.ENDED, row.pk, row.budget, row.period_key, figures_of(row), why, severity, now)


def end_periods() -> None:
    """What was told of a period that is over is no trouble any more."""
    now = database_now()
    told = Q(exhausted_at__isnull=False) | ~Q(alerted=[])
    over = BudgetAccount.objects.filter(told, ends_at__lte=now, ends_at__gt=now - LOOKS_BACK, budget__ended_at=None)
    with transaction.atomic():
        rows = list(over.select_related(*_NAMED).order_by("-ends_at")[:BATCH])
        for kind in (THRESHOLD, LIMIT):
            no_longer(rows, kind, "Its period is over.", now)


_NAMED = ("budget__user", "budget__workspace", "budget__profile")


def _budget(account: Account) -> Budget:
    return Budget.objects.select_related("user", "workspace", "profile", "task").get(pk=account.budget_id)


def _signal(
    kind: AlertKind,
    edge: Edge,
    account_id: int,
    budget: Budget,
    key: str,
    figures: Figures,
    words: str,
    severity: Severity,
    now: datetime,
) -> None:
    name = full_name_of(budget, key)
    task: Task | None = budget.task if budget.scope == BudgetScope.TASK.value else None
    whose = {} if task else {"user": budget.user_id, "workspace": budget.workspace_id, "profile": budget.profile_id}
    signal(
        kind,
        edge,
        _subject(kind, account_id),
        words=words.format(name[:1].upper() + name[1:]),
        severity=severity,
        at=now,
        task=task,
        detail=budget.scope,
        cause=f"budget/{budget.pk}",
        data={"budget_name": name, "period": key, "percent": f"{figures.percent:.1f}", **figures.as_json()},
        budget=budget.pk,
        **whose,
    )


def _subject(kind: AlertKind, account_id: int) -> str:
    return f"{_PREFIX[kind]}:{account_id}"
