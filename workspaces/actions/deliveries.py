"""What is to be sent to which endpoint: by an alert's change, by a person again, by a person as a test. And until when
it is kept.

Sending itself, and what came of it: sendings.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import F, Q, QuerySet

from workspaces import dispatch, live
from workspaces.domain.endpoints import DeliveryState, EndpointLinks, EndpointState
from workspaces.domain.webhooks import trial_message
from workspaces.models import ActionLink, AlertChange, AuditEntry, Delivery, Endpoint, User
from workspaces.queries.action_links import open_question

from .action_links import add_links, links_for, with_places
from .clock import database_now
from .errors import Refused

GIVEN_UP_AFTER = timedelta(hours=24)
KEPT = timedelta(days=90)  # of what has come to its end; the alert's own history stays
BATCH = 1_000
S = DeliveryState


def queue(changes: Iterable[AlertChange], endpoints: Iterable[Endpoint]) -> list[Delivery]:
    """Have each change told to each enabled endpoint, in the transaction that wrote them. Says `change.payload`."""
    enabled = [endpoint for endpoint in endpoints if endpoint.state == EndpointState.ENABLED.value]
    answering = any(endpoint.links == EndpointLinks.ANSWER.value for endpoint in enabled)
    rows: list[Delivery] = []
    links: list[list[ActionLink]] = []
    for change in changes:
        asked = open_question(change.alert_id) if answering else None
        for endpoint in enabled:
            mine = links_for(endpoint, change.alert, now=change.at, asked=asked)
            links.append(mine)
            rows.append(
                Delivery(
                    endpoint=endpoint,
                    change=change,
                    alert_id=change.alert_id,
                    number=change.number,
                    type=change.payload["type"],
                    body=with_places(change.payload, mine),
                    expires_at=change.at + GIVEN_UP_AFTER,
                )
            )
    made: list[Delivery] = Delivery.objects.bulk_create(rows)
    add_links(zip(made, links, strict=True))
    if made:
        dispatch.alerts()
    return made


def resend(delivery: Delivery, *, actor: User) -> None:
    """Send it again, with the same id: what was given up or has arrived from the start, what still waits now.

    Raises Refused where its endpoint takes nothing.
    """
    with transaction.atomic():
        endpoint = _taking(delivery.endpoint_id)
        now = database_now()
        mine = Delivery.objects.filter(pk=delivery.pk)
        if not _again(mine.exclude(state=S.PENDING.value)):
            waits = mine.filter(Q(leased_until=None) | Q(leased_until__lte=now), state=S.PENDING.value)
            if not waits.update(next_at=now):
                raise Refused("It is being sent at this moment.")
        _audit("delivery.resend", actor, endpoint, delivery=delivery.pk)
    delivery.refresh_from_db()


def resend_failed(endpoint: Endpoint, *, actor: User) -> int:
    """Send again whatever was given up there, in order within each alert; returns how much that is. Raises Refused."""
    with transaction.atomic():
        _taking(endpoint.pk)
        count = _again(Delivery.objects.filter(endpoint=endpoint, state=S.FAILED.value, alert__isnull=False))
        if count:
            _audit("delivery.resend_failed", actor, endpoint, count=count)
    return count


def send_test(endpoint: Endpoint, *, actor: User) -> Delivery:
    """One message that says that it is a test, tried once; also to one that is switched off. Raises Refused."""
    with transaction.atomic():
        row = Endpoint.objects.select_for_update(no_key=True).get(pk=endpoint.pk)
        if row.state in (EndpointState.REMOVED.value, EndpointState.UNCONFIRMED.value):
            raise Refused("It takes no messages: confirm its address first, or make it anew.")
        if Delivery.objects.filter(endpoint=row, alert=None, state=S.PENDING.value).exists():
            raise Refused("A test is under way. Wait for what comes of it.")
        now = database_now()
        body = trial_message(
            endpoint=row.pk, name=row.name, sent_by=actor.get_username(), at=now, base=settings.PUBLIC_URL
        )
        made = Delivery.objects.create(endpoint=row, type=body["type"], body=body, expires_at=now)
        dispatch.alerts()
        live.alerts_changed()
    return made


def forget_old() -> int:
    """Drop messages that came to their end long ago, with their tries and links. Returns how many messages."""
    over = Delivery.objects.filter(finished_at__lt=database_now() - KEPT).order_by("finished_at")
    ids = list(over.values_list("pk", flat=True)[:BATCH])
    _, dropped = Delivery.objects.filter(pk__in=ids, finished_at__isnull=False).delete()
    return dropped.get(Delivery._meta.label, 0)


def _taking(endpoint_id: int) -> Endpoint:
    """Locked: nobody claims or gives up meanwhile. Raises Refused."""
    row = Endpoint.objects.select_for_update(no_key=True).get(pk=endpoint_id)
    if row.state != EndpointState.ENABLED.value:
        raise Refused("The endpoint is switched off. Enable it first: then what was not sent can be sent again.")
    return row


def _again(rows: QuerySet[Delivery]) -> int:
    now = database_now()
    count = rows.update(
        state=S.PENDING.value,
        next_at=now,
        expires_at=now + GIVEN_UP_AFTER,
        finished_at=None,
        leased_until=None,
        error="",
        resent=F("resent") + 1,
    )
    if count:
        dispatch.alerts()
        live.alerts_changed()
    return count


def _audit(action: str, actor: User, endpoint: Endpoint, **data: int) -> None:
    AuditEntry.objects.create(actor=actor, action=action, data={"endpoint": endpoint.pk, **data}, at=database_now())
