"""The delivery pages' reads: what was sent to an endpoint, or about an alert, and how each try went.

A message about an alert that its reader may no longer see is listed without what it says.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

from django.db.models import OuterRef, QuerySet, Subquery

from workspaces.domain.action_links import PLACE
from workspaces.domain.endpoints import DeliveryState
from workspaces.models import Alert, Delivery, DeliveryAttempt, Endpoint, User

from .access import own_endpoints, visible_alerts

PAGE_SIZE = 50
TYPES = (
    ("alert.opened.v1", "opened"),
    ("alert.updated.v1", "updated"),
    ("alert.acknowledged.v1", "acknowledged"),
    ("alert.resolved.v1", "resolved"),
    ("endpoint.test.v1", "test"),
)
STATES = tuple((state.value, state.value) for state in DeliveryState)
HIDDEN = "(a link that acts: not shown)"


@dataclass(frozen=True, slots=True)
class Filters:
    """What the page's address says. Unknown values are dropped, so that an old link still opens."""

    state: str = ""
    type: str = ""
    alert: int | None = None
    page: int = 1

    @classmethod
    def from_query(cls, query: Any) -> Filters:
        def one_of(name: str, allowed: Iterable[tuple[str, str]]) -> str:
            value = query.get(name, "")
            return value if value in {each for each, _ in allowed} else ""

        return cls(
            state=one_of("state", STATES),
            type=one_of("type", TYPES),
            alert=_number(query.get("alert")),
            page=_number(query.get("page")) or 1,
        )

    def address(self, **changes: Any) -> str:
        """The query string of these filters with some changed; back to page 1 unless the page is given."""
        changed = replace(self, **({"page": 1} | changes))
        page = changed.page if changed.page > 1 else ""
        values = {"state": changed.state, "type": changed.type, "alert": changed.alert, "page": page}
        return "?" + urlencode({name: value for name, value in values.items() if value})

    @property
    def narrows(self) -> bool:
        return replace(self, page=1) != Filters()


@dataclass(frozen=True, slots=True)
class DeliveryRow:
    """`told`: the alert's title, or why there is none. `status`, `duration_ms`: of the newest try."""

    delivery: Delivery
    alert: Alert | None
    status: int | None
    duration_ms: int | None
    outcome: str


@dataclass(frozen=True, slots=True)
class Page:
    rows: Sequence[DeliveryRow]
    number: int
    pages: int
    total: int

    @property
    def first(self) -> int:
        return (self.number - 1) * PAGE_SIZE + 1

    @property
    def last(self) -> int:
        return min(self.number * PAGE_SIZE, self.total)


def own_deliveries(user: User) -> QuerySet[Delivery]:
    """To endpoints that the user may see."""
    return Delivery.objects.filter(endpoint__in=own_endpoints(user))


def page_of(user: User, found: QuerySet[Delivery], filters: Filters) -> Page:
    """Two queries make a page: one finds the ids in order, one loads only those rows with their newest try."""
    if filters.state:
        found = found.filter(state=filters.state)
    if filters.type:
        found = found.filter(type=filters.type)
    if filters.alert:
        found = found.filter(alert=filters.alert)
    total = found.count()
    pages = max(1, -(-total // PAGE_SIZE))
    number = min(filters.page, pages)
    start = (number - 1) * PAGE_SIZE
    ids = list(found.order_by("-pk").values_list("pk", flat=True)[start : start + PAGE_SIZE])
    newest = DeliveryAttempt.objects.filter(delivery=OuterRef("pk")).order_by("-number")
    loaded = (
        Delivery.objects.filter(pk__in=ids)
        .select_related("endpoint")
        .annotate(
            **{f"last_{name}": Subquery(newest.values(name)[:1]) for name in ("status", "duration_ms", "outcome")}
        )
        .order_by("-pk")
    )
    rows: list[Any] = list(loaded)
    alerts = visible_alerts(user).in_bulk({each.alert_id for each in rows if each.alert_id is not None})
    return Page(
        [
            DeliveryRow(
                each, alerts.get(each.alert_id), each.last_status, each.last_duration_ms, each.last_outcome or ""
            )
            for each in rows
        ],
        number,
        pages,
        total,
    )


def failed_of(endpoint: Endpoint) -> int:
    """How many would be sent again by "resend all failed"."""
    return endpoint.deliveries.filter(state=DeliveryState.FAILED.value, alert__isnull=False).count()


def alert_of(user: User, delivery: Delivery) -> Alert | None:
    """Where the user may still see it."""
    return None if delivery.alert_id is None else visible_alerts(user).filter(pk=delivery.alert_id).first()


def shown_body(body: Any) -> Any:
    """A message as it was sent, with each link that acts hidden."""
    if isinstance(body, dict):
        return {key: shown_body(value) for key, value in body.items()}
    if isinstance(body, list):
        return [shown_body(value) for value in body]
    return HIDDEN if isinstance(body, str) and body.startswith(PLACE) else body


def of_alert(user: User, alert: Alert) -> QuerySet[Delivery]:
    return own_deliveries(user).filter(alert=alert)


def elsewhere(user: User, alert: Alert) -> int:
    """How many messages about the alert went to endpoints that are not the user's to see."""
    return alert.deliveries.exclude(endpoint__in=own_endpoints(user)).count()


def _number(text: Any) -> int | None:
    value = str(text or "")
    return int(value) if value.isascii() and value.isdigit() and 0 < len(value) < 16 and int(value) > 0 else None
