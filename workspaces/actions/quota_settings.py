"""What site staff set of a quota pool: limits, models, retries, weights; a probe at once; pools by hand and their end.

Each change is one transaction under the pool's lock: the change, a notice that everybody who knows of the pool can
read, and an audit entry with the reason. Never decides whose turn it is: what a change makes room for is granted by
whoever asks next, or by the scheduler within a second.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models.functions import Now

from workspaces.domain.fair_queue import reweigh, withdraw
from workspaces.domain.quotas import LIMITS, Claim, PoolState, Share
from workspaces.domain.retry_budget import RetryPolicy, probe_now, unblock
from workspaces.domain.states import Circuit, ClaimState, NoticeKind, TaskStatus, WaitingFor
from workspaces.domain.text import clean_text
from workspaces.models import AuditEntry, ProfileVersion, QuotaClaim, QuotaNotice, QuotaPool, QuotaShare, Task, User

from .clock import database_now
from .errors import Refused
from .quota_pools import KNOWN_FOR_S, forget_pools
from .words import taken

NAME_CHARS = 200
MOST = 10**12
LEAST_WEIGHT, MOST_WEIGHT = 0.01, 100.0
POLICY = RetryPolicy()


def change_pool(
    pool_id: int,
    *,
    name: str,
    group: str,
    limits: Mapping[str, int],
    policy: Mapping[str, float],
    reason: str,
    actor: User,
) -> QuotaPool:
    """Takes `limits` and `policy` as the whole of what is set by hand. A pool with another group is one by hand.

    Raises Refused.
    """
    reason = _why(reason)
    name, group = _named(name), _group(group)
    limits, policy = _limits(limits), _policy(policy)
    try:
        with transaction.atomic():
            pool = _locked(pool_id)
            said = _differences(pool, name, group, limits, policy)
            if not said:
                raise Refused("Nothing is different from what is set already.")
            before = {"name": pool.name, "group": pool.group, "limits": pool.limits, "policy": pool.policy}
            pool.by_hand = pool.by_hand or group != pool.group
            pool.name, pool.group, pool.limits, pool.policy = name, group, limits, policy
            pool.save(update_fields=["name", "group", "limits", "policy", "by_hand"])
            after = {"name": name, "group": group, "limits": limits, "policy": policy}
            now = database_now()
            _told(pool, said, reason, actor, now, before=before, after=after)
            _audit("quota.change", pool, reason, actor, now, before=before, after=after)
            if before["group"] != group:
                _ask_again(pool, now)
            return pool
    except IntegrityError as error:
        raise Refused(f"There is a pool for the models {group} with that key and address already.") from error


def set_weight(pool_id: int, *, user: User, weight: float, reason: str, actor: User) -> QuotaShare:
    """How much of a contested pool a user gets beside the others: twice the weight, twice the share. Raises Refused."""
    reason = _why(reason)
    if not LEAST_WEIGHT <= weight <= MOST_WEIGHT:
        raise Refused(f"A weight is a number from {LEAST_WEIGHT:g} to {MOST_WEIGHT:g}; 1 is usual.")
    with transaction.atomic():
        pool = _locked(pool_id)
        row, _ = QuotaShare.objects.select_for_update().get_or_create(pool=pool, user=user)
        if row.weight == weight:
            raise Refused(f"{user} has the weight {weight:g} already.")
        before = row.weight
        row.weight = weight
        row.save(update_fields=["weight"])
        state = PoolState.from_json(pool.state)
        reweigh(state, Share(weight=before, open=row.open), weight)
        pool.state = state.as_json()
        pool.save(update_fields=["state"])
        now = database_now()
        _told(pool, f"the weight of a user: {before:g} → {weight:g}", reason, actor, now, user=user.pk)
        _audit("quota.weight", pool, reason, actor, now, user=user.username, before=before, after=weight)
        return row


def probe_pool(pool_id: int, *, reason: str, actor: User) -> QuotaPool:
    """End the wait now: an open circuit lets one call try at once, a block ends. Raises Refused."""
    reason = _why(reason)
    with transaction.atomic():
        pool = _locked(pool_id)
        now = database_now()
        state = PoolState.from_json(pool.state)
        blocked = state.blocked_until > now.timestamp()
        if not blocked and state.circuit == Circuit.CLOSED.value:
            raise Refused("Nothing holds this pool back: its circuit is closed and the provider has not blocked it.")
        if state.circuit == Circuit.HALF_OPEN.value and state.probe is not None and not blocked:
            raise Refused("One call is trying already: its answer decides.")
        if state.circuit == Circuit.CLOSED.value:
            unblock(state)
            said = "the block was ended by hand"
        else:
            probe_now(state, now.timestamp())
            said = "one call tries at once, by hand"
        pool.state = state.as_json()
        pool.blocked_until, pool.blocked_reason = None, ""
        pool.save(update_fields=["state", "blocked_until", "blocked_reason"])
        _told(pool, said, reason, actor, now)
        _audit("quota.probe", pool, reason, actor, now)
        return pool


def make_pool(
    *,
    version: ProfileVersion,
    name: str,
    group: str,
    limits: Mapping[str, int],
    policy: Mapping[str, float],
    reason: str,
    actor: User,
) -> QuotaPool:
    """A pool by hand, for the models that `group` names, at the address and with the key of a profile's version.

    Its calls come from the pools that were made by themselves: what waits in those asks again. Raises Refused.
    """
    reason = _why(reason)
    name, group = _named(name), _group(group)
    limits, policy = _limits(limits), _policy(policy)
    where = version.allowance
    try:
        with transaction.atomic():
            now = database_now()
            pool = QuotaPool.objects.create(
                **where,
                name=name,
                group=group,
                by_hand=True,
                limits=limits,
                policy=policy,
                created_by=actor,
                created_at=now,
            )
            _told(pool, "the pool was made by hand", reason, actor, now, limits=limits, policy=policy)
            _audit("quota.make", pool, reason, actor, now, group=group, limits=limits, policy=policy)
            transaction.on_commit(forget_pools)
            others = QuotaPool.objects.select_for_update(no_key=True).filter(**where, retired_at=None)
            for other in others.exclude(pk=pool.pk).order_by("pk"):
                _ask_again(other, now)
            return pool
    except IntegrityError as error:
        raise Refused(f"There is a pool for the models {group} with that key and address already.") from error


def retire_pool(pool_id: int, *, reason: str, actor: User) -> QuotaPool:
    """Nothing draws on it from now on; what waits in it asks again, what runs goes on. Raises Refused."""
    reason = _why(reason)
    with transaction.atomic():
        pool = _locked(pool_id)
        if not pool.by_hand:
            raise Refused(
                "This pool was made at its first use and would be made again: only pools by hand are retired."
            )
        now = database_now()
        pool.retired_at = now
        pool.save(update_fields=["retired_at"])
        _told(pool, "the pool was retired", reason, actor, now)
        _audit("quota.retire", pool, reason, actor, now)
        _ask_again(pool, now)
        return pool


def _locked(pool_id: int) -> QuotaPool:
    pool = QuotaPool.objects.select_for_update(no_key=True).filter(pk=pool_id).first()
    if pool is None or pool.retired_at is not None:
        raise Refused("This pool is retired: nothing draws on it, and nothing of it can be changed.")
    return pool


def _ask_again(pool: QuotaPool, now: datetime) -> None:
    """What waits in a locked pool waits there no longer; its tasks ask again, for the pool that is now theirs."""
    transaction.on_commit(forget_pools)
    claims = list(QuotaClaim.objects.filter(pool=pool, state=ClaimState.WAITING.value).order_by("pk"))
    if not claims:
        return
    state = PoolState.from_json(pool.state)
    rows = {row.user_id: row for row in QuotaShare.objects.select_for_update().filter(pool=pool)}
    for claim in claims:
        row = rows.get(claim.user_id)
        if row is None:
            continue
        share = Share(row.weight, row.finish, open=row.open)
        withdraw(state, share, Claim(claim.user_id, claim.task_id, 0, 0), now.timestamp())
        row.open = share.open
    QuotaShare.objects.bulk_update(rows.values(), ["open"])
    QuotaClaim.objects.filter(pk__in=[claim.pk for claim in claims]).update(state=ClaimState.IDLE.value)
    pool.state = state.as_json()
    pool.save(update_fields=["state"])
    tasks = [claim.task_id for claim in claims]
    transaction.on_commit(lambda: _end_waits(tasks))


def _end_waits(tasks: list[int]) -> None:
    """Once every worker has forgotten which pool was theirs. After the commit: no task is locked while a pool is."""
    Task.objects.filter(pk__in=tasks, status=TaskStatus.WAITING.value, waiting_for=WaitingFor.QUOTA.value).update(
        waiting_until=Now() + timedelta(seconds=KNOWN_FOR_S)
    )


def _why(reason: str) -> str:
    reason = taken(reason, "reason")
    if not reason:
        raise Refused("Say why, for whoever reads the audit log.")
    return reason


def _named(name: str) -> str:
    name = clean_text(name).strip()
    if not name:
        raise Refused("Give the pool a name.")
    if len(name) > NAME_CHARS:
        raise Refused(f"The name has {len(name)} characters; at most {NAME_CHARS} are taken.")
    return name


def _group(group: str) -> str:
    group = clean_text(group).strip()
    if not group:
        raise Refused("Say for which models: a name, or a pattern such as gpt-4o*.")
    if len(group) > NAME_CHARS or any(sign.isspace() for sign in group):
        raise Refused(f"A pattern of models is one word of at most {NAME_CHARS} characters.")
    return group


def _limits(limits: Mapping[str, int]) -> dict[str, int]:
    for name, value in limits.items():
        if name not in LIMITS or not 1 <= value <= MOST:
            raise Refused(f"A limit is a whole number from 1 to {MOST:,}; leave it empty for none.")
    return {name: int(limits[name]) for name in LIMITS if name in limits}


def _policy(policy: Mapping[str, float]) -> dict[str, float]:
    """Only what differs from the defaults."""
    usual = {name: getattr(POLICY, name) for name in POLICY.__slots__}
    for name, value in policy.items():
        if name not in usual or not 0 < value <= 86_400:
            raise Refused("Each number of the retry policy is above 0 and at most 86,400.")
    if policy.get("retry_ratio", 0) > 1:
        raise Refused("More than one retry for each success would never end: the ratio is at most 1.")
    full = RetryPolicy.from_json(policy)
    if full.first_backoff_s > full.longest_backoff_s or full.first_open_s > full.longest_open_s:
        raise Refused("The first wait cannot be longer than the longest one.")
    if full.retry_cap < 1:
        raise Refused("With room for less than one retry nothing would ever be tried again.")
    return full.as_json()


def _differences(pool: QuotaPool, name: str, group: str, limits: dict[str, int], policy: dict[str, float]) -> str:
    found = []
    if name != pool.name:
        found.append(f"name: {pool.name} → {name}")
    if group != pool.group:
        found.append(f"models: {pool.group} → {group}")
    for what, old, new in (("", pool.limits, limits), ("retries: ", pool.policy, policy)):
        for key in [*old, *(key for key in new if key not in old)]:
            if old.get(key) != new.get(key):
                words = key.replace("_", " ").removesuffix(" s")
                found.append(f"{what}{words} {_shown(old.get(key))} → {_shown(new.get(key))}")
    return "; ".join(found)


def _shown(value: float | None) -> str:
    return "not set" if value is None else f"{value:,}"


def _told(pool: QuotaPool, said: str, reason: str, actor: User, now: datetime, **data: Any) -> None:
    QuotaNotice.objects.create(
        pool=pool,
        kind=NoticeKind.LIMIT_SET.value,
        at=now,
        words=f"{said}. {reason}",
        data=data,
        actor=actor,
    )


def _audit(action: str, pool: QuotaPool, reason: str, actor: User, now: datetime, **data: Any) -> None:
    AuditEntry.objects.create(
        actor=actor, action=action, reason=reason, data={"pool": pool.pk, "name": pool.name, **data}, at=now
    )
