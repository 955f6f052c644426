"""The base of every socket: somebody who watches, and may leave at any moment.

What is sent to a page that has just been left is lost, and that is no failure: its disconnect follows, and ends the
loops. (The server raises an OSError for it, in the middle of whatever was being told.)
"""

from __future__ import annotations

import contextlib
from typing import Any

from channels.generic.websocket import AsyncWebsocketConsumer


class Watcher(AsyncWebsocketConsumer):
    async def send(self, *args: Any, **kwargs: Any) -> None:
        with contextlib.suppress(OSError):
            await super().send(*args, **kwargs)

    async def close(self, *args: Any, **kwargs: Any) -> None:
        with contextlib.suppress(OSError):
            await super().close(*args, **kwargs)
