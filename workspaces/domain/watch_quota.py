"""What is watched of quota pools: one that has no room, and one whose day will be used up before it ends. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from workspaces.domain.alert_watches import Trouble, Whom, duration
from workspaces.domain.alerts import AlertKind, Edge, Happening
from workspaces.domain.incidents import Severity


@dataclass(frozen=True, slots=True)
class PressedPool:
    """`waiting`: calls in its queue that may be made as soon as there is room; `oldest_s`: when the first of them came.

    `held_until_s`: until when the provider said to wait; `held_back`: its words. Times in seconds since 1970.
    """

    id: int
    name: str
    waiting: int
    oldest_s: float | None
    circuit_open: bool
    held_until_s: float | None
    held_back: str
    whom: frozenset[Whom] = frozenset()


CALMS_AT = 0.5  # of the threshold: a queue that moves, but slowly, neither begins nor ends at every call


def exhausted(
    pools: Iterable[PressedPool], *, seconds: float, since_s: float, active: Collection[str], now_s: float
) -> list[Trouble]:
    """A call has waited for room that long, or nothing will be sent for that long, or the circuit is open."""
    found = []
    for pool in pools:
        subject = f"pool:{pool.id}"
        bar = seconds * CALMS_AT if subject in active else seconds
        waited_s = now_s - max(pool.oldest_s, since_s) if pool.oldest_s is not None else 0.0
        held_s = max(0.0, pool.held_until_s - now_s) if pool.held_until_s is not None else 0.0
        held = held_s > 0 and (held_s >= bar or subject in active)
        if not (pool.circuit_open or held or (pool.waiting and waited_s >= bar)):
            continue
        parts = []
        if pool.circuit_open:
            parts.append("its circuit is open, for too many calls failed")
        elif held:
            reason = f" ({pool.held_back})" if pool.held_back else ""
            parts.append(f"nothing is sent to it for {duration(held_s)}{reason}")
        if pool.waiting:
            calls = "1 call waits" if pool.waiting == 1 else f"{pool.waiting:,} calls wait"
            parts.append(f"{calls}, the first for {duration(waited_s)}")
        happening = Happening(
            AlertKind.QUOTA_EXHAUSTED,
            Edge.BEGAN,
            subject,
            now_s,
            Severity.ERROR if pool.circuit_open else Severity.WARNING,
            words=f"The quota pool {pool.name} has no room: {'; '.join(parts)}.",
            detail="circuit" if pool.circuit_open else "held_back" if held else "full",
            cause=subject,
            pool=pool.id,
            data={"waiting": pool.waiting, "waited_s": round(waited_s)},
        )
        found.append(Trouble(happening, pool.whom))
    return found


@dataclass(frozen=True, slots=True)
class PoolDay:
    """`minutes`: tokens of whole minutes of today, newest first, none left out: at most the last thirty."""

    id: int
    name: str
    limit: int
    used: int  # today, with what calls in flight hold
    minutes: Sequence[int]
    whom: frozenset[Whom] = frozenset()


FEWEST_BUSY_MINUTES = 3
GOES_ON = 1.25  # what is predicted stays so until it is this much further off: the rate of a minute is not steady


def predicted(
    pools: Iterable[PoolDay], *, minutes: float, day_left_s: float, active: Collection[str], now_s: float
) -> list[Trouble]:
    """A day's tokens that would be used up before the day ends. What is used up already is `exhausted`'s."""
    found = []
    for pool in pools:
        left = pool.limit - pool.used
        rate = rate_of(pool.minutes)
        if left <= 0 or rate <= 0:
            continue
        left_s = left / rate * 60
        subject = f"pool-day:{pool.id}"
        within_s = minutes * 60 * (GOES_ON if subject in active else 1)
        if left_s > within_s or left_s >= day_left_s:
            continue
        words = (
            f"The quota pool {pool.name} will have used up its tokens of the day in about {duration(left_s)}:"
            f" {pool.used:,} of {pool.limit:,} are used or held, {rate:,.0f} a minute go. The next day begins in"
            f" {duration(day_left_s)} (00:00 UTC)."
        )
        data = {"used": pool.used, "limit": pool.limit, "per_minute": round(rate), "left_s": round(left_s)}
        happening = Happening(
            AlertKind.QUOTA_PREDICTED,
            Edge.BEGAN,
            subject,
            now_s,
            words=words,
            detail="tokens_per_day",
            cause=f"pool:{pool.id}",
            pool=pool.id,
            data=data,
        )
        found.append(Trouble(happening, pool.whom))
    return found


def rate_of(minutes: Sequence[int]) -> float:
    """Tokens a minute since the first one with any: the mean, or 0 where too few say anything. The newest first."""
    if sum(1 for tokens in minutes if tokens) < FEWEST_BUSY_MINUTES:
        return 0.0
    first = max(place for place, tokens in enumerate(minutes) if tokens)
    return sum(minutes) / (first + 1)
