"""Before a model call is made: what it may take is set aside in its quota pool and in every budget above its task.

Both in the transaction that writes the call's intent down, as its last act; so a lease is there exactly when its call
is. Locks in this order: the task, budget accounts by id, the pool; no task is locked while one of the others is.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from workspaces.domain.budgets import Need
from workspaces.domain.rate_headers import RateHint
from workspaces.domain.states import TaskStatus
from workspaces.models import ModelCall
from workspaces.providers.base import ProviderError, TokenUsage

from . import budgets, quotas
from .pen import Pen
from .wishes import Waits as Waits
from .wishes import Wish


class NotAdmitted(Exception):  # a way out, not a fault
    """There is no room now. The transaction that asked is rolled back; `wait` then says so."""


@dataclass(frozen=True, slots=True)
class Reservation:
    """What will be set aside, and where: it stands in the call's row."""

    pool_id: int
    need: Need  # of money and tokens
    account_ids: tuple[int, ...]  # of the budgets


def reservation(pen: Pen, wish: Wish) -> Reservation:
    """Locks nothing."""
    need, account_ids = budgets.binding(pen.task, wish, now=pen.now)
    return Reservation(quotas.pool_of(wish.version, wish.model), need, account_ids)


def admit(pen: Pen, call: ModelCall, wish: Wish, held: Reservation) -> None:
    """Set aside what `call` says, or raise NotAdmitted: here, or when the transaction comes to its end."""
    if not budgets.reserve(call, held.need):
        raise NotAdmitted
    pen.last(lambda: _lease(pen, call, wish), pool=held.pool_id)
    if wish.instead_of is not None:
        quotas.fell_back(pen, call, instead_of=wish.instead_of, why=wish.why_instead)


def _lease(pen: Pen, call: ModelCall, wish: Wish) -> None:
    if not quotas.lease(pen, call, wish):
        raise NotAdmitted


def wait(pen: Pen, wish: Wish) -> bool:
    """Put the task into the queue, waiting. False: there is room after all, ask again.

    One that is pausing takes no place: its pause comes first.
    """
    if pen.task.status != TaskStatus.RUNNING.value:
        return True
    waits = budgets.short_of(pen, wish) or quotas.queue(pen, wish)
    if waits is not None:
        pen.wait(waits.what, waits.reason, waits.until)
    return waits is not None


def settle(
    pen: Pen,
    call: ModelCall,
    usage: TokenUsage | None,
    cost: Decimal | None,
    *,
    priced: Decimal,
    rate: RateHint | None = None,
) -> None:
    """The call was answered: what it really took is booked, the rest is given back. `priced`: what is known of a cost
    that is not known as a whole; `rate`: what the provider said of its limits.
    """
    budgets.settle(pen, call, usage, cost, priced=priced)
    pen.last(lambda: quotas.settle(pen, call, usage, rate), pool=call.pool_id or 0)


def failed(pen: Pen, call: ModelCall, error: ProviderError, *, maybe_billed: bool) -> None:
    """The call failed, and the pool learns how."""
    budgets.give_back(pen, call, assumed=maybe_billed)
    pen.last(lambda: quotas.failed(pen, call, error), pool=call.pool_id or 0)


def dropped(pen: Pen, call: ModelCall) -> None:
    """The call was given up, or its worker died: nobody knows what it took."""
    budgets.give_back(pen, call, assumed=True)
    pen.last(lambda: quotas.dropped(pen, call), pool=call.pool_id or 0)
