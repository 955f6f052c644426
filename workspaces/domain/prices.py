"""What a quantity costs: units, a site's own prices, and the arithmetic of money. Knows no price list.

Money is exact until a record is made; a record's cost has nine places. A price that nobody knows is None, never zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import ROUND_UP, Decimal
from enum import StrEnum
from fnmatch import fnmatchcase

NANO = Decimal("0.000000001")
PRICE_PLACES = Decimal("0.000000000000001")
MTOK = Decimal(1_000_000)
HOUR_S = Decimal(3600)
MONTH_HOURS = Decimal(730)  # a year's hours by twelve
SANDBOX, STORAGE = "sandbox", "storage"  # what is priced beside models
UNKNOWN = "unknown"
SOURCE_CHARS = 120


class Unit(StrEnum):
    """Disjoint: the token units of a call add up to what its provider counted."""

    INPUT = "input_tokens"
    CACHED_INPUT = "cached_input_tokens"
    CACHE_WRITE = "cache_write_tokens"
    OUTPUT = "output_tokens"  # without reasoning
    REASONING = "reasoning_tokens"
    REQUESTS = "requests"  # only where the price list asks for something by request
    CPU = "cpu_seconds"
    MEMORY = "memory_gib_seconds"
    STORAGE = "storage_gib_hours"

    @property
    def is_token(self) -> bool:
        return self in TOKEN_UNITS


TOKEN_UNITS = (Unit.INPUT, Unit.CACHED_INPUT, Unit.CACHE_WRITE, Unit.OUTPUT, Unit.REASONING)
# what a unit costs whose own price the site has not set, while it has set the other's
_KIN = {Unit.CACHED_INPUT: Unit.INPUT, Unit.CACHE_WRITE: Unit.INPUT, Unit.REASONING: Unit.OUTPUT}
# of how many units a price is given, and in what words
GIVEN_FOR: dict[Unit, tuple[Decimal, str]] = {
    **dict.fromkeys(TOKEN_UNITS, (MTOK, "million tokens")),
    Unit.CPU: (HOUR_S, "CPU hour"),
    Unit.MEMORY: (HOUR_S, "GiB of memory for an hour"),
    Unit.STORAGE: (MONTH_HOURS, "GiB for a month"),
}
UNITS_OF = {SANDBOX: (Unit.CPU, Unit.MEMORY), STORAGE: (Unit.STORAGE,)}


@dataclass(frozen=True, slots=True)
class UnitPrice:
    """USD of one unit, exact, and where the figure is from."""

    usd: Decimal
    source: str


PriceTable = Mapping[Unit, UnitPrice]  # a unit that is not in it has no known price


@dataclass(frozen=True, slots=True)
class OwnPrice:
    """One that the site has set. `usd` is for what GIVEN_FOR says; None: no longer the site's."""

    number: int
    subject: str  # glob of model names, or SANDBOX, or STORAGE
    unit: Unit
    usd: Decimal | None
    valid_from: datetime

    @property
    def of_one(self) -> UnitPrice | None:
        if self.usd is None:
            return None
        source = f"site price {self.number}: {self.subject}"
        return UnitPrice(self.usd / GIVEN_FOR[self.unit][0], source[:SOURCE_CHARS])


@dataclass(frozen=True, slots=True)
class PricedUnit:
    """A quantity with its price, as it is booked. `cost_usd` and `unit_price_usd` None: the price is unknown."""

    unit: Unit
    quantity: Decimal
    unit_price_usd: Decimal | None
    cost_usd: Decimal | None
    source: str


@dataclass(frozen=True, slots=True)
class Most:
    """What a call can cost at most: USD of one token of its prompt, of its output, and by request."""

    input_usd: Decimal
    output_usd: Decimal
    request_usd: Decimal = Decimal(0)

    def of(self, *, input_tokens: int, output_tokens: int) -> Decimal:
        """Never less than what a call of so many tokens is charged: each of its records may be rounded up."""
        exact = self.input_usd * input_tokens + self.output_usd * output_tokens + self.request_usd
        return exact.quantize(NANO, rounding=ROUND_UP) + NANO * (len(TOKEN_UNITS) + 1)


