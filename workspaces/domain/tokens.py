"""How many tokens a provider will count for what was estimated, learned from what it counted before. Pure.

The raw estimate of a text (domain/context.estimate_tokens) is the same for every model. What a model's tokenizer makes
of it, and what a provider adds to each request (its chat template, its form of the tools), is learned from pairs of
(estimated, counted) of newest calls: a line through them, or where they do not tell one from another, a ratio.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

SAMPLES = 20  # newest calls of a model that are looked at
ENDPOINT_CHARS = 420
_FEWEST = 3
_FEWEST_FOR_LINE = 6
_SPREAD_FOR_LINE = 1.5  # the largest request over the smallest: below it a slope is noise
_FACTORS = (0.3, 4.0)  # tokenizers known to us lie between 0.7 (English) and 2.5 (other scripts) of the raw estimate
_SMALLEST = 50  # a request that is smaller says more about the template than about the tokenizer


@dataclass(frozen=True, slots=True)
class Calibration:
    """counted ≈ factor × estimated + offset. `samples` 0: nothing is known of the model, the raw estimate stands."""

    factor: float = 1.0
    offset: int = 0
    samples: int = 0

    def tokens(self, estimated: int) -> int:
        """What the provider is expected to count."""
        return max(0, math.ceil(self.factor * estimated + self.offset)) if estimated else 0

    def as_json(self) -> dict[str, Any]:
        return {"factor": self.factor, "offset": self.offset, "samples": self.samples}

    @classmethod
    def from_json(cls, stored: Any) -> Calibration:
        """What a manifest says; one of before there was any has none."""
        if not isinstance(stored, dict):
            return cls()
        return cls(float(stored["factor"]), int(stored["offset"]), int(stored["samples"]))


UNKNOWN = Calibration()


def calibrate(pairs: Sequence[tuple[int, int]]) -> Calibration:
    """From (estimated, counted) of past calls, in any order. One call in three may be wild without moving it much.

    The slope is the median of those between pairs of calls (Theil 1950, Sen 1968), the ratio a median as well.
    Rounded to what is stored, so that a manifest says exactly what was reckoned with.
    """
    usable = [(x, y) for x, y in pairs if x >= _SMALLEST and y > 0][:SAMPLES]
    if len(usable) < _FEWEST:
        return UNKNOWN
    ratio = _bounded(median(y / x for x, y in usable))
    by_ratio = Calibration(round(ratio, 4), 0, len(usable))
    line = _line(usable)
    if line is None or _error(line, usable) >= _error(by_ratio, usable):
        return by_ratio
    return line


def _line(pairs: Sequence[tuple[int, int]]) -> Calibration | None:
    smallest, largest = min(x for x, _ in pairs), max(x for x, _ in pairs)
    if len(pairs) < _FEWEST_FOR_LINE or largest < smallest * _SPREAD_FOR_LINE:
        return None
    slopes = [
        (b[1] - a[1]) / (b[0] - a[0]) for place, a in enumerate(pairs) for b in pairs[place + 1 :] if b[0] != a[0]
    ]
    slope = _bounded(median(slopes))
    offset = median(y - slope * x for x, y in pairs)
    return Calibration(round(slope, 4), round(offset), len(pairs))


def _error(calibration: Calibration, pairs: Sequence[tuple[int, int]]) -> float:
    return median(abs(calibration.tokens(x) - y) / y for x, y in pairs)


def _bounded(factor: float) -> float:
    return min(max(factor, _FACTORS[0]), _FACTORS[1])


def error_percent(expected: int, counted: int) -> float:
    """By how much an expectation was too high (+) or too low (-), in percent of what was counted."""
    return round(100 * (expected - counted) / counted, 1) if counted else 0.0


def endpoint_of(provider: str, base_url: str, version_id: int, model: str) -> str:
    """Who counts what: calls with the same text here are counted alike. A script counts as its author likes."""
    if provider == "scripted":
        return f"scripted {version_id} {model}"[:ENDPOINT_CHARS]
    host = base_url.partition("://")[2].partition("/")[0].rpartition("@")[2].lower()
    return " ".join(part for part in (provider, host[:200], model) if part)[:ENDPOINT_CHARS]
