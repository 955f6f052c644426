"""Quota pools: the one place that decides whether a model call may be made now. See actions/admission.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from workspaces.models import ModelCall, ProfileVersion, QuotaPool
from workspaces.providers.base import ProviderError, TokenUsage

from .clock import database_now
from .pen import Pen

if TYPE_CHECKING:
    from .admission import Waits, Wish


def pool_of(version: ProfileVersion, model: str) -> int:
    """The pool's id; it is made at its first use."""
    where = {"provider": version.provider, "base_url": version.base_url, "account": version.account}
    found = QuotaPool.objects.filter(**where, group=model, retired_at=None).values_list("pk", flat=True).first()
    if found is not None:
        return found
    made, _ = QuotaPool.objects.get_or_create(
        **where,
        group=model,
        retired_at=None,
        defaults={"name": f"{model} at {version.base_url or version.provider}", "created_at": database_now()},
    )
    return made.pk


def lease(pen: Pen, call: ModelCall, wish: Wish) -> bool:
    """Whether the pool has room now, and nobody stands before the task; what the call says is then held for it."""
    return True


def queue(pen: Pen, wish: Wish) -> Waits | None:
    """Take a place in the queue. None: it was the task's turn at once."""
    return None


def settle(pen: Pen, call: ModelCall, usage: TokenUsage | None) -> None:
    """What was held is given back, what was taken is booked, and who is next is granted."""


def failed(pen: Pen, call: ModelCall, error: ProviderError) -> None:
    """The same, and the pool learns from the failure: when to ask again, and whether at all."""


def dropped(pen: Pen, call: ModelCall) -> None:
    """The same for a call of which nobody knows what it took."""
