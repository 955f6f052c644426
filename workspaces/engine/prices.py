"""What a model call costs: the profile's own prices, else the maintained price list, else unknown."""

from __future__ import annotations

from decimal import Decimal
from functools import lru_cache

from genai_prices import Usage, calc_price

from workspaces.actions.model_calls import PricedUnit
from workspaces.models import ProfileVersion
from workspaces.providers.base import TokenUsage

MTOK = Decimal(1_000_000)
NANO = Decimal("0.000000001")


def priced(version: ProfileVersion, model: str, usage: TokenUsage | None) -> list[PricedUnit]:
    """One row a kind of token that occurred, each priced once. No rows when the provider told no usage."""
    if usage is None:
        return []
    counts = {
        "input_tokens": usage.input_tokens,
        "cached_input_tokens": usage.cached_input_tokens,
        "cache_write_tokens": usage.cache_write_tokens,
        "output_tokens": usage.output_tokens,
    }
    per_mtok, source = _prices(version, model)
    rows = []
    for unit, quantity in counts.items():
        if quantity:
            price = per_mtok.get(unit)
            cost = (price * quantity / MTOK).quantize(NANO) if price is not None else None
            rows.append(PricedUnit(unit, quantity, cost, source))
    return rows or [PricedUnit("output_tokens", 0, Decimal(0), source)]


def _prices(version: ProfileVersion, model: str) -> tuple[dict[str, Decimal], str]:
    """USD for a million tokens of each unit, and where the figures are from."""
    given, out = version.input_usd_per_mtok, version.output_usd_per_mtok
    if given is not None and out is not None:
        inputs = dict.fromkeys(("input_tokens", "cached_input_tokens", "cache_write_tokens"), given)
        return {**inputs, "output_tokens": out}, f"profile {version}"
    if version.provider == ProfileVersion.Provider.SCRIPTED:
        return {}, "unknown"
    return _listed(model), "genai-prices"


@lru_cache(maxsize=256)
def _listed(model: str) -> dict[str, Decimal]:
    found: dict[str, Decimal] = {}
    one_of_each = {
        "input_tokens": Usage(input_tokens=1_000),
        "cached_input_tokens": Usage(input_tokens=1_000, cache_read_tokens=1_000),
        "cache_write_tokens": Usage(input_tokens=1_000, cache_write_tokens=1_000),
        "output_tokens": Usage(output_tokens=1_000),
    }
    for unit, usage in one_of_each.items():
        try:
            # a small call, so that no long-context price applies
            found[unit] = Decimal(calc_price(usage, model_ref=model).total_price) * 1_000
        except LookupError:
            return {}
    return found
