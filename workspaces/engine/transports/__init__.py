"""How a message gets to each kind of endpoint. Knows no table: the courier hands over what is needed."""

from __future__ import annotations

from workspaces.domain.endpoints import EndpointKind

from .base import NotSent, Parcel, Sent, Transport
from .webhook import Webhook

TRANSPORTS: dict[EndpointKind, Transport] = {EndpointKind.WEBHOOK: Webhook()}

__all__ = ["TRANSPORTS", "NotSent", "Parcel", "Sent", "Transport"]
