"""What the bell on every page shows. Two short reads of the index of what needs a person first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.contrib.auth.models import AnonymousUser
from django.db.models import Count, Q, QuerySet

from workspaces.domain.incidents import Severity
from workspaces.models import Alert, User

from .access import visible_alerts

COUNTED_TO = 1_000
OPEN_BELOW = len(Severity)  # of `attention`: what is smaller is open
NEWEST_SHOWN = 6


@dataclass(frozen=True, slots=True)
class Bell:
    """`count` and `critical` are of open alerts, counted to COUNTED_TO at most; `newest`: critical ones first."""

    count: int = 0
    critical: int = 0
    newest: Sequence[Alert] = ()

    @property
    def shown(self) -> str:
        return str(self.count) if self.count < 100 else "99+"

    @property
    def words(self) -> str:
        """For those who hear it."""
        number = str(self.count) if self.count < COUNTED_TO else f"{COUNTED_TO} or more"
        told = f"{number} open alert{'' if self.count == 1 else 's'}" if self.count else "no open alert"
        return f"{told}, {self.critical} critical" if self.critical else told


def concerning(user: User | AnonymousUser) -> QuerySet[Alert]:
    """What the user can see without what other people set up for themselves (which only site staff can see)."""
    return visible_alerts(user).filter(Q(user=None) | Q(user=user.pk))


def bell_of(user: User | AnonymousUser) -> Bell:
    if not user.is_authenticated:
        return Bell()
    found = concerning(user).filter(attention__lt=OPEN_BELOW).order_by("attention", "-changed_at", "-pk")
    counted = found.values("attention")[:COUNTED_TO].aggregate(
        count=Count("attention"), critical=Count("attention", filter=Q(attention=0))
    )
    newest = list(found[:NEWEST_SHOWN]) if counted["count"] else []
    return Bell(counted["count"], counted["critical"], newest)
