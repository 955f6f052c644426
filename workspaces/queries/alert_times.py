"""When people took alerts up, read from the alerts' histories (domain/alert_times.py says what counts)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import OuterRef, Subquery

from workspaces.domain.alert_times import Times, summed_up
from workspaces.domain.alerts import ChangeKind
from workspaces.models import AlertChange, User

from .bell import concerning
from .database import database_now

PERIODS = (7, 30)  # days
READ = 1_000  # the newest of them

_OPENED = (ChangeKind.OPENED.value, ChangeKind.REOPENED.value)
_TAKEN = (ChangeKind.ACKNOWLEDGED.value, ChangeKind.RESOLVED.value)


@dataclass(frozen=True, slots=True)
class Period:
    days: int
    times: Times


def times_of(user: User) -> list[Period]:
    """Over the last 7 and 30 days, of the alerts that concern the user."""
    now = database_now()
    taken = taken_up(user, now - timedelta(days=max(PERIODS)))
    return [
        Period(days, summed_up([took for at, took in taken if at >= now - timedelta(days=days)])) for days in PERIODS
    ]


def taken_up(user: User, since: datetime) -> list[tuple[datetime, float]]:
    """(when, after how many seconds), the newest first."""
    before = AlertChange.objects.filter(
        alert=OuterRef("alert"), number__lt=OuterRef("number"), kind__in=(*_OPENED, ChangeKind.ACKNOWLEDGED.value)
    ).order_by("-number")
    found = (
        AlertChange.objects.filter(kind__in=_TAKEN, actor__isnull=False, at__gte=since)
        .filter(alert__in=concerning(user))
        .annotate(before=Subquery(before.values("kind")[:1]), opened_at=Subquery(before.values("at")[:1]))
        .order_by("-at")
        .values_list("at", "before", "opened_at")[:READ]
    )
    return [(at, (at - opened_at).total_seconds()) for at, before, opened_at in found if before in _OPENED]
