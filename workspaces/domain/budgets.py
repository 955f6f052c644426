"""What a budget allows: its periods, what room is left, what a reservation is, which threshold is passed. Pure.

A budget holds, in each period, what was spent, what is assumed to be spent (of calls whose answer never came) and what
is reserved for what runs now. Something may begin only where the three and what it is expected to take stay within the
limit. While it runs, the most that it may take is reserved: so the only estimate that can be missed is that of the last
one that was let in, and a limit is passed by what that one took more than expected, however many run at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from math import ceil
from typing import Any

from workspaces.domain.states import BudgetPeriod

ZERO = Decimal(0)


@dataclass(frozen=True, slots=True)
class Span:
    """A period of a budget. `ends_at` None: it does not end by itself."""

    key: str
    starts_at: datetime
    ends_at: datetime | None

    def holds(self, at: datetime) -> bool:
        return self.starts_at <= at and (self.ends_at is None or at < self.ends_at)


def span_of(period: BudgetPeriod, at: datetime, *, since: datetime, origin: tuple[int, datetime] | None) -> Span | None:
    """The period that `at` falls into. None: the budget counts each task by itself, and there is no task.

    `since`: when the budget was set, from which a total counts. `origin`: the task, or the first one of the forks that
    it is of, and when that was made: a fork draws on what its origin has left.
    """
    at = at.astimezone(UTC)
    day = at.replace(hour=0, minute=0, second=0, microsecond=0)
    match period:
        case BudgetPeriod.DAY:
            return Span(f"{day:%Y-%m-%d}", day, day + timedelta(days=1))
        case BudgetPeriod.MONTH:
            first = day.replace(day=1)
            return Span(f"{first:%Y-%m}", first, (first + timedelta(days=32)).replace(day=1))
        case BudgetPeriod.TOTAL:
            return Span("total", since, None)
        case BudgetPeriod.TASK:
            return Span(f"task:{origin[0]}", origin[1], None) if origin else None


@dataclass(frozen=True, slots=True)
class Amount:
    """USD and tokens. `usd` None: nobody knows the price."""

    usd: Decimal | None
    tokens: int

    @property
    def known_usd(self) -> Decimal:
        return self.usd or ZERO


NOTHING = Amount(ZERO, 0)

# How much more than its estimate a prompt may have, while it runs beside others. The output has its limit, which a
# provider keeps; tokens of a prompt are estimated, and from a model's second call on by what was counted before.
PROMPT_MARGIN = Decimal("1.5")


@dataclass(frozen=True, slots=True)
class Need:
    """What something is expected to take, for which there has to be room, and what is held for it while it runs."""

    expected: Amount
    held: Amount

    def beside(self, usd: Decimal) -> Need:
        """There has to be room for `usd` more; it is held by something else, once it is."""
        if self.expected.usd is None or not usd:
            return self
        return replace(self, expected=replace(self.expected, usd=self.expected.usd + usd))


def need_of_call(input_tokens: int, output_tokens: int, price: Callable[[int, int], Decimal | None]) -> Need:
    """`output_tokens`: the limit. `price`: of so many tokens in and out, at their dearest; None where it is unknown."""
    most_in = ceil(input_tokens * PROMPT_MARGIN)
    return Need(
        Amount(price(input_tokens, output_tokens), input_tokens + output_tokens),
        Amount(price(most_in, output_tokens), most_in + output_tokens),
    )


@dataclass(frozen=True, slots=True)
class Figures:
    """One account: the limits of its budget, and what stands against them."""

    limit_usd: Decimal | None
    limit_tokens: int | None
    spent: Amount = NOTHING
    assumed: Amount = NOTHING
    reserved: Amount = NOTHING

    @property
    def left_usd(self) -> Decimal | None:
        """May be below zero, where an estimate was too low or the limit was lowered."""
        if self.limit_usd is None:
            return None
        return self.limit_usd - self.spent.known_usd - self.assumed.known_usd - self.reserved.known_usd

    @property
    def left_tokens(self) -> int | None:
        if self.limit_tokens is None:
            return None
        return self.limit_tokens - self.spent.tokens - self.assumed.tokens - self.reserved.tokens

    def has_room(self, need: Amount) -> bool:
        """A price that nobody knows has no room in a budget of USD: it is never taken for nothing."""
        if self.left_usd is not None and (need.usd is None or need.usd > self.left_usd):
            return False
        return self.left_tokens is None or need.tokens <= self.left_tokens

    def could_have_room(self, need: Amount) -> bool:
        """Whether it would if nothing were reserved: then what runs may give back enough."""
        return replace(self, reserved=NOTHING).has_room(need)

    def ever_has_room(self, need: Amount) -> bool:
        """Whether the whole limit is enough."""
        return Figures(self.limit_usd, self.limit_tokens).has_room(need)

    @property
    def used_up(self) -> bool:
        """Nothing is left, whatever is asked for."""
        used = replace(self, reserved=NOTHING)
        return any(left is not None and left <= 0 for left in (used.left_usd, used.left_tokens))

    @property
    def percent(self) -> Decimal:
        """Of the limit that is closer, of what was spent and what is assumed to be. A limit of nothing is used up."""
        return max(
            _percent(self.spent.known_usd + self.assumed.known_usd, self.limit_usd),
            _percent(Decimal(self.spent.tokens + self.assumed.tokens), self.limit_tokens),
        )

    def as_json(self) -> dict[str, Any]:
        """The limits, and what counts against each."""
        said: dict[str, Any] = {}
        if self.limit_usd is not None:
            used = self.spent.known_usd + self.assumed.known_usd
            said |= {"limit_usd": f"{self.limit_usd:f}", "used_usd": f"{used:f}"}
        if self.limit_tokens is not None:
            said |= {"limit_tokens": self.limit_tokens, "used_tokens": self.spent.tokens + self.assumed.tokens}
        return said

    def reserve(self, held: Amount) -> Figures:
        return replace(self, reserved=_plus(self.reserved, held))

    def settle(self, held: Amount, outcome: Outcome) -> Figures:
        return replace(
            self,
            reserved=_plus(self.reserved, held, -1),
            spent=_plus(self.spent, outcome.spent),
            assumed=_plus(self.assumed, outcome.assumed),
        )


def _percent(used: Decimal, limit: Decimal | int | None) -> Decimal:
    if limit is None:
        return ZERO
    return used * 100 / limit if limit else Decimal(100)


def _plus(one: Amount, other: Amount, sign: int = 1) -> Amount:
    return Amount(one.known_usd + sign * other.known_usd, one.tokens + sign * other.tokens)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a reservation: what was spent, and what is assumed because nobody said."""

    spent: Amount
    assumed: Amount = NOTHING


