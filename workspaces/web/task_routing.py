"""Which consumer answers the WebSocket of a task."""

from __future__ import annotations

from django.urls import path

from .consumers.task import TaskConsumer

websocket_urlpatterns = [path("ws/tasks/<int:task_id>/", TaskConsumer.as_asgi())]
