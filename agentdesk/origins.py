"""Which pages may open a socket: our own, by the rule that Django has for forms. Looks at no cookie.

A browser sends a user's cookies along with a socket that any page opens, and cookies do not tell ports apart: a page
of another port of this host is another site.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from channels.security.websocket import WebsocketDenier
from django.conf import settings
from django.http.request import split_domain_port, validate_host


class OwnOrigin:
    """ASGI middleware: a handshake from elsewhere, or without an Origin, is refused."""

    def __init__(self, application: Any) -> None:
        self.application = application

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> Any:
        headers = dict(scope.get("headers", []))
        origin = headers.get(b"origin", b"").decode("latin-1").lower()
        host = headers.get(b"host", b"").decode("latin-1").lower()
        inner = self.application if is_own(origin, host) else WebsocketDenier()
        return await inner(scope, receive, send)


def is_own(origin: str, host: str) -> bool:
    """`origin` and `host` are the lower-case headers of those names."""
    if origin in settings.CSRF_TRUSTED_ORIGINS:
        return True
    domain, _ = split_domain_port(host)
    if not domain or not validate_host(domain, settings.ALLOWED_HOSTS):
        return False
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and parts.netloc == host
