"""The list of quota pools, with what each does now. As many queries for one pool as for a hundred.

Three more for each pool in which tasks of a member wait, whose place is then counted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.db.models import Count, Min, Q, Sum

from workspaces.domain.quota_meters import Meter, tightest
from workspaces.domain.states import Circuit, ClaimState
from workspaces.models import ProfileVersion, QuotaClaim, QuotaMinute, QuotaPool, User

from .access import visible_pools, visible_tasks
from .quota_line import places_of, seen_by
from .quota_state import Situation

LONG_WAIT = timedelta(minutes=5)
HOUR = timedelta(hours=1)
SOURCES = 2_000  # versions that are looked through, the newest


@dataclass(frozen=True, slots=True)
class Counts:
    """Claims of a pool by what they do."""

    leased: int = 0
    granted: int = 0
    waiting: int = 0
    oldest: datetime | None = None  # since when the longest wait has lasted

    @property
    def in_flight(self) -> int:
        return self.leased + self.granted


@dataclass(frozen=True, slots=True)
class PoolRow:
    """`own`: what the tasks that the user may see do; `position`: of the first of them in the queue."""

    pool: QuotaPool
    situation: Situation
    counts: Counts
    own: Counts = field(default_factory=Counts)
    position: int | None = None
    refusals: int = 0
    retries: int = 0

    @property
    def meters(self) -> list[Meter]:
        return self.situation.meters

    @property
    def tightest(self) -> Meter | None:
        return tightest(self.situation.meters)

    @property
    def known(self) -> list[Meter]:
        """The limits that somebody knows, and the calls at once."""
        return [meter for meter in self.situation.meters if meter.value is not None]

    @property
    def unknown(self) -> list[Meter]:
        """What is counted although nobody knows a limit."""
        return [meter for meter in self.situation.meters if meter.value is None and meter.used]

    def need(self) -> tuple[int, float, str]:
        """The order of the list: what needs a person first."""
        circuit = Circuit(self.pool.circuit)
        now = self.situation.now
        waited = (now - self.counts.oldest).total_seconds() if self.counts.oldest else 0.0
        if self.pool.retired_at is not None:
            rank = 9
        elif circuit is Circuit.OPEN:
            rank = 0
        elif circuit is Circuit.HALF_OPEN or self.situation.blocked:
            rank = 1
        elif waited > LONG_WAIT.total_seconds():
            rank = 2
        elif self.counts.waiting:
            rank = 3
        elif self.counts.in_flight:
            rank = 4
        else:
            rank = 5
        return rank, -waited, self.pool.name.lower()

    @property
    def urgent(self) -> bool:
        return self.need()[0] <= 2


def pools_for(user: User, now: datetime, only: Iterable[int] | None = None) -> list[PoolRow]:
    """Those that the user may know of, in the order of need. `only`: of these ids (in the same order)."""
    pools = visible_pools(user).filter(retired_at=None)
    if only is not None:
        pools = pools.filter(pk__in=list(only))
    found = list(pools)
    ids = [pool.pk for pool in found]
    counts = counts_of(ids)
    own = counts if user.is_staff else counts_of(ids, user)
    hour = {
        pool: (refusals, retries)
        for pool, refusals, retries in QuotaMinute.objects.filter(pool__in=ids, minute__gt=now - HOUR)
        .order_by()
        .values_list("pool")
        .annotate(refusals=Sum("refusals"), retries=Sum("retries"))
    }
    rows = []
    for pool in found:
        situation = Situation.of(pool, now)
        mine = own.get(pool.pk, Counts())
        refusals, retries = hour.get(pool.pk, (0, 0))
        rows.append(
            PoolRow(
                pool,
                situation,
                counts.get(pool.pk, Counts()),
                mine,
                _first_place(situation, user) if mine.waiting and not user.is_staff else None,
                refusals,
                retries,
            )
        )
    return sorted(rows, key=PoolRow.need)


def counts_of(ids: Iterable[int], user: User | None = None) -> dict[int, Counts]:
    """By pool; `user`: only of the tasks that they may see."""
    claims = QuotaClaim.objects.filter(pool__in=list(ids)).exclude(state=ClaimState.IDLE.value)
    if user is not None:
        claims = claims.filter(task__in=visible_tasks(user))
    waiting = Q(state=ClaimState.WAITING.value)
    grouped = (
        claims.order_by()
        .values("pool")
        .annotate(
            leased=Count("pk", filter=Q(state=ClaimState.LEASED.value)),
            granted=Count("pk", filter=Q(state=ClaimState.GRANTED.value)),
            waiting=Count("pk", filter=waiting),
            oldest=Min("queued_at", filter=waiting),
        )
    )
    return {row["pool"]: Counts(row["leased"], row["granted"], row["waiting"], row["oldest"]) for row in grouped}


def _first_place(situation: Situation, user: User) -> int | None:
    return next((place.number for place in seen_by(user, places_of(situation))), None)


def waits_by_pool(user: User) -> list[tuple[QuotaPool, int]]:
    """How many of the tasks that the user may see wait in each pool's queue; the most first."""
    grouped = (
        QuotaClaim.objects.filter(task__in=visible_tasks(user), state=ClaimState.WAITING.value, task__status="waiting")
        .order_by()
        .values_list("pool")
        .annotate(waiting=Count("pk"))
        .order_by("-waiting", "pool")
    )
    counted = dict(grouped)
    pools = QuotaPool.objects.only("pk", "name", "circuit").in_bulk(list(counted))
    return [(pools[pk], count) for pk, count in counted.items()]


def pool_sources() -> dict[int, str]:
    """Where a pool can be made by hand: for each address and key in use the newest version that has it, in words."""
    versions = ProfileVersion.objects.filter(profile__retired_at=None).select_related("profile", "key", "headers")
    found: dict[tuple[str, ...], list[ProfileVersion]] = {}
    for version in versions.order_by("-pk")[:SOURCES]:
        found.setdefault(tuple(version.allowance.values()), []).append(version)
    return {theirs[0].pk: _source(theirs) for theirs in found.values()}


def _source(versions: list[ProfileVersion]) -> str:
    newest = versions[0]
    names = list(dict.fromkeys(version.profile.name for version in versions))
    profiles = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    where = newest.base_url or newest.get_provider_display()
    key = f", {newest.key}" if newest.key and newest.key.hint else ", its key" if newest.key else ", no key"
    return f"{where}{'' if newest.provider == ProfileVersion.Provider.SCRIPTED else key} ({profiles})"
