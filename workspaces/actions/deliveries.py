"""What is to be sent to which endpoint, and what became of each try."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from workspaces import dispatch
from workspaces.domain.endpoints import EndpointState
from workspaces.models import AlertChange, Delivery, Endpoint

GIVEN_UP_AFTER = timedelta(hours=24)


def queue(change: AlertChange, endpoints: Iterable[Endpoint]) -> list[Delivery]:
    """Have the change told to each enabled endpoint, in the transaction that wrote it. Says `change.payload`."""
    rows = [
        Delivery(
            endpoint=endpoint,
            change=change,
            alert_id=change.alert_id,
            number=change.number,
            type=change.payload["type"],
            body=change.payload,
            expires_at=change.at + GIVEN_UP_AFTER,
        )
        for endpoint in endpoints
        if endpoint.state == EndpointState.ENABLED.value
    ]
    made: list[Delivery] = Delivery.objects.bulk_create(rows)
    if made:
        dispatch.alerts()
    return made
