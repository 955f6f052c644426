"""How long it takes until a person takes an alert up. Pure.

Counted from the moment at which it opened (or opened again) to the first time that a person acknowledged it, or
resolved it without that. What ended by itself before anybody did is not counted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

DEFINITION = (
    "From the moment an alert opened, or opened again, until a person first acknowledged or resolved it. "
    "What ended by itself before that is not counted."
)


@dataclass(frozen=True, slots=True)
class Times:
    """In seconds. None when nothing was taken up."""

    count: int = 0
    median_s: float | None = None
    p90_s: float | None = None


def summed_up(seconds: Sequence[float]) -> Times:
    """Quantiles by the nearest rank: each is a time that was really taken."""
    if not seconds:
        return Times()
    inorder = sorted(seconds)
    return Times(len(inorder), _rank(inorder, 0.5), _rank(inorder, 0.9))


def _rank(inorder: Sequence[float], share: float) -> float:
    return inorder[max(0, math.ceil(share * len(inorder)) - 1)]
