"""Tries to sign in are counted before the password is looked at: many at once gain nothing. See domain/throttle.py.

Of links that act only the tokens that are none are counted: a chat opens good ones by the dozen, to show a preview.
"""

from __future__ import annotations

import hashlib
import logging
from datetime import datetime, timedelta

from django.db import transaction

from workspaces.domain.throttle import PATIENCE, WINDOW_S, counted_address, wait_s
from workspaces.models import SignInCounter

from .clock import database_now

logger = logging.getLogger(__name__)


def try_to_sign_in(name: str, address: str) -> datetime | None:
    """Count a try. None: look at the password. Else it is not looked at, and this is when the next may come."""
    return _count(_keys(name, address), "sign-in", address)


def guessed_a_link(address: str) -> None:
    """From there came a token that is none."""
    _count(_link_keys(address), "links that act", address)


def links_wait_until(address: str) -> datetime | None:
    """Until then no link is looked at that is opened from there; None: it is looked at."""
    counter = SignInCounter.objects.filter(key__in=_link_keys(address)).first()
    return counter.until if counter is not None and counter.until > database_now() else None


def _count(keys: dict[str, str], door: str, address: str) -> datetime | None:
    now = database_now()
    with transaction.atomic():
        SignInCounter.objects.bulk_create(
            [SignInCounter(key=key, last_at=now, until=now) for key in sorted(keys)], ignore_conflicts=True
        )
        rows = list(SignInCounter.objects.select_for_update().filter(key__in=keys).order_by("key"))
        until = max((row.until for row in rows), default=now)  # none: a success has just deleted them
        if until > now:
            return until
        for row in rows:
            fresh = (now - row.last_at).total_seconds() > WINDOW_S
            row.tries = 1 if fresh else row.tries + 1
            row.last_at = now
            row.until = now + timedelta(seconds=wait_s(row.tries, PATIENCE[keys[row.key]]))
        SignInCounter.objects.bulk_update(rows, ["tries", "last_at", "until"])
    held = [keys[row.key] for row in rows if row.until > now]
    if held:
        logger.warning("%s: too many tries by %s, the last from %s", door, " and by ".join(held), address)
    return None


def signed_in(name: str, address: str) -> None:
    """A success: the name's counters begin anew. Not the address's: one known password would free all guesses."""
    mine = [key for key, what in _keys(name, address).items() if what != "address"]
    with transaction.atomic():
        rows = SignInCounter.objects.select_for_update().filter(key__in=mine).order_by("key")
        SignInCounter.objects.filter(key__in=[row.key for row in rows]).delete()


def forget_old_tries() -> int:
    """Delete the counters that would begin anew anyway; returns how many."""
    over = database_now() - timedelta(seconds=WINDOW_S)
    with transaction.atomic():
        rows = SignInCounter.objects.select_for_update(skip_locked=True).filter(last_at__lt=over)[:1_000]
        return SignInCounter.objects.filter(key__in=[row.key for row in rows]).delete()[0]


def _keys(name: str, address: str) -> dict[str, str]:
    """Hash → what it counts."""
    name, address = name.strip().lower()[:500], counted_address(address)
    return _hashed({"name and address": f"{name}\n{address}", "name": name, "address": address})


def _link_keys(address: str) -> dict[str, str]:
    return _hashed({"links": counted_address(address)})


def _hashed(counted: dict[str, str]) -> dict[str, str]:
    return {hashlib.sha256(f"{what}\n{value}".encode()).hexdigest(): what for what, value in counted.items()}
