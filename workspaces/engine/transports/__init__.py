"""How a message gets to each kind of endpoint. Knows no table: the courier hands over what is needed."""

from __future__ import annotations

from workspaces.domain.endpoints import EndpointKind

from .base import NotSent, Parcel, Sent, Transport
from .email import Email
from .slack import Slack
from .webhook import Webhook

TRANSPORTS: dict[EndpointKind, Transport] = {
    EndpointKind.WEBHOOK: Webhook(),
    EndpointKind.SLACK: Slack(),
    EndpointKind.EMAIL: Email(),
}

__all__ = ["TRANSPORTS", "NotSent", "Parcel", "Sent", "Transport"]
