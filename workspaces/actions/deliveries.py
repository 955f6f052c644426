"""What is to be sent to which endpoint, and what became of each try."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from workspaces import dispatch
from workspaces.domain.endpoints import EndpointLinks, EndpointState
from workspaces.models import AlertChange, Delivery, Endpoint
from workspaces.queries.action_links import open_question

from .action_links import add_links, links_for, with_places

GIVEN_UP_AFTER = timedelta(hours=24)


def queue(change: AlertChange, endpoints: Iterable[Endpoint]) -> list[Delivery]:
    """Have the change told to each enabled endpoint, in the transaction that wrote it. Says `change.payload`."""
    enabled = [endpoint for endpoint in endpoints if endpoint.state == EndpointState.ENABLED.value]
    answering = any(endpoint.links == EndpointLinks.ANSWER.value for endpoint in enabled)
    asked = open_question(change.alert_id) if answering else None
    links = [links_for(endpoint, change.alert, now=change.at, asked=asked) for endpoint in enabled]
    rows = [
        Delivery(
            endpoint=endpoint,
            change=change,
            alert_id=change.alert_id,
            number=change.number,
            type=change.payload["type"],
            body=with_places(change.payload, mine),
            expires_at=change.at + GIVEN_UP_AFTER,
        )
        for endpoint, mine in zip(enabled, links, strict=True)
    ]
    made: list[Delivery] = Delivery.objects.bulk_create(rows)
    add_links(zip(made, links, strict=True))
    if made:
        dispatch.alerts()
    return made