def in_force(prices: Iterable[OwnPrice], at: datetime) -> list[OwnPrice]:
    """Of each subject and unit the newest that is valid; of two from the same moment the later one."""
    newest: dict[tuple[str, Unit], OwnPrice] = {}
    for price in prices:
        known = newest.get((price.subject, price.unit))
        if price.valid_from <= at and (
            known is None or (price.valid_from, price.number) > (known.valid_from, known.number)
        ):
            newest[price.subject, price.unit] = price
    return sorted(newest.values(), key=lambda price: (price.subject, price.unit))


def own_table(prices: Iterable[OwnPrice], subject: str) -> dict[Unit, UnitPrice]:
    """What the site asks for `subject` (a model's name, SANDBOX, STORAGE), of prices that are in force.

    Of several globs that match, the exact name counts before the one with most letters of its own. Cached and
    cache-write tokens cost what input does, and reasoning what output does, unless they have a price of their own.
    """
    best: dict[Unit, tuple[tuple[bool, int], UnitPrice]] = {}
    for price in prices:
        found = price.of_one
        if found is None or not _matches(price, subject):
            continue
        rank = (price.subject.lower() == subject.lower(), sum(char not in "*?[]!" for char in price.subject))
        if price.unit not in best or rank > best[price.unit][0]:
            best[price.unit] = (rank, found)
    table = {unit: price for unit, (_, price) in best.items()}
    for unit, kin in _KIN.items():
        if unit not in table and kin in table:
            table[unit] = table[kin]
    return table


def _matches(price: OwnPrice, subject: str) -> bool:
    if price.subject in UNITS_OF or subject in UNITS_OF:
        return price.subject == subject and price.unit in UNITS_OF[subject]
    return price.unit in TOKEN_UNITS and fnmatchcase(subject.lower(), price.subject.lower())


def profile_table(input_usd_per_mtok: Decimal, output_usd_per_mtok: Decimal, source: str) -> dict[Unit, UnitPrice]:
    """A profile's own two prices: the first for all of the prompt, the second for all of the output."""
    inputs = dict.fromkeys(TOKEN_UNITS[:3], UnitPrice(input_usd_per_mtok / MTOK, source[:SOURCE_CHARS]))
    return inputs | dict.fromkeys(TOKEN_UNITS[3:], UnitPrice(output_usd_per_mtok / MTOK, source[:SOURCE_CHARS]))


def not_below(said: PriceTable, least: PriceTable) -> dict[Unit, UnitPrice]:
    """Of each unit the dearer of both."""
    both = dict(said)
    for unit, price in least.items():
        if unit not in both or both[unit].usd < price.usd:
            both[unit] = price
    return both


def priced(quantities: Mapping[Unit, Decimal | int], table: PriceTable) -> list[PricedUnit]:
    """One row a unit that occurred, each priced once."""
    rows = []
    for unit, amount in quantities.items():
        quantity = Decimal(amount)
        if not quantity:
            continue
        price = table.get(unit)
        if price is None:
            rows.append(PricedUnit(unit, quantity, None, None, UNKNOWN))
        else:
            cost = (price.usd * quantity).quantize(NANO)
            rows.append(PricedUnit(unit, quantity, price.usd.quantize(PRICE_PLACES), cost, price.source))
    return rows


def token_quantities(
    *, input_tokens: int, cached_input_tokens: int, cache_write_tokens: int, output_tokens: int, reasoning_tokens: int
) -> dict[Unit, int]:
    """A call's tokens, disjoint: `output_tokens` comes with the reasoning in it and leaves without."""
    reasoning = min(reasoning_tokens, output_tokens)
    return {
        Unit.INPUT: input_tokens,
        Unit.CACHED_INPUT: cached_input_tokens,
        Unit.CACHE_WRITE: cache_write_tokens,
        Unit.OUTPUT: output_tokens - reasoning,
        Unit.REASONING: reasoning,
    }


def total(rows: Iterable[PricedUnit]) -> Decimal | None:
    """None where the price of a part is unknown."""
    sum_usd = Decimal(0)
    for row in rows:
        if row.cost_usd is None:
            return None
        sum_usd += row.cost_usd
    return sum_usd
