"""Links that act: what a message may offer, for how long, and what holds of one when it is opened. Pure.

A message that is stored holds the place of each link, never its token; the token is put in when it is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from workspaces.domain.alerts import AlertState
from workspaces.domain.endpoints import EndpointLinks, LinkAction
from workspaces.domain.escalations import DECISIONS, Decision
from workspaces.domain.states import EscalationKind

LASTS = timedelta(days=7)
ANSWER_LASTS = timedelta(hours=24)
CONFIRM_LASTS = timedelta(hours=48)
PLACE = "agentdesk-link:"  # and the uid in hex: where a token goes

ANSWERS: dict[LinkAction, Decision] = {LinkAction.APPROVE: Decision.APPROVE, LinkAction.REJECT: Decision.REJECT}


class Standing(StrEnum):
    """What holds of a link now. Only a GOOD one can be used."""

    GOOD = "good"
    USED = "used"
    EXPIRED = "expired"
    REVOKED = "revoked"
    DECIDED = "decided"  # somebody has done it, or it is over
    CHANGED = "changed"  # the arguments are not those that the message showed
    FORBIDDEN = "forbidden"  # whoever would act may not


STATUS: dict[Standing, int] = {  # of HTTP
    Standing.GOOD: 200,
    Standing.USED: 410,
    Standing.EXPIRED: 410,
    Standing.REVOKED: 410,
    Standing.DECIDED: 410,
    Standing.CHANGED: 410,
    Standing.FORBIDDEN: 403,
}


def offered(links: EndpointLinks, state: AlertState, asked: EscalationKind | None) -> tuple[LinkAction, ...]:
    """The links of a message. `asked`: of the one open question that its alert is about, if it is about one."""
    if links is EndpointLinks.NONE or state is AlertState.RESOLVED:
        return ()
    found = []
    if links is EndpointLinks.ANSWER and asked is not None:
        found += [action for action, decision in ANSWERS.items() if decision in DECISIONS[asked]]
    if state is not AlertState.ACKNOWLEDGED:
        found.append(LinkAction.ACKNOWLEDGE)
    return (*found, LinkAction.RESOLVE)


def expiry(action: LinkAction, now: datetime, deadline: datetime | None = None) -> datetime:
    """Until when it can be used. `deadline`: of the question that it answers."""
    if action in ANSWERS:
        return min(now + ANSWER_LASTS, deadline or now + ANSWER_LASTS)
    return now + (CONFIRM_LASTS if action is LinkAction.CONFIRM else LASTS)


def standing(
    *, used: bool, revoked: bool, expired: bool, decided: bool = False, changed: bool = False, allowed: bool = True
) -> Standing:
    """What is told first: that it was used, then that it cannot be, then that this person may not."""
    if used:
        return Standing.USED
    if revoked:
        return Standing.REVOKED
    if expired:
        return Standing.EXPIRED
    if not allowed:
        return Standing.FORBIDDEN
    if decided:
        return Standing.DECIDED
    return Standing.CHANGED if changed else Standing.GOOD


def place_of(uid_hex: str) -> str:
    return PLACE + uid_hex


def filled(body: Mapping[str, Any], address_of: Callable[[str], str]) -> dict[str, Any]:
    """A stored message as it is sent: each place under `data.links` becomes the address of its link.

    Only there, and only a whole value: what an agent writes is never looked at.
    """
    data = body.get("data")
    links = data.get("links") if isinstance(data, Mapping) else None
    if not isinstance(data, Mapping) or not isinstance(links, Mapping):
        return dict(body)
    full = {
        name: address_of(value.removeprefix(PLACE)) if isinstance(value, str) and value.startswith(PLACE) else value
        for name, value in links.items()
    }
    return {**body, "data": {**data, "links": full}}
