"""Places that alerts are sent to: made, changed, given new secrets and removed by people. Sends nothing.

A secret is told to whoever calls, once: it lies sealed from then on, and nothing here gives it out again.
"""

from __future__ import annotations

import base64
import secrets
from datetime import timedelta
from typing import Any

from django.db import transaction

from workspaces import live
from workspaces.domain.alerts import AlertKind, Edge
from workspaces.domain.endpoints import DeliveryState, EndpointKind, EndpointLinks, EndpointState
from workspaces.models import AuditEntry, Delivery, Endpoint, EndpointSecret, User
from workspaces.models.profiles import seal
from workspaces.queries.access import own_endpoints

from .action_links import revoke_links
from .alert_signals import signal
from .clock import database_now
from .endpoint_addresses import read_address, shown_address
from .errors import Refused
from .words import taken

SECRET_BYTES = 32  # the specification asks for 24 to 64
NAME_CHARS = 120
MOST_OF_ONE_OWNER = 100
LONGEST_OVERLAP_S = 7 * 24 * 3600


def make_endpoint(
    *,
    kind: EndpointKind,
    name: str,
    address: str,
    owner: User | None,
    actor: User,
    links: EndpointLinks = EndpointLinks.ACKNOWLEDGE,
) -> tuple[Endpoint, str]:
    """The endpoint, and a webhook's signing secret, which is told this once; empty for other kinds. Raises Refused.

    An e-mail address is not written to until its owner has confirmed it.
    """
    if not (actor.is_staff if owner is None else owner.pk == actor.pk):
        raise Refused("Everybody makes endpoints of their own; those of the site are made by its staff.")
    fields = _address_fields(kind, address)
    with transaction.atomic():
        if Endpoint.objects.filter(owner=owner).exclude(state=_REMOVED).count() >= MOST_OF_ONE_OWNER:
            raise Refused(f"There are {MOST_OF_ONE_OWNER} endpoints already. Remove one that nobody needs.")
        now = database_now()
        endpoint = Endpoint.objects.create(
            kind=kind.value,
            name=_name(name),
            owner=owner,
            links=links.value,
            state=_first_state(kind).value,
            state_since=now,
            created_by=actor,
            **fields,
        )
        secret = _add_secret(endpoint, actor) if kind is EndpointKind.WEBHOOK else ""
        _audit("endpoint.make", endpoint, actor, "", {"to": _to(endpoint), "links": links.value})
    return endpoint, secret


def change_endpoint(
    endpoint_id: int,
    *,
    actor: User,
    name: str,
    links: EndpointLinks,
    address: str = "",
) -> Endpoint:
    """Raises Refused. An empty `address` leaves it. What is pending goes to the new one; a new mailbox is to be
    confirmed again. Links that were sent to an earlier address, or may do more than `links` says, end. Those of the
    site's endpoints act from then on as who changed that.
    """
    with transaction.atomic():
        endpoint = _taken_up(endpoint_id, actor)
        before = {"name": endpoint.name, "to": _to(endpoint), "links": endpoint.links}
        kind = EndpointKind(endpoint.kind)
        more = _allows(links) - _allows(EndpointLinks(endpoint.links))
        elsewhere = bool(address.strip()) and address.strip() != endpoint.address
        if more < 0:
            revoke_links(endpoint)
        if endpoint.owner_id is None and (more > 0 or elsewhere):
            endpoint.created_by = actor  # as whom its links act: who says where they go, and what they may
        endpoint.name, endpoint.links = _name(name), links.value
        if elsewhere:
            for field, value in _address_fields(kind, address).items():
                setattr(endpoint, field, value)
            endpoint.failing_since, endpoint.failures, endpoint.held_until = None, 0, None
            revoke_links(endpoint)
            _end_tests(endpoint)
            if kind is EndpointKind.EMAIL:
                _set_state(endpoint, EndpointState.UNCONFIRMED, "")
        after = {"name": endpoint.name, "to": _to(endpoint), "links": endpoint.links}
        endpoint.save()
        _audit("endpoint.change", endpoint, actor, "", {"before": before, "after": after})
    return endpoint


