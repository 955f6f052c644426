"""What we recorded beside what the provider counted, per day and model, with what can explain a difference. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any

from .provider_exports import model_key

SAME_USD = Decimal("0.005")  # providers bill by the cent


@dataclass(frozen=True, slots=True)
class Counted:
    """One side. `input_tokens` is the whole prompt, cached or not. None: that side does not say."""

    day: date
    model: str
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: Decimal | None = None


@dataclass(frozen=True, slots=True)
class Gaps:
    """Of our own calls on a day of a model: those that left no full record."""

    day: date
    model: str
    without_usage: int = 0  # answered, and nobody said what it took
    lost: int = 0  # dropped or timed out: the provider may have counted what never reached us
    unpriced: int = 0  # records without a price


@dataclass(frozen=True, slots=True)
class Difference:
    """`ours` or `theirs` None: that side has nothing of this model on this day."""

    day: date
    model: str
    ours: Counted | None
    theirs: Counted | None
    why: str

    @property
    def input_tokens(self) -> int | None:
        return _gap(self, "input_tokens")

    @property
    def output_tokens(self) -> int | None:
        return _gap(self, "output_tokens")

    @property
    def cost_usd(self) -> Decimal | None:
        """Ours less theirs, USD."""
        return _gap(self, "cost_usd")

    @property
    def agrees(self) -> bool:
        return (
            not (self.input_tokens or 0)
            and not (self.output_tokens or 0)
            and abs(self.cost_usd or Decimal(0)) < SAME_USD
        )


def differences(
    ours: Iterable[Counted], theirs: Iterable[Counted], gaps: Iterable[Gaps], *, whole_days: bool = False
) -> list[Difference]:
    """By day and model. `whole_days`: the provider does not name models, so neither side is split by them."""
    mine, other = _summed(ours, whole_days), _summed(theirs, whole_days)
    missed: dict[tuple[date, str], list[Gaps]] = {}
    for gap in gaps:
        missed.setdefault((gap.day, "" if whole_days else model_key(gap.model)), []).append(gap)
    found = []
    for key in sorted(mine.keys() | other.keys()):
        left, right = mine.get(key), other.get(key)
        pair = Difference(key[0], (right or left or _NOTHING).model, left, right, "")
        found.append(Difference(pair.day, pair.model, left, right, _why(pair, missed.get(key, []))))
    return found


_NOTHING = Counted(date.min, "")


def _summed(rows: Iterable[Counted], whole_days: bool) -> dict[tuple[date, str], Counted]:
    found: dict[tuple[date, str], Counted] = {}
    for row in rows:
        key = row.day, "" if whole_days else model_key(row.model)
        known = found.get(key)
        name = "every model" if whole_days else row.model
        found[key] = Counted(
            row.day,
            known.model if known else name,
            _plus(known.input_tokens if known else None, row.input_tokens),
            _plus(known.output_tokens if known else None, row.output_tokens),
            _plus(known.cost_usd if known else None, row.cost_usd),
        )
    return found


def _plus(left: Any, right: Any) -> Any:
    if left is None or right is None:
        return right if left is None else left
    return left + right


def _gap(pair: Difference, name: str) -> Any:
    """Ours less theirs; None where one side does not say. A side that has no row at all counts as zero."""
    left = getattr(pair.ours, name) if pair.ours else 0
    right = getattr(pair.theirs, name) if pair.theirs else 0
    return None if left is None or right is None else left - right


def _why(pair: Difference, gaps: list[Gaps]) -> str:
    if pair.agrees:
        return "agrees"
    told = []
    less = (pair.input_tokens or 0) < 0 or (pair.output_tokens or 0) < 0 or (pair.cost_usd or 0) < 0
    if lost := sum(gap.lost for gap in gaps):
        told.append(f"{_calls(lost)} of ours never answered: the provider may have counted what did not reach us")
    if silent := sum(gap.without_usage for gap in gaps):
        told.append(f"{_calls(silent)} of ours answered without saying what they took")
    if unpriced := sum(gap.unpriced for gap in gaps):
        told.append(f"{unpriced:,} record{'' if unpriced == 1 else 's'} of ours have no price")
    if pair.ours is None:
        told.append("nothing of this model was recorded here on that day: was the key used elsewhere?")
    elif pair.theirs is None:
        told.append("the export has nothing of this model on that day: another key, or another account?")
    elif not told:
        told.append(
            "nothing recorded here explains it: was the key used elsewhere?"
            if less
            else "nothing recorded here explains it: is the export complete, and for this account?"
        )
    return "; ".join(told)


def _calls(count: int) -> str:
    return f"{count:,} call{'' if count == 1 else 's'}"
