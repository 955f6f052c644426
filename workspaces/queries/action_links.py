"""Links that act: their tokens, and what holds of one for the person who would act by it. Writes nothing.

A token is signed from its row's uid and is stored nowhere. The same row gives the same token, so that a message which
is sent again is the same to the byte.
"""

from __future__ import annotations

import uuid
from datetime import datetime
from functools import cache
from hashlib import sha256
from typing import Any

from django.conf import settings
from django.core.signing import BadSignature, Signer

from workspaces.domain.action_links import ANSWERS, Standing, filled, standing
from workspaces.domain.alerts import AlertState
from workspaces.domain.endpoints import EndpointState, LinkAction
from workspaces.domain.escalations import DECISIONS
from workspaces.domain.policy import Approver
from workspaces.domain.states import EscalationKind, EscalationStatus
from workspaces.models import ActionLink, Alert, AlertMember, Endpoint, Escalation, User

from .access import may_operate, visible_alerts
from .alerts import may_act
from .approvals import is_owner

SALT = "agentdesk.action-link"
TOKEN_CHARS = 200
RELATED = (
    *("endpoint__owner", "acts_as", "used_by", "alert__rule", "alert__workspace", "alert__acknowledged_by"),
    *("alert__resolved_by", "escalation__task__workspace", "escalation__tool_call__step", "escalation__answered_by"),
    *("escalation__first_approved_by", "escalation__task__profile_version__profile"),
)


@cache
def _signer(key: str, fallbacks: tuple[str, ...]) -> Signer:
    return Signer(key=key, fallback_keys=list(fallbacks), sep=".", salt=SALT)


def token_of(uid: uuid.UUID) -> str:
    return _signer(settings.SECRET_KEY, tuple(settings.SECRET_KEY_FALLBACKS)).sign(uid.hex)


def uid_in(token: str) -> uuid.UUID | None:
    """None: it was not made here, or not so."""
    if len(token) > TOKEN_CHARS or not token.isascii():
        return None
    try:
        return uuid.UUID(_signer(settings.SECRET_KEY, tuple(settings.SECRET_KEY_FALLBACKS)).unsign(token))
    except (BadSignature, ValueError):
        return None


def url_of(uid: uuid.UUID | str) -> str:
    """The address that is put into a message when it is sent: never stored, shown or logged."""
    return f"{settings.PUBLIC_URL}/act/{token_of(uuid.UUID(str(uid)))}/"


def with_tokens(body: dict[str, Any]) -> dict[str, Any]:
    """A delivery's body as it is sent: with the links themselves in their places."""
    return filled(body, url_of)


def link_of(token: str) -> ActionLink | None:
    uid = uid_in(token)
    return None if uid is None else ActionLink.objects.select_related(*RELATED).filter(uid=uid).first()


def open_question(alert_id: int) -> Escalation | None:
    """The one open question that the alert is about, besides whatever else; None where there are none or several."""
    asked = AlertMember.objects.filter(alert=alert_id, ended_at=None, escalation__isnull=False).values("escalation")
    found = Escalation.objects.filter(pk__in=asked, status=EscalationStatus.OPEN.value)
    first, *more = found.select_related("tool_call", "task__workspace").order_by("pk")[:2] or [None]
    return None if more else first


def may_settle(user: User, alert: Alert) -> bool:
    """Acknowledge and resolve, as on the alert's own page."""
    return user.is_active and visible_alerts(user).filter(pk=alert.pk).exists() and may_act(user, alert)


def standing_of(link: ActionLink, person: User, now: datetime, *, signed_in: bool) -> Standing:
    """What holds of the link for `person`. `signed_in`: that person is; else the link is all that speaks for them."""
    decided, changed, allowed = _of_its_object(link, person)
    return standing(
        used=link.used_at is not None,
        revoked=link.revoked_at is not None or not _endpoint_stands(link),
        expired=link.expires_at <= now,
        decided=decided,
        changed=changed,
        allowed=allowed and (signed_in or not says_too_little(link)),
    )


def says_too_little(link: ActionLink) -> bool:
    """Two people have to approve the call, and many may read where the link was sent: one of them could use it as
    somebody else after having approved already."""
    asked = link.escalation
    two = asked is not None and asked.approver == Approver.TWO_PERSONS.value
    return two and link.action == LinkAction.APPROVE.value and link.endpoint.owner_id != link.acts_as_id


def _endpoint_stands(link: ActionLink) -> bool:
    wanted = EndpointState.UNCONFIRMED if link.action == LinkAction.CONFIRM.value else EndpointState.ENABLED
    if link.action == LinkAction.CONFIRM.value and link.endpoint.state == EndpointState.ENABLED.value:
        return True  # confirmed meanwhile: said so
    return link.endpoint.state == wanted.value


def _of_its_object(link: ActionLink, person: User) -> tuple[bool, bool, bool]:
    """Of what it acts on: decided, changed, and whether the person may."""
    action = LinkAction(link.action)
    if action is LinkAction.CONFIRM:
        confirmed = link.endpoint.state == EndpointState.ENABLED.value
        return confirmed, link.arguments_hash != address_hash(link.endpoint), True
    if action in ANSWERS:
        asked = link.escalation
        if asked is None:
            return True, False, True
        open_ = asked.status == EscalationStatus.OPEN.value
        call = asked.tool_call
        approves = action is LinkAction.APPROVE
        changed = approves and (call is None or call.arguments_hash != link.arguments_hash)
        mine = approves and asked.first_approved_by_id == person.pk and open_
        return not open_ or mine or not _takes(asked, action), changed, may_answer(person, asked, action)
    alert = link.alert
    if alert is None:
        return True, False, True
    over = {AlertState.RESOLVED.value}
    if action is LinkAction.ACKNOWLEDGE:
        over.add(AlertState.ACKNOWLEDGED.value)
    return alert.state in over, False, may_settle(person, alert)


def _takes(asked: Escalation, action: LinkAction) -> bool:
    return ANSWERS[action] in DECISIONS[EscalationKind(asked.kind)]


def may_answer(person: User, asked: Escalation, action: LinkAction) -> bool:
    if not person.is_active or not may_operate(person, asked.task.workspace):
        return False
    owners_only = action is LinkAction.APPROVE and asked.approver == Approver.OWNER.value
    return not owners_only or is_owner(person, asked)


def address_hash(endpoint: Endpoint) -> str:
    """What the confirmation of an address is bound to."""
    return sha256(endpoint.address.strip().lower().encode()).hexdigest()
