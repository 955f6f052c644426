"""Budgets of what runs and is no model call: a sandbox's time, stored bytes. Meters nothing and books no record."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

from django.db import transaction

from workspaces.domain.budgets import GIVEN_BACK, NOTHING, Amount, Need, Outcome
from workspaces.domain.states import UsagePurpose
from workspaces.models import BudgetHold
from workspaces.queries.budgets import Spender, bound

from .budgets import charge, opened, set_aside


def meter(
    *,
    user_id: int,
    workspace_id: int,
    task_id: int | None,
    purpose: UsagePurpose,
    spent_usd: Decimal,
    next_usd: Decimal | None,
    at: datetime,
) -> bool:
    """Charge what was spent since the last time, give back what was held for that, and hold `next_usd` for the time
    until the next. False: a budget has no room for it; nothing is held, and the task that works there finds none for
    its next model call either (queries/budgets.sandbox_short).

    In the caller's transaction, with the usage records (created at `at`) and before they are booked. `spent_usd`: of
    those with a price. `next_usd` None or 0: nothing runs any more, or its price is not known.
    """
    with transaction.atomic():
        hold = BudgetHold.objects.select_for_update().filter(workspace=workspace_id, purpose=purpose.value).first()
        ids = opened(bound(Spender(user_id, workspace_id, task_id), at))
        held = Amount(hold.usd, 0) if hold is not None else NOTHING
        if hold is not None or spent_usd:
            charge(ids, hold.held_in if hold else (), held, Outcome(Amount(spent_usd, 0)), pen=None, now=at)
        next_held = Amount(next_usd, 0)
        holds = bool(next_usd) and bool(ids)
        has_room = not holds or set_aside(ids, Need(next_held, next_held))
        if holds:
            fields = {"usd": next_usd, "held_in": ids, "short_usd": 0}
            if not has_room:
                fields = {"usd": 0, "held_in": [], "short_usd": next_usd}
            BudgetHold.objects.update_or_create(
                workspace_id=workspace_id, purpose=purpose.value, defaults={**fields, "since": at}
            )
        elif hold is not None:
            hold.delete()
    return has_room


def nothing_runs() -> None:
    """No sandbox does any more: what was held for them is given back."""
    for hold in BudgetHold.objects.filter(purpose=UsagePurpose.SANDBOX.value).order_by("pk"):
        with transaction.atomic():
            charge((), hold.held_in, Amount(hold.usd, 0), GIVEN_BACK, pen=None, now=hold.since)
            hold.delete()
