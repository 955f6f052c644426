"""Budgets: what is set aside before something is paid for, and what was spent. See actions/admission.py.

An account is made at its first use and charged under its row's lock; accounts are locked in order of id, after the task
and before the quota pool. What a reservation holds stands with who holds it (the model call's row, a BudgetHold), so a
worker may die between any two lines. Setting and ending budgets: budget_settings.py; who waits: budget_waits.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

from django.db import connection

from workspaces.domain.budget_words import OPEN_SCOPES
from workspaces.domain.budgets import (
    GIVEN_BACK,
    NOTHING,
    Amount,
    Need,
    Outcome,
    need_of_call,
    never_told,
    passed,
    replied,
)
from workspaces.domain.events import EventKind
from workspaces.domain.text import clean_json
from workspaces.models import BudgetAccount, ModelCall, Task
from workspaces.providers.base import TokenUsage
from workspaces.queries import budgets as query
from workspaces.queries.budgets import Account, Bound, Spender
from workspaces.queries.prices import per_token

from . import budget_signals
from .budget_waits import waits_for
from .pen import Pen
from .wishes import Waits, Wish

UNASKED = Need(Amount(None, 0), Amount(None, 0))


def binding(task: Task, wish: Wish, *, now: datetime) -> tuple[Need, tuple[int, ...]]:
    """What the call takes, and the accounts of the budgets above its task. Without any, nobody asks what it takes.

    Where its sandbox runs on without room, there has to be room for that as well.
    """
    bound = query.bound(Spender.of(task), now)
    if not bound:
        return UNASKED, ()
    return _need_of(wish).beside(query.sandbox_short(task.workspace_id)), tuple(opened(bound))


def _need_of(wish: Wish) -> Need:
    most = per_token(wish.version, wish.model)
    return need_of_call(
        wish.input_tokens,
        wish.output_tokens,
        lambda tokens_in, out: most.of(input_tokens=tokens_in, output_tokens=out) if most is not None else None,
    )


def opened(bound: Sequence[Bound], *, but: int | None = None) -> list[int]:
    """The accounts, made where there is none. One that is as old as its period begins with what was booked before."""
    for each in bound:
        if each.account_id is None:
            before = query.booked(each, but=but) if each.span.starts_at < each.made_at else NOTHING
            row = BudgetAccount(
                budget_id=each.budget_id,
                period_key=each.span.key,
                starts_at=each.span.starts_at,
                ends_at=each.span.ends_at,
                spent_usd=before.known_usd,
                spent_tokens=before.tokens,
            )
            BudgetAccount.objects.bulk_create([row], ignore_conflicts=True)  # or waits for whoever is just making it
    ids = [each.account_id for each in bound if each.account_id is not None]
    for each in bound:
        if each.account_id is None:
            ids.append(
                BudgetAccount.objects.values_list("pk", flat=True).get(budget=each.budget_id, period_key=each.span.key)
            )
    return ids


def reserve(call: ModelCall, need: Need) -> bool:
    """Whether every account that the call is held in has room; it is then reserved in each."""
    return set_aside(call.held_in, need)


def held_by(call: ModelCall) -> Amount:
    return Amount(call.reserved_usd, call.held_tokens or 0)


def set_aside(account_ids: Iterable[int], need: Need) -> bool:
    """In all of the accounts, or in none."""
    ids = list(account_ids)
    if not ids:
        return True
    if not all(account.figures.has_room(need.expected) for account in query.accounts(ids, lock=True)):
        return False
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE workspaces_budgetaccount"
            " SET reserved_usd = reserved_usd + %s, reserved_tokens = reserved_tokens + %s WHERE id = ANY(%s)",
            [need.held.known_usd, need.held.tokens, ids],
        )
    return True


def short_of(pen: Pen, wish: Wish) -> Waits | None:
    """Which budgets have no room for it; None: all have."""
    need, ids = binding(pen.task, wish, now=pen.now)
    if not ids:
        return None
    accounts = query.accounts(ids, lock=True)
    short = [account for account in accounts if not account.figures.has_room(need.expected)]
    if not short:
        return None
    used_up = [
        account
        for account in short
        if account.exhausted_at is None and not account.figures.could_have_room(need.expected)
    ]
    if used_up:
        BudgetAccount.objects.filter(pk__in=[account.id for account in used_up]).update(exhausted_at=pen.now)
        for account in used_up:
            budget_signals.reached(account, pen.now, need.expected)
    return waits_for(pen, need, accounts, short)


def settle(pen: Pen, call: ModelCall, usage: TokenUsage | None, cost: Decimal | None, *, priced: Decimal) -> None:
    """What was reserved is given back, what was spent is booked. `priced`: of what has a price, also where not all has.

    Also in the accounts of budgets that were set while the call was under way.
    """
    ids = opened(query.bound(Spender.of(pen.task), call.started_at), but=call.pk)
    tokens = usage.prompt_tokens + usage.output_tokens if usage is not None else None
    outcome = replied(held_by(call), usd=priced, tokens=tokens, price_known=cost is not None)
    charge({*ids, *call.held_in}, call.held_in, held_by(call), outcome, pen=pen, now=pen.now)


def give_back(pen: Pen, call: ModelCall, *, assumed: bool) -> None:
    """Nothing was told of what it cost. `assumed`: it may be billed, so the reservation stays booked as assumed."""
    held = held_by(call)
    charge((), call.held_in, held, never_told(held) if assumed else GIVEN_BACK, pen=pen, now=pen.now)


_CHARGE = f"""
WITH held AS MATERIALIZED (
    SELECT id, id = ANY(%(held)s) AS holds, id = ANY(%(spent_in)s) AS spends FROM workspaces_budgetaccount
     WHERE id = ANY(%(ids)s) ORDER BY id FOR NO KEY UPDATE)
