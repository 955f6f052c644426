"""Budgets are set, changed and ended by people: with a reason, and an entry in the audit log. Spends nothing.

Who may: queries/budget_access.py. Whoever waits for a budget that has room then is woken at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

from django.db import connection, transaction
from django.db.models import Q

from workspaces.domain.alerts import AlertKind
from workspaces.domain.events import EventKind
from workspaces.domain.prices import NANO
from workspaces.domain.states import BudgetPeriod, BudgetScope
from workspaces.domain.text import clean_json
from workspaces.models import AgentProfile, AuditEntry, Budget, BudgetAccount, Task, User, Workspace
from workspaces.queries.budget_access import may_change_budget, may_set_budget
from workspaces.queries.budgets import account_now, figures_of, name_of

from . import budget_signals
from .budget_waits import wake_for_room
from .budgets import opened
from .clock import database_now
from .errors import Refused
from .pen import Pen, writing
from .words import taken

MOST_USD = Decimal(1_000_000_000)
MOST_TOKENS = 10**15
RAISED = "The limit was raised."


class Unchanged:
    """Leave it as it is."""


UNCHANGED = Unchanged()


def create_budget(
    *,
    scope: BudgetScope,
    period: BudgetPeriod,
    actor: User,
    reason: str,
    user: User | None = None,
    workspace: Workspace | None = None,
    profile: AgentProfile | None = None,
    task: Task | None = None,
    limit_usd: Decimal | None = None,
    limit_tokens: int | None = None,
    alerts: Sequence[int] | None = None,
) -> Budget:
    """Set a budget: `scope` says which one of user, workspace, profile and task is given. Raises Refused.

    What was spent in its period before counts (of a total: what is spent from now on, of a task: all of it).
    """
    reason = _reason(reason, "set this budget")
    target = {"user": user, "workspace": workspace, "profile": profile, "task": task}
    given = {name: row for name, row in target.items() if row is not None}
    if set(given) != ({scope.value} - {BudgetScope.SITE.value}):
        raise Refused(f"Say which {scope.value} the budget is for." if scope.value != "site" else "The site is one.")
    if not may_set_budget(actor, scope, user=user, workspace=workspace, profile=profile, task=task):
        raise Refused("Site staff, or an owner of the workspace, sets this budget.")
    if scope is BudgetScope.TASK and period is BudgetPeriod.TOTAL:
        period = BudgetPeriod.TASK  # the same thing, by one name
    fields = {
        "limit_usd": _usd(limit_usd),
        "limit_tokens": _tokens(limit_tokens),
        "alerts": _alerts(alerts if alerts is not None else (50, 80, 95)),
    }
    _limits_something(fields)
    budget = Budget(scope=scope.value, period=period.value, created_by=actor, **given, **fields)
    with _history_of(task, actor) as pen, _nobody_spends():
        budget.created_at = database_now()
        budget.save()
        if (bound := account_now(budget)) is not None:
            opened([bound])
        _tell(pen, budget, actor, "set", None, _as_said(budget), reason)
    return budget


def change_budget(
    budget_id: int,
    *,
    actor: User,
    reason: str,
    limit_usd: Decimal | Unchanged | None = UNCHANGED,
    limit_tokens: int | Unchanged | None = UNCHANGED,
    alerts: Sequence[int] | Unchanged = UNCHANGED,
) -> Budget:
    """Raise, lower or lift a limit, or say when to be told. Raises Refused. Who waits goes on where there is room.

    Below what is spent is allowed: then nothing more is.
    """
    reason = _reason(reason, "change this budget")
    task = Budget.objects.select_related("task").get(pk=budget_id).task
    with _history_of(task, actor) as pen:
        budget = _taken_up(budget_id, actor)
        old = _as_said(budget)
        if not isinstance(limit_usd, Unchanged):
            budget.limit_usd = _usd(limit_usd)
        if not isinstance(limit_tokens, Unchanged):
            budget.limit_tokens = _tokens(limit_tokens)
        if not isinstance(alerts, Unchanged):
            budget.alerts = _alerts(alerts)
        new = _as_said(budget)
        _limits_something(new)
        if new == old:
            raise Refused("That is what it says already: nothing was changed.")
        budget.save(update_fields=["limit_usd", "limit_tokens", "alerts"])
        _measure_anew(budget)
        _tell(pen, budget, actor, "changed", old, new, reason)
        transaction.on_commit(wake_for_room)
    return budget


def end_budget(budget_id: int, *, actor: User, reason: str) -> Budget:
    """It limits nothing any more; what it counted stays readable. Raises Refused. Who waits for it goes on."""
    reason = _reason(reason, "end this budget")
    task = Budget.objects.select_related("task").get(pk=budget_id).task
    with _history_of(task, actor) as pen, _nobody_spends():
        budget = _taken_up(budget_id, actor)
        budget.ended_at = database_now()
        budget.ended_by = actor
        budget.save(update_fields=["ended_at", "ended_by"])
        _tell(pen, budget, actor, "ended", _as_said(budget), None, reason)
        accounts = list(BudgetAccount.objects.filter(budget=budget).order_by("pk"))
        for account in accounts:
            account.budget = budget
        for kind in (AlertKind.BUDGET_THRESHOLD, AlertKind.BUDGET_EXHAUSTED):
            budget_signals.no_longer(accounts, kind, "The budget was ended.", budget.ended_at)
        transaction.on_commit(wake_for_room)
    return budget


@contextmanager
def _history_of(task: Task | None, actor: User) -> Iterator[Pen | None]:
    """One transaction; of a task's own budget, with its history at hand."""
    if task is not None:
        with writing(task.pk, actor=actor) as pen:
            yield pen
    else:
        with transaction.atomic():
            yield None


