"""A WebSocket's client in tests, on asgiref (channels' own one would need daphne)."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import urlsplit

from asgiref.sync import sync_to_async
from asgiref.testing import ApplicationCommunicator
from django.conf import settings
from django.test import Client

from agentdesk.asgi import application
from tests.web.pages import Page
from workspaces.models import User


class Socket:
    """`async with Socket(path, user)`; `code` is what the server closed with, or None while it is open."""

    def __init__(self, path: str, user: User | None = None, *, origin: str = "http://localhost") -> None:
        self.path, self.user, self.origin = path, user, origin
        self.code: int | None = None

    async def __aenter__(self) -> Socket:
        cookie = await sync_to_async(_cookie)(self.user) if self.user else ""
        parts = urlsplit(self.path)
        scope = {
            "type": "websocket",
            "path": parts.path,
            "query_string": parts.query.encode(),
            "headers": [(b"host", b"localhost"), (b"origin", self.origin.encode()), (b"cookie", cookie.encode())],
            "subprotocols": [],
        }
        self.app = ApplicationCommunicator(application, scope)
        await self.app.send_input({"type": "websocket.connect"})
        first = await self.app.receive_output(timeout=10)
        self.code = first.get("code", 1000) if first["type"] == "websocket.close" else None
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self.app.send_input({"type": "websocket.disconnect", "code": self.code or 1001})
        await self.app.wait(timeout=5)

    async def send(self, text: str) -> None:
        await self.app.send_input({"type": "websocket.receive", "text": text})

    async def message(self, timeout_s: float = 10) -> str | None:
        """The next text; None when the server closed instead (`code` says with what)."""
        output = await self.app.receive_output(timeout=timeout_s)
        if output["type"] == "websocket.close":
            self.code = output.get("code", 1000)
            return None
        return str(output["text"])

    async def until(self, selector: str, *, within_s: float = 10) -> Page:
        """The first message that has such an element."""
        async with asyncio.timeout(within_s):
            while True:
                text = await self.message(timeout_s=within_s)
                assert text is not None, f"closed with {self.code} before {selector} came"
                seen = Page(text)
                if seen.all(selector):
                    return seen

    async def seen_within(self, seconds: float) -> list[Page]:
        """Everything that comes within that time; nothing may be read afterwards."""
        found: list[Page] = []
        end = asyncio.get_running_loop().time() + seconds
        while (left := end - asyncio.get_running_loop().time()) > 0:
            await asyncio.sleep(min(left, 0.05))
            while not self.app.output_queue.empty():
                text = await self.message()
                if text is None:
                    return found
                found.append(Page(text))
        return found


def _cookie(user: User) -> str:
    client = Client()
    client.force_login(user)
    name = settings.SESSION_COOKIE_NAME
    return f"{name}={client.cookies[name].value}"
