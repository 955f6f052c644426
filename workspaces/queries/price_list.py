"""The maintained list of model prices (genai-prices): what it says of one model. Never fetches anything.

The list gives one price a unit, or steps of it: a prompt above a step's start pays the step's price for all of its
tokens, and of its output. Which step a call pays is asked of the list itself, with the call's own prompt.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import cache, lru_cache
from importlib.metadata import PackageNotFoundError, version

from genai_prices import Usage
from genai_prices.data_snapshot import get_snapshot
from genai_prices.types import ModelInfo, ModelPrice, StartDateConstraint, TieredPrices
from genai_prices.types import Provider as Vendor

from workspaces.domain.prices import SOURCE_CHARS, Unit, UnitPrice

logger = logging.getLogger(__name__)

_VENDORS = {"openai": "openai", "anthropic": "anthropic"}  # where a profile names no address
_BITS = 1_000  # tokens of a unit that are priced beside the prompt, to read their price off


@dataclass(frozen=True, slots=True)
class Age:
    """`release`: of the package. `newest`: the latest date from which one of its prices counts."""

    release: str
    newest: date | None


def listed(
    provider: str,
    base_url: str,
    model: str,
    *,
    prompt_tokens: int,
    at: datetime,
    kept_for_an_hour: Decimal = Decimal(0),
    by_name: bool = True,
) -> dict[Unit, UnitPrice]:
    """Prices of one token each, and of a request if that costs, for a call with such a prompt. Empty: not in the list.

    By the address that is asked; an address that the list does not know is priced by the model's name alone, or
    without `by_name` not at all.
    `kept_for_an_hour`: the share of what is written to the cache that stays there for so long, which some charge more.
    """
    found = _find(provider, base_url, model)
    if found is None:
        return {}
    vendor, info, named_only = found
    if named_only and not by_name:
        return {}
    minute = at.astimezone(UTC).replace(second=0, microsecond=0)  # some prices depend on the time of day
    steps = _steps(info.get_prices(minute))
    prompt = max(1, prompt_tokens) if steps else 1
    said = f"genai-prices {age().release}: {vendor.id}/{info.id}{' (by name)' if named_only else ''}"[:SOURCE_CHARS]
    found_prices, long_write = _read_off(vendor.id, info.id, model, prompt, minute)
    table = {unit: UnitPrice(usd, said) for unit, usd in found_prices.items()}
    if kept_for_an_hour and table:
        write = table[Unit.CACHE_WRITE].usd
        table[Unit.CACHE_WRITE] = UnitPrice(write + (long_write - write) * kept_for_an_hour, said)
    return table


def prompts_of(provider: str, base_url: str, model: str, *, at: datetime, most_tokens: int) -> Iterator[int]:
    """One prompt for each price that a prompt of up to `most_tokens` may meet."""
    yield 1
    found = _find(provider, base_url, model)
    if found is not None:
        for start in _steps(found[1].get_prices(at)):
            if start < most_tokens:
                yield start + 1


@cache
def age() -> Age:
    try:
        release = version("genai-prices")
    except PackageNotFoundError:
        release = "?"
    today = datetime.now(UTC).date()
    starts = [start for vendor in get_snapshot().providers for info in vendor.models for start in _starts(info)]
    return Age(release, max((start for start in starts if start <= today), default=None))


def _starts(info: ModelInfo) -> Iterator[date]:
    if not isinstance(info.prices, ModelPrice):
        for price in info.prices:
            if isinstance(price.constraint, StartDateConstraint):
                yield price.constraint.start_date


@lru_cache(maxsize=512)
def _find(provider: str, base_url: str, model: str) -> tuple[Vendor, ModelInfo, bool] | None:
    snapshot = get_snapshot()
    if base_url:
        try:
            vendor, info = snapshot.find_provider_model(model, None, None, base_url)
        except LookupError:
            pass
        else:
            return vendor, info, False
    elif provider in _VENDORS:
        try:
            vendor, info = snapshot.find_provider_model(model, None, _VENDORS[provider], None)
        except LookupError:
            pass
        else:
            return vendor, info, False
    try:
        vendor, info = snapshot.find_provider_model(model, None, None, None)
    except LookupError:
        return None
    return vendor, info, True


def _steps(prices: ModelPrice) -> list[int]:
    """Where prompts begin to cost something else, in tokens."""
    tiered = [price for price in vars(prices).values() if isinstance(price, TieredPrices)]
    return sorted({tier.start for price in tiered for tier in price.tiers})


@lru_cache(maxsize=1024)
def _read_off(
    vendor_id: str, info_id: str, model: str, prompt: int, minute: datetime
) -> tuple[dict[Unit, Decimal], Decimal]:
    """Each unit's price, from calls that differ in that unit only; and of a cache write that stays for an hour.

    Empty where the list contradicts itself.
    """
    vendor = next(each for each in get_snapshot().providers if each.id == vendor_id)
    info = next((each for each in vendor.models if each.id == info_id), None)
    if info is None:
        info = get_snapshot().find_provider_model(model, vendor, None, None)[1]

    def cost(usage: Usage) -> tuple[Decimal, Decimal, Decimal]:
        made = info.calc_price(usage, vendor, genai_request_timestamp=minute)
        return made.input_price, made.output_price, made.total_price - made.input_price - made.output_price

    try:
        fresh, _, request = cost(Usage(input_tokens=prompt))
        long = cost(Usage(input_tokens=prompt, cache_write_tokens=prompt, cache_write_1h_tokens=prompt))[0] / prompt
        prices = {
            Unit.INPUT: fresh / prompt,
            Unit.CACHED_INPUT: cost(Usage(input_tokens=prompt, cache_read_tokens=prompt))[0] / prompt,
            Unit.CACHE_WRITE: cost(Usage(input_tokens=prompt, cache_write_tokens=prompt))[0] / prompt,
            Unit.OUTPUT: cost(Usage(input_tokens=prompt, output_tokens=_BITS))[1] / _BITS,
            Unit.REASONING: cost(Usage(input_tokens=prompt, output_tokens=_BITS, output_reasoning_tokens=_BITS))[1]
            / _BITS,
        }
    except (LookupError, ValueError, TypeError, ArithmeticError) as error:
        logger.warning("the price list says nothing usable of %s at %s: %s", info_id, vendor_id, error)
        return {}, Decimal(0)
    return prices | ({Unit.REQUESTS: request} if request else {}), long
