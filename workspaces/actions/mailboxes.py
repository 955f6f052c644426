"""Mailboxes that alerts are sent to: each is used only after somebody there has said yes. Sends nothing itself.

Also, whose endpoints were switched off because they failed: their owners are told by mail (engine/mail.py).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from datetime import timedelta

from django.db import connection, transaction
from django.db.models import QuerySet

from workspaces import dispatch
from workspaces.domain.action_links import expiry
from workspaces.domain.endpoints import EndpointKind, EndpointState, LinkAction
from workspaces.models import ActionLink, AuditEntry, Endpoint, User
from workspaces.queries.access import own_endpoints
from workspaces.queries.action_links import address_hash
from workspaces.queries.mail import why_no_mail

from .clock import database_now
from .errors import Refused

BETWEEN = timedelta(minutes=1)
MOST_A_DAY = 8  # to one address, whoever asks: nobody's mailbox is filled by this site
TOLD_WITHIN = timedelta(days=1)
_TELLING = 0x6D61_696C  # advisory lock


def ask_to_confirm(endpoint_id: int, *, actor: User) -> ActionLink:
    """The link that is to be sent to the endpoint's address now; those sent before are void. Raises Refused."""
    if problem := why_no_mail():
        raise Refused(problem)
    with transaction.atomic():
        endpoint = own_endpoints(actor).select_for_update(no_key=True).filter(pk=endpoint_id).first()
        if endpoint is None or endpoint.kind != EndpointKind.EMAIL.value:
            raise Refused("There is no such mailbox among your endpoints.")
        if endpoint.state != EndpointState.UNCONFIRMED.value:
            raise Refused("This mailbox does not wait to be confirmed.")
        now = database_now()
        same = Endpoint.objects.filter(kind=EndpointKind.EMAIL.value, address__iexact=endpoint.address)
        asked = ActionLink.objects.filter(endpoint__in=same, action=LinkAction.CONFIRM.value)
        if asked.filter(endpoint=endpoint, created_at__gt=now - BETWEEN).exists():
            raise Refused("A link was sent there a moment ago. Look into the mailbox, or wait a minute.")
        if asked.filter(created_at__gt=now - timedelta(days=1)).count() >= MOST_A_DAY:
            raise Refused(f"{MOST_A_DAY} links were sent to this address in a day. Try again tomorrow.")
        ActionLink.objects.filter(
            endpoint=endpoint, action=LinkAction.CONFIRM.value, used_at=None, revoked_at=None
        ).update(revoked_at=now)
        link: ActionLink = ActionLink.objects.create(
            action=LinkAction.CONFIRM.value,
            endpoint=endpoint,
            arguments_hash=address_hash(endpoint),
            acts_as=actor,
            created_at=now,
            expires_at=expiry(LinkAction.CONFIRM, now),
        )
        AuditEntry.objects.create(
            actor=actor,
            action="endpoint.ask_to_confirm",
            data={"endpoint": endpoint.pk, "name": endpoint.name, "to": endpoint.address},
            at=now,
        )
        return link


def untold() -> QuerySet[Endpoint]:
    """Endpoints that were switched off within a day because they failed, whose owner has not been told by mail."""
    since = database_now() - TOLD_WITHIN
    found = Endpoint.objects.filter(state=EndpointState.FAILED.value, owner_told_at=None, state_since__gt=since)
    return found.select_related("owner", "created_by").order_by("state_since")


def call_for_mail() -> None:
    """Have a worker tell the owners, where there is somebody to tell and mail is set up."""
    if not why_no_mail() and untold().exists():
        dispatch.tell_owners()


@contextmanager
def telling(skip: Collection[int] = ()) -> Iterator[Endpoint | None]:
    """One endpoint whose owner is told within the block; then it counts as told. An exception: it does not.

    One at a time on the whole site: a worker that is killed meanwhile leaves it to the next look.
    """
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_try_advisory_xact_lock(%s::bigint)", [_TELLING])
            mine = cursor.fetchone()[0]
        endpoint = untold().exclude(pk__in=skip).first() if mine else None
        yield endpoint
        if endpoint is not None:
            Endpoint.objects.filter(pk=endpoint.pk, state_since=endpoint.state_since).update(
                owner_told_at=database_now()
            )