GIVEN_BACK = Outcome(NOTHING)


def never_told(held: Amount) -> Outcome:
    """The answer never came and may be billed: what was reserved stays booked."""
    return Outcome(NOTHING, Amount(held.known_usd, held.tokens))


def replied(held: Amount, *, usd: Decimal, tokens: int | None, price_known: bool) -> Outcome:
    """`usd`: of the units with a price. A reply that told no tokens, or whose price is not known, is assumed to have
    been as dear as was reserved, in that respect.
    """
    spent = Amount(usd, tokens or 0)
    return Outcome(
        spent,
        Amount(
            ZERO if price_known else max(ZERO, held.known_usd - usd),
            0 if tokens is not None else held.tokens,
        ),
    )


def passed(alerts: Iterable[int], percent: Decimal, told: Iterable[int]) -> list[int]:
    """The thresholds (percent) that are reached and of which nothing was told yet, rising."""
    return sorted(each for each in set(alerts) - set(told) if each <= percent)


def first_with_room(waiting: Sequence[tuple[int, Need, Sequence[int]]], accounts: Mapping[int, Figures]) -> list[int]:
    """Which of those who wait may go on, in their order: (who, need, its accounts). Each takes its need along, so that
    no more are woken than there is room for.
    """
    left = dict(accounts)
    woken = []
    for who, need, of in waiting:
        mine = [account for account in of if account in left]
        if all(left[account].has_room(need.expected) for account in mine):
            for account in mine:
                left[account] = left[account].reserve(need.held)
            woken.append(who)
    return woken
