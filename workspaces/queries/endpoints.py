"""What the endpoint pages show: where alerts go, whether they arrive, and what waits. No secret is read here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Count, Q, QuerySet

from workspaces.domain.endpoints import DeliveryState, EndpointState, LinkAction
from workspaces.models import ActionLink, AlertRule, Delivery, Endpoint, EndpointSecret, User

from .access import own_endpoints
from .database import database_now

TEST = "endpoint.test.v1"


@dataclass(frozen=True, slots=True)
class EndpointRow:
    """`pending`, `failed`: deliveries that wait, and those of alerts that were given up. `rules`: that tell it."""

    endpoint: Endpoint
    pending: int
    failed: int
    rules: int


@dataclass(frozen=True, slots=True)
class EndpointGroup:
    name: str
    key: str
    rows: Sequence[EndpointRow]


def groups_of(user: User) -> list[EndpointGroup]:
    """The site's (for its staff), and the user's own."""
    rows = rows_of(list(own_endpoints(user).exclude(state=EndpointState.REMOVED.value).order_by("name", "pk")))
    found = [EndpointGroup("Yours", "own", [row for row in rows if row.endpoint.owner_id == user.pk])]
    if user.is_staff:
        site = [row for row in rows if row.endpoint.owner_id is None]
        found.insert(0, EndpointGroup("The site’s", "site", site))
    return found


def removed_of(user: User) -> QuerySet[Endpoint]:
    """What was sent to them stays readable."""
    return own_endpoints(user).filter(state=EndpointState.REMOVED.value).order_by("-state_since", "-pk")[:50]


def rows_of(endpoints: Sequence[Endpoint]) -> list[EndpointRow]:
    ids = [endpoint.pk for endpoint in endpoints]
    waits, given_up = DeliveryState.PENDING.value, DeliveryState.FAILED.value
    counted = {
        pk: (pending, failed)
        for pk, pending, failed in Delivery.objects.filter(endpoint__in=ids, state__in=(waits, given_up))
        .order_by()
        .values_list("endpoint")
        .annotate(
            pending=Count("pk", filter=Q(state=waits)),
            failed=Count("pk", filter=Q(state=given_up, alert__isnull=False)),
        )
    }
    rules = dict(
        AlertRule.objects.filter(endpoints__in=ids, retired_at=None)
        .order_by()
        .values_list("endpoints")
        .annotate(count=Count("pk"))
    )
    return [EndpointRow(each, *counted.get(each.pk, (0, 0)), rules.get(each.pk, 0)) for each in endpoints]


def secrets_of(endpoint: Endpoint, now: datetime | None = None) -> list[EndpointSecret]:
    """Those that are valid, the newest first."""
    now = now or database_now()
    valid = Q(expires_at__isnull=True) | Q(expires_at__gt=now)
    return list(endpoint.secrets.filter(valid).select_related("created_by").order_by("-created_at", "-pk"))


def asked_to_confirm(endpoint: Endpoint) -> ActionLink | None:
    """The newest link that was sent to a mailbox which waits to be confirmed."""
    if endpoint.state != EndpointState.UNCONFIRMED.value:
        return None
    return endpoint.action_links.filter(action=LinkAction.CONFIRM.value).order_by("-pk").first()


def newest_test(endpoint: Endpoint) -> Delivery | None:
    return endpoint.deliveries.filter(type=TEST).order_by("-pk").first()
