"""How much of a reply is taken, whatever a server sends. Knows no vendor.

A broken or hostile server may send text without end, one line without end, or a few packed bytes that unfold to
gigabytes: each would take memory and processor from every other task of the worker. Replies are asked for
unpacked, and counted as they arrive.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx2

from workspaces.providers import faults

UNPACKED = {"Accept-Encoding": "identity"}  # request headers
MAX_STREAM_BYTES = 128 * 1024 * 1024  # a token travels in some 300 bytes
MAX_WHOLE_BYTES = MAX_LINE_BYTES = 16 * 1024 * 1024  # a reply, or an event of a stream, that is parsed at once
MAX_CHARS = 8_000_000  # of text and arguments
MAX_CALLS = 256  # in one reply


class _Counted(httpx2.AsyncByteStream):
    def __init__(self, response: httpx2.Response, where: str) -> None:
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        self._inner: httpx2.AsyncByteStream = response.stream
        self._where = where
        headers = response.headers
        self._packed = headers.get("content-encoding", "identity").strip().lower() not in ("", "identity")
        self._lines = "event-stream" in headers.get("content-type", "").lower()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if self._packed:
            raise faults.unreadable(self._where, "it came packed, which was not asked for")
        limit = MAX_STREAM_BYTES if self._lines else MAX_WHOLE_BYTES
        total = line = 0
        async for chunk in self._inner:
            total += len(chunk)
            last = chunk.rfind(b"\n")
            line = line + len(chunk) if last < 0 else len(chunk) - last - 1
            if total > limit or (self._lines and line > MAX_LINE_BYTES):
                raise faults.unreadable(self._where, f"it is larger than {limit // 1024**2} MB, or one line of it is")
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()


def counted(where: str) -> dict[str, list[Callable[..., Awaitable[Any]]]]:
    """The `event_hooks` of an HTTP client: every response is counted. Raises ProviderError while it is read."""

    async def hook(response: httpx2.Response) -> None:
        response.stream = _Counted(response, where)

    return {"response": [hook]}


def check_size(where: str, chars: int, calls: int) -> None:
    """Raises ProviderError when a reply holds more than anybody can have asked for."""
    if chars > MAX_CHARS:
        raise faults.unreadable(where, f"it has more than {MAX_CHARS:,} characters")
    if calls > MAX_CALLS:
        raise faults.unreadable(where, f"it holds more than {MAX_CALLS} tool calls")
