"""Mail besides that of the courier: the link that confirms an address, and word to the owner of a failed endpoint."""

from __future__ import annotations

import logging

from django.conf import settings

from workspaces.actions.errors import Refused
from workspaces.actions.mailboxes import ask_to_confirm, telling
from workspaces.domain.alert_texts import Deed, Told
from workspaces.domain.endpoints import EndpointKind
from workspaces.domain.mail import one_line
from workspaces.models import Endpoint, User
from workspaces.queries.action_links import url_of
from workspaces.queries.mail import why_no_mail

from .transports import NotSent
from .transports.email import deliver

logger = logging.getLogger(__name__)

NAME_CHARS = 100


def send_confirmation(endpoint_id: int, *, actor: User) -> str:
    """Send a link to the endpoint's address, by which whoever reads it there can say yes. Returns the address.

    Raises Refused, also when the mail server does not take the mail: then another can be asked for in a minute.
    """
    link = ask_to_confirm(endpoint_id, actor=actor)
    endpoint = link.endpoint
    told = Told(
        title="Do you want alerts at this address?",
        words=(
            f"{one_line(actor.get_full_name() or actor.get_username(), NAME_CHARS)} wants alerts of agentdesk "
            f"({settings.PUBLIC_URL}) sent to this mailbox. Nothing more is sent unless you confirm. If you did not "
            "expect this, do nothing: the link ends by itself."
        ),
        facts=(("Endpoint", one_line(endpoint.name, NAME_CHARS)), ("Until", f"{link.expires_at:%Y-%m-%d %H:%M} UTC")),
        deeds=(Deed(link.action, url_of(link.uid)),),
        deeds_say="This opens a page on which you can confirm it:",
    )
    try:
        deliver(told, endpoint.address, uid=f"confirm_{link.uid.hex}", at=link.created_at)
    except NotSent as error:
        raise Refused(f"The link could not be sent to {endpoint.address}. {error}") from None
    return endpoint.address


def tell_owners() -> int:
    """Tell whose endpoints were switched off, by their accounts' addresses; returns how many were told."""
    told, not_now = 0, set[int]()
    while not why_no_mail():
        try:
            with telling(not_now) as endpoint:
                if endpoint is None:
                    break
                told += _told(endpoint)
        except NotSent as error:
            assert endpoint is not None
            not_now.add(endpoint.pk)
            logger.warning("the owner of a failed endpoint could not be told by mail yet: %s", error)
    return told


def _told(endpoint: Endpoint) -> bool:
    """Whether a mail went out. Nobody to tell, or an address that refuses for good: that is all that can be done."""
    owner = endpoint.owner or endpoint.created_by
    same = endpoint.kind == EndpointKind.EMAIL.value and endpoint.address.lower() == owner.email.lower()
    if not owner.email or not owner.is_active or same:
        return False
    told = Told(
        title=one_line(f"The endpoint {endpoint.name} was switched off", NAME_CHARS + 40),
        words=f"{endpoint.state_reason} Nothing more is sent there until it is enabled again.",
        facts=(("Since", f"{endpoint.state_since:%Y-%m-%d %H:%M} UTC"),),
        url=f"{settings.PUBLIC_URL}/alerts/endpoints/{endpoint.pk}/",
    )
    uid = f"endpoint_{endpoint.pk}_{int(endpoint.state_since.timestamp())}"
    try:
        deliver(told, owner.email, uid=uid, at=endpoint.state_since)
    except NotSent as error:
        if not error.permanent:
            raise
        logger.warning("the owner of a failed endpoint cannot be told by mail: %s", error)
        return False
    return True
