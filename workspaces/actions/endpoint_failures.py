"""An endpoint that fails for long is sent nothing more, and somebody is told by another way. Sends nothing itself."""

from __future__ import annotations

from datetime import datetime, timedelta

from workspaces import dispatch
from workspaces.domain.alerts import AlertKind, Edge
from workspaces.domain.endpoints import DeliveryState, EndpointState
from workspaces.domain.incidents import Severity
from workspaces.models import Delivery, Endpoint

from .alert_signals import signal

FAILS_FOR = timedelta(hours=24)
_EARLY = timedelta(minutes=15)  # its first failure came somewhat after the message whose day is over


def failed_for_long(endpoint: Endpoint, now: datetime) -> bool:
    """Whether nothing has arrived there for a day, although it was tried."""
    return endpoint.failing_since is not None and now - endpoint.failing_since >= FAILS_FOR - _EARLY


def give_up_endpoint(endpoint: Endpoint, reason: str, now: datetime) -> int:
    """Under the endpoint's row lock. What waits for it is given up and can be sent again when it is enabled.

    Returns how many messages that were. The signal alerts by the rules' other endpoints and on the page.
    """
    if endpoint.state != EndpointState.ENABLED.value:
        return 0
    Endpoint.objects.filter(pk=endpoint.pk).update(
        state=EndpointState.FAILED.value, state_reason=reason, state_since=now, held_until=None, owner_told_at=None
    )
    endpoint.state = EndpointState.FAILED.value
    left = Delivery.objects.filter(endpoint=endpoint, state=DeliveryState.PENDING.value, alert__isnull=False).update(
        state=DeliveryState.FAILED.value, finished_at=now, error="Its endpoint was switched off: it failed."
    )
    signal(
        AlertKind.ENDPOINT_DISABLED,
        Edge.BEGAN,
        f"endpoint:{endpoint.pk}",
        words=f"The endpoint {endpoint.name} was switched off. {reason} Messages that were not sent: {left}.",
        severity=Severity.ERROR,
        endpoint=endpoint.pk,
        user=endpoint.owner_id,
    )
    dispatch.tell_owners()
    return left
