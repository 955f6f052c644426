"""Tasks that wait for a budget: why, until when, and who is woken when there is room again. Changes no budget."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from workspaces.domain.budget_words import OPEN_SCOPES, no_room_words
from workspaces.domain.budgets import ZERO, Amount, Need, first_with_room
from workspaces.domain.states import TaskStatus, WaitingFor
from workspaces.models import Budget, BudgetWait, Price
from workspaces.queries.budgets import Account, accounts, full_name_of

from .pen import Pen
from .waits import wake_waiting
from .wishes import Waits

RECHECK = timedelta(days=1)  # whoever makes room wakes it; this is for what nobody foresaw
BATCH = 500
WOKEN = "its budgets have room"


def waits_for(pen: Pen, need: Need, of: Sequence[Account], short: Sequence[Account]) -> Waits:
    """What a task waits for whose call has no room in `short`, of all the accounts that bind it. Written down."""
    BudgetWait.objects.update_or_create(
        task=pen.task,
        defaults={
            "expected_usd": need.expected.usd,
            "expected_tokens": need.expected.tokens,
            "held_usd": need.held.known_usd,
            "held_tokens": need.held.tokens,
            "accounts": [account.id for account in of],
            "short": [account.id for account in short],
            "since": pen.now,
        },
    )
    budgets = Budget.objects.select_related("user", "workspace", "profile").in_bulk([each.budget_id for each in short])
    words = [
        no_room_words(
            full_name_of(budgets[each.budget_id], each.key),
            each.figures,
            need.expected,
            each.ends_at,
            told=each.scope in OPEN_SCOPES,
        )
        for each in short
    ]
    return Waits(WaitingFor.BUDGET, " ".join(words), _until(pen.now, need.expected, short))


def _until(now: datetime, need: Amount, short: Sequence[Account]) -> datetime:
    """When time alone makes room: the last of the periods ends. Where that is not so, in a day."""
    ends = [each.ends_at for each in short if each.ends_at is not None and each.figures.ever_has_room(need)]
    return max(ends) if len(ends) == len(short) else now + RECHECK


def wake_for_room() -> int:
    """Wake those who wait for a budget that has room by now, the first ones first; returns how many.

    Any number may run at once. Room is made by what is settled, raised and ended, and by a price that is set.
    """
    waiting = list(
        BudgetWait.objects.filter(task__status=TaskStatus.WAITING.value, task__waiting_for=WaitingFor.BUDGET.value)
        .order_by("task__waiting_since", "task_id")
        .values_list("task_id", "accounts", "since", "expected_usd", "expected_tokens", "held_usd", "held_tokens")[
            :BATCH
        ]
    )
    if not waiting:
        return 0
    priced_at = _last_price() if any(usd is None for *_, usd, _, _, _ in waiting) else None
    asking = []
    for task_id, ids, since, usd, tokens, held_usd, held_tokens in waiting:
        if usd is None and priced_at is not None and priced_at > since:
            usd = ZERO  # a price was set since: it asks again, and hears whether it was this one
        asking.append((task_id, Need(Amount(usd, tokens), Amount(held_usd, held_tokens)), ids))
    found = accounts({each for *_, ids in asking for each in ids})
    woken = first_with_room(asking, {each.id: each.figures for each in found if not each.ended})
    return sum(wake_waiting(task_id, waiting_for=WaitingFor.BUDGET.value, why=WOKEN) for task_id in woken)


def _last_price() -> datetime | None:
    return Price.objects.order_by("-created_at").values_list("created_at", flat=True).first()
