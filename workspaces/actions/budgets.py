"""Budgets: what is set aside before a call, and what was spent. See actions/admission.py."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING

from workspaces.models import ModelCall, Task
from workspaces.providers.base import TokenUsage

from .pen import Pen

if TYPE_CHECKING:
    from .admission import Waits, Wish


def binding(task: Task, wish: Wish, *, now: datetime) -> tuple[Decimal | None, tuple[int, ...]]:
    """At most what the call will cost (None: unknown), and the accounts of the budgets above the task."""
    return None, ()


def reserve(pen: Pen, call: ModelCall) -> bool:
    """Whether every account has room; what the call says is then reserved in each."""
    return True


def short_of(pen: Pen, wish: Wish) -> Waits | None:
    """Which budgets have no room for it; None: all have."""
    return None


def settle(pen: Pen, call: ModelCall, usage: TokenUsage | None, cost: Decimal | None) -> None:
    """What was reserved is given back, what was spent is booked."""


def give_back(pen: Pen, call: ModelCall, *, assumed: bool) -> None:
    """Nothing was told of what it cost. `assumed`: it may be billed, so the reservation stays booked as assumed."""