def rotate_secret(endpoint_id: int, *, actor: User, overlap_s: int) -> str:
    """The new secret, told this once. The old one stays valid for `overlap_s` and ends by itself. Raises Refused.

    Without an overlap it counts as leaked: links that were sent end as well.
    """
    if not 0 <= overlap_s <= LONGEST_OVERLAP_S:
        raise Refused("The old secret stays valid for at most 7 days.")
    with transaction.atomic():
        endpoint = _taken_up(endpoint_id, actor)
        if endpoint.kind != EndpointKind.WEBHOOK.value:
            raise Refused("Only webhooks are signed.")
        now = database_now()
        endpoint.secrets.filter(expires_at__isnull=False).delete()  # at most two are valid: the newest and the new one
        if overlap_s:
            endpoint.secrets.update(expires_at=now + timedelta(seconds=overlap_s))
            ended = 0
        else:  # it leaked, and messages with it
            endpoint.secrets.all().delete()
            ended = revoke_links(endpoint)
        secret = _add_secret(endpoint, actor)
        _audit("endpoint.rotate", endpoint, actor, "", {"overlap_s": overlap_s, "links_ended": ended})
    return secret


def drop_old_secret(endpoint_id: int, *, actor: User, reason: str) -> None:
    """The secret before the newest ends now. Raises Refused."""
    reason = _reason(reason)
    with transaction.atomic():
        endpoint = _taken_up(endpoint_id, actor)
        dropped, _ = endpoint.secrets.filter(expires_at__isnull=False).delete()
        if not dropped:
            raise Refused("There is one secret only.")
        _audit("endpoint.drop_secret", endpoint, actor, reason, {})


def disable_endpoint(endpoint_id: int, *, actor: User, reason: str) -> int:
    """Nothing is sent there until it is enabled, and links that were sent end. Raises Refused.

    Returns how many messages that waited are given up; they can be sent again by hand.
    """
    reason = _reason(reason)
    with transaction.atomic():
        endpoint = _taken_up(endpoint_id, actor)
        if endpoint.state not in (EndpointState.ENABLED.value, EndpointState.FAILED.value):
            raise Refused("It is off already.")
        _set_state(endpoint, EndpointState.DISABLED, f"Switched off by {actor.get_username()}: {reason}")
        revoke_links(endpoint)
        left = _end_waiting(endpoint, DeliveryState.FAILED, f"{endpoint.name} was switched off: {reason}")
        _audit("endpoint.disable", endpoint, actor, reason, {"given_up": left})
    return left


def enable_endpoint(endpoint_id: int, *, actor: User, reason: str = "") -> None:
    """Messages are sent there again from now on; what was given up is sent again by hand only. Raises Refused."""
    reason = taken(reason, "reason")
    with transaction.atomic():
        endpoint = _taken_up(endpoint_id, actor)
        if endpoint.state == EndpointState.UNCONFIRMED.value:
            raise Refused("Its address is to be confirmed first.")
        if endpoint.state == EndpointState.ENABLED.value:
            raise Refused("It is on already.")
        _set_state(endpoint, EndpointState.ENABLED, "")
        _audit("endpoint.enable", endpoint, actor, reason, {})


def remove_endpoint(endpoint_id: int, *, actor: User, reason: str) -> int:
    """Nothing is sent there any more, and its secrets are gone. What was sent stays readable. Raises Refused.

    Returns how many deliveries that were still to be made are cancelled.
    """
    reason = _reason(reason)
    with transaction.atomic():
        endpoint = _taken_up(endpoint_id, actor)
        endpoint.sealed_address = b""
        _set_state(endpoint, EndpointState.REMOVED, reason)
        endpoint.rules.clear()
        endpoint.secrets.all().delete()
        revoke_links(endpoint)
        cancelled = _end_waiting(endpoint, DeliveryState.CANCELLED, f"{endpoint.name} was removed.")
        _audit("endpoint.remove", endpoint, actor, reason, {"cancelled": cancelled})
    return cancelled


