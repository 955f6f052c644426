"""Which quota pool a model call draws on. A pool is made at its first use, for one model, unless staff made one."""

from __future__ import annotations

import time
from fnmatch import fnmatchcase
from threading import Lock
from urllib.parse import urlsplit

from workspaces.models import ProfileVersion, QuotaPool

from .clock import database_now

KNOWN_FOR_S = 5.0  # so long a worker may go on with a pool beside which staff have just made another
_known: dict[tuple[int, str], tuple[int, float]] = {}
_lock = Lock()
MOST_KNOWN = 2_000


def pool_of(version: ProfileVersion, model: str) -> int:
    """The id of the pool that a version's calls of a model draw on."""
    key = (version.pk, model)
    found = _known.get(key)
    if found is not None and found[1] > time.monotonic():
        return found[0]
    pool = _stored(version, model)
    if pool is None:
        return _made(version, model)  # in the caller's transaction, which may be rolled back: not to be remembered
    with _lock:
        if len(_known) >= MOST_KNOWN:
            _known.clear()
        _known[key] = (pool, time.monotonic() + KNOWN_FOR_S)
    return pool


def forget_pools() -> None:
    """After pools were made, changed or retired: this process looks again at once, others within seconds."""
    with _lock:
        _known.clear()


def _stored(version: ProfileVersion, model: str) -> int | None:
    """One made by hand goes first, the narrowest of those whose glob fits."""
    pools = QuotaPool.objects.filter(**version.allowance, retired_at=None).order_by("pk")
    found = list(pools.values_list("pk", "group", "by_hand"))
    fitting = [(len(group), pk) for pk, group, by_hand in found if by_hand and fnmatchcase(model, group)]
    if fitting:
        return max(fitting)[1]
    return next((pk for pk, group, by_hand in found if not by_hand and group == model), None)


def _made(version: ProfileVersion, model: str) -> int:
    place = version.allowance
    pool = QuotaPool(**place, group=model, name=_name(version, model), created_at=database_now())
    QuotaPool.objects.bulk_create([pool], ignore_conflicts=True)  # somebody else may just have made it
    return QuotaPool.objects.filter(**place, group=model, retired_at=None).values_list("pk", flat=True).get()


def _name(version: ProfileVersion, model: str) -> str:
    if version.provider == ProfileVersion.Provider.SCRIPTED:
        return f"{model} of {version.profile.name}"[:200]
    where = urlsplit(version.base_url).hostname or version.get_provider_display()
    return (f"{model} at {where}" + (f" ({version.key})" if version.key else ""))[:200]
