"""One quota pool's page: who holds it, who used it, what happened to it. A fixed number of queries.

Others' tasks and names are for site staff; everybody else gets them as one line of numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Count, F, Q, Sum
from django.db.models.functions import Coalesce

from workspaces.domain.states import ClaimState, ModelCallStatus
from workspaces.models import ModelCall, QuotaClaim, QuotaNotice, QuotaPool, QuotaShare, Task, User

from .access import visible_tasks

HOLDERS_SHOWN = 50
USERS_SHOWN = 25
NOTICES_SHOWN = 40
FORKED_SHOWN = 10
HOUR = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Holders:
    """Claims that are being served: those that may be named, and all others as sums."""

    claims: list[QuotaClaim]
    others: int
    others_input: int
    others_output: int


def holders_of(pool: QuotaPool, user: User) -> Holders:
    held = QuotaClaim.objects.filter(pool=pool, state__in=[ClaimState.LEASED.value, ClaimState.GRANTED.value])
    named = held if user.is_staff else held.filter(task__in=visible_tasks(user))
    claims = list(
        named.select_related("task__created_by", "task__workspace", "user", "model_call").order_by("granted_at", "pk")[
            :HOLDERS_SHOWN
        ]
    )
    sums = held.aggregate(count=Count("pk"), input=Sum("input_tokens"), output=Sum("output_tokens"))
    return Holders(
        claims,
        sums["count"] - len(claims),
        (sums["input"] or 0) - sum(claim.input_tokens for claim in claims),
        (sums["output"] or 0) - sum(claim.output_tokens for claim in claims),
    )


@dataclass(frozen=True, slots=True)
class UserUse:
    """Of the last hour, as the provider counted; `user` None: everybody else together."""

    user: User | None
    calls: int
    input_tokens: int
    output_tokens: int
    in_flight: int
    waiting: int
    weight: float | None
    share: float  # of the busiest row's tokens

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens


def users_of(pool: QuotaPool, user: User, now: datetime) -> list[UserUse]:
    """Staff: each user; others: themselves, and the rest as one row."""
    used = {
        row["who"]: row
        for row in ModelCall.objects.filter(pool=pool, started_at__gt=now - HOUR, status=ModelCallStatus.REPLIED.value)
        .order_by()
        .values(who=F("task__created_by"))
        .annotate(
            calls=Count("pk"),
            read=Coalesce(Sum("input_tokens"), 0)
            + Coalesce(Sum("cached_input_tokens"), 0)
            + Coalesce(Sum("cache_write_tokens"), 0),
            written=Coalesce(Sum("output_tokens"), 0),
        )
    }
    open_claims = {
        row["user"]: row
        for row in QuotaClaim.objects.filter(pool=pool)
        .exclude(state=ClaimState.IDLE.value)
        .order_by()
        .values("user")
        .annotate(
            in_flight=Count("pk", filter=~Q(state=ClaimState.WAITING.value)),
            waiting=Count("pk", filter=Q(state=ClaimState.WAITING.value)),
        )
    }
    weights = dict(QuotaShare.objects.filter(pool=pool).values_list("user", "weight"))
    ids = set(used) | set(open_claims) | {pk for pk, weight in weights.items() if weight != 1.0}
    if not user.is_staff:
        ids.add(user.pk)
    rows = {pk: _use(used.get(pk), open_claims.get(pk), weights.get(pk)) for pk in ids}
    if user.is_staff:
        busiest = sorted(rows, key=lambda pk: (-rows[pk].tokens, -rows[pk].waiting, pk))
        people = User.objects.in_bulk(busiest[:USERS_SHOWN])
        found = [(people.get(pk), rows[pk]) for pk in busiest[:USERS_SHOWN] if pk in people]
        rest = [rows[pk] for pk in busiest[USERS_SHOWN:]]
    else:
        found = [(user, rows.pop(user.pk))]
        rest = list(rows.values())
    if rest:
        found.append((None, _together(rest)))
    most = max((row.tokens for _, row in found), default=0)
    return [
        UserUse(
            who,
            row.calls,
            row.input_tokens,
            row.output_tokens,
            row.in_flight,
            row.waiting,
            row.weight,
            row.tokens / most if most else 0.0,
        )
        for who, row in found
    ]


def _use(used: Mapping[str, Any] | None, claims: Mapping[str, Any] | None, weight: float | None) -> UserUse:
    used, claims = used or {}, claims or {}
    return UserUse(
        None,
        used.get("calls", 0),
        used.get("read", 0),
        used.get("written", 0),
        claims.get("in_flight", 0),
        claims.get("waiting", 0),
        weight if weight is not None else 1.0,
        0.0,
    )


def _together(rows: list[UserUse]) -> UserUse:
    return UserUse(
        None,
        sum(row.calls for row in rows),
        sum(row.input_tokens for row in rows),
        sum(row.output_tokens for row in rows),
        sum(row.in_flight for row in rows),
        sum(row.waiting for row in rows),
        None,
        0.0,
    )


@dataclass(frozen=True, slots=True)
class NoticeRow:
    """`words` and `task` are None where they are another user's."""

    notice: QuotaNotice
    words: str | None
    task: Task | None


def notices_of(pool: QuotaPool, user: User, before: int | None = None) -> list[NoticeRow]:
    """The newest first. What a call of somebody else's was told is theirs."""
    notices = QuotaNotice.objects.filter(pool=pool).select_related("actor", "task", "model_call__step__branch")
    if before is not None:
        notices = notices.filter(pk__lt=before)
    found = list(notices.order_by("-pk")[:NOTICES_SHOWN])
    if user.is_staff:
        return [NoticeRow(notice, notice.words, notice.task) for notice in found]
    ids = [notice.task_id for notice in found if notice.task_id is not None]
    seen = set(visible_tasks(user).filter(pk__in=ids).values_list("pk", flat=True))
    return [
        NoticeRow(
            notice,
            notice.words if notice.task_id is None or notice.task_id in seen else None,
            notice.task if notice.task_id in seen else None,
        )
        for notice in found
    ]


@dataclass(frozen=True, slots=True)
class FanOut:
    """Tasks forked in the last hour that draw on the pool, by the task they were forked from."""

    parents: list[tuple[Task, int]]
    others: int  # forks of tasks that are not named


def fan_out_of(pool: QuotaPool, user: User, now: datetime) -> FanOut:
    forks = Task.objects.filter(forked_from__isnull=False, created_at__gt=now - HOUR, quota_claims__pool=pool)
    total = forks.count()
    if not total:
        return FanOut([], 0)
    named = forks if user.is_staff else forks.filter(forked_from__in=visible_tasks(user))
    counted = dict(
        named.order_by()
        .values_list("forked_from")
        .annotate(count=Count("pk"))
        .order_by("-count", "forked_from")[:FORKED_SHOWN]
    )
    parents = Task.objects.select_related("created_by").in_bulk(list(counted))
    rows = [(parents[pk], count) for pk, count in counted.items()]
    return FanOut(rows, total - sum(count for _, count in rows))
