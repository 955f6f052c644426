"""Links that act: made with the message that carries them, and revoked. They are used in link_use.py."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from workspaces.domain.action_links import ANSWERS, expiry, offered, place_of
from workspaces.domain.alerts import AlertState
from workspaces.domain.endpoints import EndpointLinks, LinkAction
from workspaces.domain.states import EscalationKind
from workspaces.models import ActionLink, Alert, Delivery, Endpoint, Escalation
from workspaces.queries.action_links import may_answer

from .clock import database_now


def links_for(endpoint: Endpoint, alert: Alert, *, now: datetime, asked: Escalation | None = None) -> list[ActionLink]:
    """The links that a message about `alert` to `endpoint` carries, not yet saved (`add_links`).

    `asked`: the one open question that the alert is about (queries/action_links.open_question). An answer is only
    offered where the person that the link acts as might give it.
    """
    person = endpoint.owner or endpoint.created_by
    kind = EscalationKind(asked.kind) if asked is not None else None
    made = []
    for action in offered(EndpointLinks(endpoint.links), AlertState(alert.state), kind):
        answers = asked if action in ANSWERS else None
        if answers is not None and not may_answer(person, answers, action):
            continue
        call = answers.tool_call if answers is not None else None
        made.append(
            ActionLink(
                action=action.value,
                endpoint=endpoint,
                alert=alert,
                escalation=answers,
                arguments_hash=call.arguments_hash if call is not None and action is LinkAction.APPROVE else "",
                acts_as=person,
                expires_at=expiry(action, now, answers.deadline if answers else None),
            )
        )
    return made


def with_places(payload: Mapping[str, Any], links: Iterable[ActionLink]) -> dict[str, Any]:
    """The payload as one endpoint's delivery keeps it: each link's place by what it does."""
    places = {link.action: place_of(link.uid.hex) for link in links}
    return {**payload, "data": {**payload["data"], "links": places}} if places else dict(payload)


def add_links(made: Iterable[tuple[Delivery, list[ActionLink]]]) -> None:
    """Save what `links_for` made, in the transaction that saved the deliveries."""
    rows = []
    for delivery, links in made:
        for link in links:
            link.delivery = delivery
            rows.append(link)
    if rows:
        ActionLink.objects.bulk_create(rows)


def revoke_links(endpoint: Endpoint) -> int:
    """None of the links that were ever sent there can be used from now on; returns how many could have been.

    For an endpoint that is disabled or removed, whose address changed, or whose secret or messages leaked: called in
    the transaction of that change, which writes the audit entry.
    """
    left = ActionLink.objects.filter(endpoint=endpoint, used_at=None, revoked_at=None)
    return left.update(revoked_at=database_now())