UPDATE workspaces_budgetaccount AS account
   SET spent_usd = spent_usd + CASE WHEN spends THEN %(usd)s ELSE 0 END,
       spent_tokens = spent_tokens + CASE WHEN spends THEN %(tokens)s ELSE 0 END,
       reserved_usd = reserved_usd - CASE WHEN holds THEN %(held_usd)s ELSE 0 END,
       reserved_tokens = reserved_tokens - CASE WHEN holds THEN %(held_tokens)s ELSE 0 END,
       assumed_usd = assumed_usd + CASE WHEN holds THEN %(assumed_usd)s ELSE 0 END,
       assumed_tokens = assumed_tokens + CASE WHEN holds THEN %(assumed_tokens)s ELSE 0 END
  FROM held, workspaces_budget AS budget
 WHERE account.id = held.id AND budget.id = account.budget_id
RETURNING {query.COLUMNS}
"""  # noqa: S608 - no value from outside is in it


def charge(
    spent_in: Iterable[int], held_in: Sequence[int], held: Amount, outcome: Outcome, *, pen: Pen | None, now: datetime
) -> None:
    """What was held is given back where it is, what was spent is booked in `spent_in` (it may be another period by
    now). The thresholds that are passed are written down.
    """
    spent_in = list(spent_in)
    ids = sorted({*spent_in, *held_in})
    if not ids:
        return
    values: dict[str, Any] = {
        "ids": ids,
        "held": list(held_in),
        "spent_in": spent_in,
        "usd": outcome.spent.known_usd,
        "tokens": outcome.spent.tokens,
        "held_usd": held.known_usd,
        "held_tokens": held.tokens,
        "assumed_usd": outcome.assumed.known_usd,
        "assumed_tokens": outcome.assumed.tokens,
    }
    with connection.cursor() as cursor:
        cursor.execute(_CHARGE, values)
        charged = [query.read_account(row) for row in cursor.fetchall()]
    for account in sorted(charged, key=lambda each: each.id):
        _note_thresholds(account, pen, now)


def _note_thresholds(account: Account, pen: Pen | None, now: datetime) -> None:
    """Each once: in the account, signalled, and in the trace of the task that passed it."""
    new = passed(account.alerts, account.figures.percent, [entry["percent"] for entry in account.alerted])
    fields: dict[str, Any] = {}
    if new:
        fields["alerted"] = [*account.alerted, *({"percent": each, "at": now.isoformat()} for each in new)]
    if account.figures.used_up and account.exhausted_at is None:
        fields["exhausted_at"] = now
    if fields:
        BudgetAccount.objects.filter(pk=account.id).update(**fields)
    if account.ended:
        return
    if new:
        budget_signals.passed(account, new, now)
    if "exhausted_at" in fields:
        budget_signals.reached(account, now)
    if new and pen is not None:
        pen.event(EventKind.BUDGET_THRESHOLD, **_told(account, max(new)))


def _told(account: Account, threshold: int) -> dict[str, Any]:
    """Figures only where whoever sees the task may see them (domain/budget_words.py)."""
    said: dict[str, Any] = {
        "budget": account.budget_id,
        "scope": account.scope.value,
        "period": account.key,
        "threshold": threshold,
    }
    if account.scope in OPEN_SCOPES:
        figures = account.figures
        if figures.limit_usd is not None:
            said |= {"limit_usd": str(figures.limit_usd), "spent_usd": str(figures.spent.known_usd)}
        if figures.limit_tokens is not None:
            said |= {"limit_tokens": figures.limit_tokens, "spent_tokens": figures.spent.tokens}
    return clean_json(said)