_REMOVED = EndpointState.REMOVED.value


def _set_state(endpoint: Endpoint, state: EndpointState, reason: str) -> None:
    """Saves all of it. That it was off because it failed is over, whatever it is now."""
    if endpoint.state == EndpointState.FAILED.value:
        words = f"The endpoint {endpoint.name} is {state.value}."
        signal(
            AlertKind.ENDPOINT_DISABLED,
            Edge.ENDED,
            f"endpoint:{endpoint.pk}",
            words=words,
            endpoint=endpoint.pk,
            user=endpoint.owner_id,
        )
    endpoint.state, endpoint.state_since, endpoint.state_reason = state.value, database_now(), reason
    endpoint.failing_since, endpoint.failures = None, 0
    endpoint.held_until = endpoint.owner_told_at = None
    endpoint.save()
    live.alerts_changed()


def _end_waiting(endpoint: Endpoint, state: DeliveryState, words: str) -> int:
    """What is under way is no longer ours to stop: its sender writes what came of it."""
    waits = Delivery.objects.filter(endpoint=endpoint, state=DeliveryState.PENDING.value)
    return waits.update(state=state.value, finished_at=database_now(), error=words)


def _end_tests(endpoint: Endpoint) -> None:
    """They were asked for where it led before; it may lead to somebody now who has not said yes."""
    waits = Delivery.objects.filter(endpoint=endpoint, alert=None, state=DeliveryState.PENDING.value)
    waits.update(
        state=DeliveryState.FAILED.value, finished_at=database_now(), error="Its endpoint leads elsewhere now."
    )


def _allows(links: EndpointLinks) -> int:
    return list(EndpointLinks).index(links)


def _first_state(kind: EndpointKind) -> EndpointState:
    return EndpointState.UNCONFIRMED if kind is EndpointKind.EMAIL else EndpointState.ENABLED


def _taken_up(endpoint_id: int, actor: User) -> Endpoint:
    """Locked. Raises Refused."""
    endpoint = (
        own_endpoints(actor).select_for_update(no_key=True).filter(pk=endpoint_id).exclude(state=_REMOVED).first()
    )
    if endpoint is None:
        raise Refused("This endpoint was removed, or is not yours to change.")
    return endpoint


def _address_fields(kind: EndpointKind, address: str) -> dict[str, Any]:
    """The columns that hold the address. Raises Refused."""
    read = read_address(kind, address)
    if kind is EndpointKind.SLACK:
        return {"address": shown_address(read), "sealed_address": seal(read)}
    return {"address": read, "sealed_address": b""}


def _add_secret(endpoint: Endpoint, actor: User) -> str:
    secret = f"whsec_{base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()}"
    EndpointSecret.objects.create(
        endpoint=endpoint, sealed=EndpointSecret.sealed_of(secret), hint=secret.rstrip("=")[-4:], created_by=actor
    )
    return secret


def _name(text: str) -> str:
    name = taken(text, "name", NAME_CHARS)
    if not name:
        raise Refused("Give the endpoint a name.")
    return " ".join(name.split())


def _reason(text: str) -> str:
    reason = taken(text, "reason")
    if not reason:
        raise Refused("Say why: the reason is kept in the audit log.")
    return reason


def _to(endpoint: Endpoint) -> str:
    """A webhook's path may be as good as a password; the audit log does without it."""
    return shown_address(endpoint.address) if endpoint.kind == EndpointKind.WEBHOOK.value else endpoint.address


def _audit(action: str, endpoint: Endpoint, actor: User, reason: str, data: dict[str, Any]) -> None:
    said = {"endpoint": endpoint.pk, "name": endpoint.name, "kind": endpoint.kind, **data}
    AuditEntry.objects.create(actor=actor, action=action, reason=reason, data=said, at=database_now())
