"""Which consumer answers which WebSocket address."""

from __future__ import annotations

from django.urls import path

from .consumers.fleet import FleetConsumer
from .consumers.inbox import InboxConsumer
from .task_routing import websocket_urlpatterns as task_patterns

websocket_urlpatterns = [
    path("ws/fleet/", FleetConsumer.as_asgi()),
    path("ws/inbox/", InboxConsumer.as_asgi()),
    *task_patterns,
]
