"""Mailboxes that alerts are sent to: each is used only after somebody there has said yes. Sends nothing itself.

Also, whose endpoints were switched off because they failed: their owners are told by mail (engine/mail.py).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from datetime import timedelta

from django.db import connection, transaction
from django.db.models import Q, QuerySet

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
MOST_OF_ONE = 30  # a day, by one person, whomever to: this site is no sender of mail to lists
TOLD_WITHIN = timedelta(days=1)
_TELLING = 0x6D61_696C  # advisory locks
_ASKING = 0x6173_6B73


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
        _one_at_a_time()
        now = database_now()
        # by what was sent, not by where its endpoint leads now: an endpoint may be changed or removed at once
        asked = ActionLink.objects.filter(action=LinkAction.CONFIRM.value, created_at__gt=now - timedelta(days=1))
        there = Q(arguments_hash=address_hash(endpoint))
        if asked.filter(there | Q(endpoint=endpoint), created_at__gt=now - BETWEEN).exists():
            raise Refused("A link was sent there a moment ago. Look into the mailbox, or wait a minute.")
        if asked.filter(there).count() >= MOST_A_DAY:
            raise Refused(f"{MOST_A_DAY} links were sent to this address in a day. Try again tomorrow.")
        if asked.filter(acts_as=actor).count() >= MOST_OF_ONE:
            raise Refused(f"You have had {MOST_OF_ONE} links sent in a day. Try again tomorrow.")
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


def _one_at_a_time() -> None:
    """Until the end of the transaction: two who ask at once would both find room for the last link of a day."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s::bigint)", [_ASKING])


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
