"""How a pool looks to a call that would join its queue now: an estimate, read without a lock. Decides nothing."""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import Count, Sum

from workspaces.domain.quotas import Limits, PoolState, Use
from workspaces.domain.retry_budget import CLOSED
from workspaces.domain.states import ClaimState
from workspaces.domain.waits import expected_wait_s
from workspaces.models import ProfileVersion, QuotaClaim, QuotaPool
from workspaces.queries.database import database_now
from workspaces.queries.profiles import fallback_of


@dataclass(frozen=True, slots=True)
class Outlook:
    expected_wait_s: float
    circuit_open: bool


def outlook(pool_id: int, task_id: int, use: Use) -> Outlook:
    """With everybody who waits before it."""
    pool = QuotaPool.objects.get(pk=pool_id)
    now = database_now()
    state = PoolState.from_json(pool.state)
    limits = Limits.binding(pool.limits, pool.learned)
    others = QuotaClaim.objects.filter(pool=pool, state=ClaimState.WAITING.value).exclude(task=task_id)
    waiting = others.aggregate(calls=Count("pk"), into=Sum("input_tokens"), out=Sum("output_tokens"))
    ahead = Use(
        use.requests + waiting["calls"],
        use.input_tokens + (waiting["into"] or 0),
        use.output_tokens + (waiting["out"] or 0),
    )
    expected_s = expected_wait_s(state, limits, ahead, now.timestamp())
    own = QuotaClaim.objects.filter(pool=pool, task=task_id).values_list("not_before", flat=True).first()
    if own is not None:
        expected_s = max(expected_s, (own - now).total_seconds())
    return Outlook(expected_s, state.circuit != CLOSED)


def fallback_now(version: ProfileVersion, pool_id: int, task_id: int, use: Use) -> tuple[ProfileVersion, str] | None:
    """Whose model is to answer in the place of the version's while its pool looks so, and why. None: nobody's."""
    found = fallback_of(version)
    if found is None:
        return None
    policy, other = found
    seen = outlook(pool_id, task_id, use)
    why = policy.why(expected_wait_s=seen.expected_wait_s, circuit_open=seen.circuit_open)
    return (other, why) if why else None
