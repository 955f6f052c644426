"""The ASGI application: pages by Django, sockets by Channels, only from our own origin and signed in."""

from __future__ import annotations

import os

from channels.auth import AuthMiddlewareStack
from channels.routing import ProtocolTypeRouter, URLRouter
from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "agentdesk.settings")
pages = get_asgi_application()  # sets Django up, which the consumers need

from agentdesk.origins import OwnOrigin  # noqa: E402
from workspaces.web.routing import websocket_urlpatterns  # noqa: E402

application = ProtocolTypeRouter(
    {
        "http": pages,
        "websocket": OwnOrigin(AuthMiddlewareStack(URLRouter(websocket_urlpatterns))),
    }
)
