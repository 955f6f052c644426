"""Tasks that wait for a budget: why, until when, and who is woken when there is room again. Changes no budget."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timedelta

from django.db import connection

from workspaces.domain.budget_words import OPEN_SCOPES, no_room_words
from workspaces.domain.budgets import ZERO, Amount, Need, first_with_room
from workspaces.domain.states import WaitingFor
from workspaces.models import Budget, BudgetWait
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


# Each by itself, so that those who cannot go on, however many and however long they wait, hide nobody behind them.
_MAY_HAVE_ROOM = """
SELECT wait.task_id, wait.accounts::text, wait.expected_usd, wait.expected_tokens, wait.held_usd, wait.held_tokens
  FROM workspaces_budgetwait AS wait JOIN workspaces_task AS task ON task.id = wait.task_id
 WHERE task.status = 'waiting' AND task.waiting_for = 'budget'
   AND NOT EXISTS (
       SELECT FROM jsonb_array_elements_text(wait.accounts) AS held(id)
         JOIN workspaces_budgetaccount AS account ON account.id = held.id::bigint
         JOIN workspaces_budget AS budget ON budget.id = account.budget_id
        WHERE budget.ended_at IS NULL
          AND (wait.expected_usd + account.spent_usd + account.assumed_usd + account.reserved_usd > budget.limit_usd
               OR wait.expected_tokens + account.spent_tokens + account.assumed_tokens + account.reserved_tokens
                  > budget.limit_tokens
               OR wait.expected_usd IS NULL AND budget.limit_usd IS NOT NULL
                  AND wait.since >= (SELECT coalesce(max(created_at), '-infinity') FROM workspaces_price)))
 ORDER BY task.waiting_since, wait.task_id LIMIT %(most)s
"""


def wake_for_room() -> int:
    """Wake those who wait for a budget that has room by now, the first ones first; returns how many.

    Any number may run at once. Room is made by what is settled, raised and ended, and by a price that is set.
    """
    with connection.cursor() as cursor:
        cursor.execute(_MAY_HAVE_ROOM, {"most": BATCH})
        waiting = cursor.fetchall()
    asking = [
        # without a price it is here because one was set since: it asks again, and hears whether it was this one
        (task_id, Need(Amount(ZERO if usd is None else usd, tokens), Amount(held_usd, held_tokens)), json.loads(ids))
        for task_id, ids, usd, tokens, held_usd, held_tokens in waiting
    ]
    found = accounts({each for *_, ids in asking for each in ids})
    woken = first_with_room(asking, {each.id: each.figures for each in found if not each.ended})
    return sum(wake_waiting(task_id, waiting_for=WaitingFor.BUDGET.value, why=WOKEN) for task_id in woken)
