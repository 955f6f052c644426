"""Which consumer answers which WebSocket address."""

from __future__ import annotations

from channels.generic.websocket import AsyncWebsocketConsumer
from django.urls import path, re_path

from .consumers.alerts import AlertConsumer, AlertsConsumer, BellConsumer
from .consumers.fleet import FleetConsumer
from .consumers.inbox import InboxConsumer
from .consumers.incidents import IncidentConsumer, IncidentsConsumer
from .consumers.quota import PoolConsumer, QuotaConsumer
from .consumers.terminal import TerminalConsumer
from .task_routing import websocket_urlpatterns as task_patterns


class Nowhere(AsyncWebsocketConsumer):
    """There is no such socket: refused in the handshake. (The router itself would answer with an exception.)"""

    async def connect(self) -> None:
        await self.close()


websocket_urlpatterns = [
    path("ws/bell/", BellConsumer.as_asgi()),
    path("ws/alerts/", AlertsConsumer.as_asgi()),
    path("ws/alerts/<int:alert_id>/", AlertConsumer.as_asgi()),
    path("ws/fleet/", FleetConsumer.as_asgi()),
    path("ws/inbox/", InboxConsumer.as_asgi()),
    path("ws/incidents/", IncidentsConsumer.as_asgi()),
    path("ws/incidents/<int:incident_id>/", IncidentConsumer.as_asgi()),
    path("ws/quota/", QuotaConsumer.as_asgi()),
    path("ws/quota/<int:pool_id>/", PoolConsumer.as_asgi()),
    path("ws/workspaces/<int:workspace_id>/terminal/", TerminalConsumer.as_asgi()),
    *task_patterns,
    re_path("", Nowhere.as_asgi()),
]