@contextmanager
def _nobody_spends() -> Iterator[None]:
    """From here to the end of the transaction. Whoever is admitted or settled before does not know of the change and is
    waited for; whoever comes after does. So each call is counted by a new budget once, as booked before or as charged.
    """
    with connection.cursor() as cursor:
        cursor.execute("LOCK TABLE workspaces_budget IN EXCLUSIVE MODE")
    yield


def _taken_up(budget_id: int, actor: User) -> Budget:
    budget = Budget.objects.select_for_update(no_key=True, of=("self",)).get(pk=budget_id)
    if not may_change_budget(actor, budget):
        raise Refused("This budget was set by somebody else: site staff, or an owner of the workspace, may change it.")
    if budget.ended_at is not None:
        raise Refused(f"This budget has ended at {budget.ended_at:%Y-%m-%d %H:%M} UTC: set a new one.")
    return budget


def _measure_anew(budget: Budget) -> None:
    """Against the new limit, what was told before may be still to come. What was told last and is so no longer is no
    trouble any more: somebody has dealt with it.
    """
    now = database_now()
    accounts = BudgetAccount.objects.select_for_update(no_key=True).filter(budget=budget).order_by("pk")
    below: list[BudgetAccount] = []
    with_room: list[BudgetAccount] = []
    for account in accounts:
        account.budget = budget
        figures = figures_of(account)
        told = len(account.alerted)
        account.alerted = [entry for entry in account.alerted if entry["percent"] <= figures.percent]
        if len(account.alerted) < told:
            below.append(account)
        if not figures.used_up and account.exhausted_at is not None:
            account.exhausted_at = None
            with_room.append(account)
        account.save(update_fields=["alerted", "exhausted_at"])
    budget_signals.no_longer(below, AlertKind.BUDGET_THRESHOLD, RAISED, now)
    budget_signals.no_longer(with_room, AlertKind.BUDGET_EXHAUSTED, RAISED, now)


def price_was_set() -> None:
    """Where the price of a call was not known, its budget of USD had no room for it. It may have; or says so again."""
    now = database_now()
    current = Q(ends_at=None) | Q(ends_at__gt=now)
    told = BudgetAccount.objects.select_for_update(no_key=True, of=("self",)).select_related("budget").order_by("pk")
    with transaction.atomic():
        found = told.filter(current, exhausted_at__isnull=False, budget__ended_at=None, budget__limit_usd__isnull=False)
        with_room = [account for account in found if not figures_of(account).used_up]
        BudgetAccount.objects.filter(pk__in=[account.pk for account in with_room]).update(exhausted_at=None)
        budget_signals.no_longer(with_room, AlertKind.BUDGET_EXHAUSTED, "A price was set.", now)


def _tell(
    pen: Pen | None,
    budget: Budget,
    actor: User,
    what: str,
    old: dict[str, Any] | None,
    new: dict[str, Any] | None,
    reason: str,
) -> None:
    said: dict[str, Any] = {"budget": budget.pk, "old": old, "new": new}
    if pen is not None:
        pen.event(EventKind.BUDGET_CHANGED, what=what, reason=reason, **said)
    AuditEntry.objects.create(
        actor=actor,
        action=f"budget.{what}",
        workspace_id=budget.workspace_id or (pen.task.workspace_id if pen is not None else None),
        task_id=budget.task_id,
        reason=reason,
        data=clean_json({**said, "of": name_of(budget), "period": budget.period}),
        at=database_now(),
    )


def _as_said(budget: Budget) -> dict[str, Any]:
    usd = budget.limit_usd
    return {
        "limit_usd": None if usd is None else f"{usd:f}",
        "limit_tokens": budget.limit_tokens,
        "alerts": list(budget.alerts),
    }


def _reason(reason: str, to_what: str) -> str:
    reason = taken(reason, "reason")
    if not reason:
        raise Refused(f"Say why you {to_what}: the reason is kept in the audit log.")
    return reason


def _usd(limit: Decimal | None) -> Decimal | None:
    if limit is None:
        return None
    if not limit.is_finite() or not 0 <= limit <= MOST_USD:
        raise Refused(f"A limit in USD is between 0 and {MOST_USD:,}.")
    return limit.quantize(NANO)


def _tokens(limit: int | None) -> int | None:
    if limit is not None and not 0 <= limit <= MOST_TOKENS:
        raise Refused(f"A limit in tokens is between 0 and {MOST_TOKENS:,}.")
    return limit


def _alerts(percents: Iterable[int]) -> list[int]:
    rising = sorted(set(percents))
    if any(not 1 <= percent <= 100 for percent in rising):
        raise Refused("A threshold is a percentage from 1 to 100.")
    if len(rising) > 10:
        raise Refused("Ten thresholds are enough: leave some out.")
    return rising


def _limits_something(fields: dict[str, Any]) -> None:
    if fields["limit_usd"] is None and fields["limit_tokens"] is None:
        raise Refused("Give a limit in USD, in tokens, or both. To lift it, end the budget.")


__all__ = ["UNCHANGED", "Unchanged", "change_budget", "create_budget", "end_budget", "price_was_set"]
