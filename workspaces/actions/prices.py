"""The site's own prices: set and taken back, each a new row. What was booked keeps the price of its time."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from decimal import Decimal

from django.db import transaction

from workspaces.domain import prices
from workspaces.domain.prices import Unit
from workspaces.models import AuditEntry, Price, User
from workspaces.queries.prices import price_book

from .budget_settings import price_was_set
from .clock import database_now
from .errors import Refused
from .words import taken

MOST_USD = Decimal(1_000_000)
SUBJECT_CHARS = 200
MOST_AHEAD = timedelta(days=3660)


def set_prices(
    subject: str, given: Mapping[Unit, Decimal], *, reason: str, actor: User, valid_from: datetime | None = None
) -> list[Price]:
    """What units of `subject` cost from `valid_from` on (default: now). USD for what prices.GIVEN_FOR says.

    `subject`: a model's name or a glob of names, or prices.SANDBOX, or prices.STORAGE. Raises Refused.
    """
    subject, reason = _subject(subject), _reason(reason)
    if not given:
        raise Refused("Give at least one price.")
    for unit, usd in given.items():
        if unit not in prices.UNITS_OF.get(subject, prices.TOKEN_UNITS):
            raise Refused(f"{subject} has no {unit.value.replace('_', ' ')}.")
        if not usd.is_finite() or not 0 <= usd <= MOST_USD:
            raise Refused(f"A price is from 0 to {MOST_USD:,} USD.")
    return _add(subject, dict(given), reason, actor, valid_from)


def withdraw_prices(subject: str, *, reason: str, actor: User) -> list[Price]:
    """The site has no price of its own for `subject` any more, from now on. Raises Refused when it has none."""
    subject, reason = _subject(subject), _reason(reason)
    with transaction.atomic():
        units = [price.unit for price in price_book().own if price.subject == subject and price.usd is not None]
        if not units:
            raise Refused(f"The site has no price of its own for {subject}.")
        return _add(subject, dict.fromkeys(units), reason, actor, None)


def _add(
    subject: str, given: Mapping[Unit, Decimal | None], reason: str, actor: User, valid_from: datetime | None
) -> list[Price]:
    with transaction.atomic():
        now = database_now()
        if valid_from is not None and valid_from < now:
            raise Refused("A price counts from now on or from later: what was booked keeps the price of its time.")
        if valid_from is not None and valid_from > now + MOST_AHEAD:
            raise Refused("A price counts from within ten years.")
        rows = [
            Price(
                subject=subject,
                unit=unit.value,
                usd=usd,
                valid_from=valid_from or now,
                created_by=actor,
                created_at=now,
                reason=reason,
            )
            for unit, usd in given.items()
        ]
        Price.objects.bulk_create(rows)
        AuditEntry.objects.create(
            actor=actor,
            action="price.withdraw" if None in given.values() else "price.set",
            reason=reason,
            data={
                "subject": subject,
                "usd": {unit.value: None if usd is None else str(usd) for unit, usd in given.items()},
                "valid_from": (valid_from or now).isoformat(),
            },
            at=now,
        )
        if None not in given.values():
            price_was_set()
    return rows


def _subject(text: str) -> str:
    subject = taken(text, "name", SUBJECT_CHARS)
    if not subject:
        raise Refused("Name the model, or a pattern of model names.")
    return subject


def _reason(text: str) -> str:
    reason = taken(text, "reason")
    if not reason:
        raise Refused("Say why: whoever finds this later needs it.")
    return reason
