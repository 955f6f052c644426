"""An HTTP client that reaches only named hosts, at addresses that were checked: the very one it connects to.

A name is resolved once, here, and the connection goes to that address with the name in TLS and in Host, so that a
name server which changes its mind gains nothing. Private, loopback, link-local, multicast and metadata addresses are
refused (as by a sandbox's proxy, sandboxes/egress.py), but for places that the profile names in full where the site
allows their network. It never follows a redirect, reads no proxy from the environment and keeps no cookie.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import zlib
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any

import anyio
import httpcore2
import httpx2

from workspaces.sandboxes.egress import Policy, Refused
from workspaces.wire.driving import tls_context

CONNECT_S = 15.0
_SOCKET_ERRORS = (httpcore2.ConnectError, httpcore2.ConnectTimeout, OSError)


class NotAllowed(Exception):
    """The host or its address is not one that may be reached. Nothing was sent."""


class TooLarge(Exception):
    """More bytes came than the limit."""


class Guard:
    """`allow`: "host:port" or "*.domain:port". `private`: networks that a place named in full may lie in.

    `only_private`: it may lie nowhere else.
    """

    def __init__(self, allow: Sequence[str], private: Sequence[str] = (), *, only_private: bool = False) -> None:
        self._public = Policy(allow)
        self._private = Policy(allow, private)
        self._only_private = only_private

    def check_name(self, host: str, port: int) -> None:
        """Raises NotAllowed."""
        try:
            self._public.check_name(host, port)
        except Refused:
            raise NotAllowed(f"{host}:{port} is not on the list of hosts that may be reached") from None

    def check_address(self, host: str, port: int, address: str) -> None:
        """Raises NotAllowed."""
        named = f"{host}:{port}" in self._public.allow
        try:
            (self._private if named else self._public).check_address(address)
        except Refused as error:
            raise NotAllowed(f"{host}:{port} is refused: {error}") from None
        if self._only_private and not self._private.is_reachable(address):
            raise NotAllowed(f"{host}:{port} is refused: {address} is outside of the site's networks, and is no https")

    async def addresses(self, host: str, port: int) -> list[str]:
        """Those that may be connected to. Raises NotAllowed, and OSError where the name does not resolve."""
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, type=_STREAM)
        fine: list[str] = []
        refused: NotAllowed | None = None
        for *_, place in found:
            address = str(place[0])
            try:
                self.check_address(host, port, address)
            except NotAllowed as error:
                refused = error
            else:
                fine.append(address)
        if not fine:
            raise refused or NotAllowed(f"{host}:{port} has no address")
        return list(dict.fromkeys(fine))


class Wire:
    """What became of a client's requests, also where another library swallows the exception.

    `sent`: whether a byte of one may have reached a server. `refused`: why one was not made, or given up.
    `status`: of the newest answer. `address`: that was connected to last. `most_read_bytes`: of all that is read,
    headers among it; more raises TooLarge.
    """

    def __init__(self, *, most_read_bytes: int | None = None) -> None:
        self.sent = False
        self.refused = ""
        self.status = 0
        self.address = ""
        self.left_bytes = most_read_bytes


_STREAM = 1  # socket.SOCK_STREAM


class _Stream(httpcore2.AsyncNetworkStream):
    def __init__(self, inner: httpcore2.AsyncNetworkStream, wire: Wire) -> None:
        self.inner = inner
        self.wire = wire

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        chunk = await self.inner.read(max_bytes, timeout)
        if self.wire.left_bytes is not None:
            self.wire.left_bytes -= len(chunk)
            if self.wire.left_bytes < 0:
                raise TooLarge
        return chunk

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self.wire.sent = True
        await self.inner.write(buffer, timeout)

    async def aclose(self) -> None:
        await self.inner.aclose()

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.AsyncNetworkStream:
        return _Stream(await self.inner.start_tls(ssl_context, server_hostname, timeout), self.wire)

    def get_extra_info(self, info: str) -> Any:
        return self.inner.get_extra_info(info)


class _Backend(httpcore2.AsyncNetworkBackend):
    def __init__(self, guard: Guard, wire: Wire) -> None:
        self.guard = guard
        self.wire = wire
        self.inner = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        try:
            self.guard.check_name(host, port)
            with anyio.fail_after(timeout):
                addresses = await self.guard.addresses(host, port)
        except NotAllowed as error:
            self.wire.refused = str(error)
            raise
        except (OSError, UnicodeError):  # TimeoutError is one
            raise httpcore2.ConnectError(f"the name {host} does not resolve") from None
        for address in addresses[:-1]:
            with contextlib.suppress(*_SOCKET_ERRORS):
                return await self._connect(address, port, timeout, socket_options)
        return await self._connect(addresses[-1], port, timeout, socket_options)

    async def _connect(
        self, address: str, port: int, timeout: float | None, options: Iterable[Any] | None
    ) -> httpcore2.AsyncNetworkStream:
        self.wire.address = address
        inner = await self.inner.connect_tcp(address, port, timeout, socket_options=options)
        return _Stream(inner, self.wire)

    async def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: Iterable[Any] | None = None
    ) -> httpcore2.AsyncNetworkStream:
        raise NotAllowed("a local socket is no host")

    async def sleep(self, seconds: float) -> None:
        await self.inner.sleep(seconds)


class _Limited(httpx2.AsyncByteStream):
    """A response's bytes, up to the limit."""

    def __init__(self, inner: httpx2.AsyncByteStream, limit: int, wire: Wire) -> None:
        self.inner = inner
        self.left = limit
        self.wire = wire

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self.inner:
            self.left -= len(chunk)
            if self.left < 0:
                self.wire.refused = "the answer is larger than the limit"
                raise TooLarge
            yield chunk

    async def aclose(self) -> None:
        await self.inner.aclose()


class _Transport(httpx2.AsyncHTTPTransport):
    def __init__(self, guard: Guard, wire: Wire, limit_bytes: int | None) -> None:
        super().__init__(verify=tls_context(), trust_env=False)
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=tls_context(), network_backend=_Backend(guard, wire), http2=False, max_connections=8
        )
        self.wire = wire
        self.limit_bytes = limit_bytes

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await super().handle_async_request(request)
        self.wire.status = response.status_code
        if self.limit_bytes is not None:
            assert isinstance(response.stream, httpx2.AsyncByteStream)
            response.stream = _Limited(response.stream, self.limit_bytes, self.wire)
        return response


def guarded_client(
    guard: Guard, wire: Wire, *, read_s: float, connect_s: float = CONNECT_S, limit_bytes: int | None = None
) -> httpx2.AsyncClient:
    """`limit_bytes` of one response: more raises TooLarge in the midst of it. Use it as a context manager."""
    return httpx2.AsyncClient(
        transport=_Transport(guard, wire, limit_bytes),
        timeout=httpx2.Timeout(read_s, connect=min(connect_s, read_s)),
        follow_redirects=False,
        trust_env=False,
    )


async def bounded_body(response: httpx2.Response, limit: int) -> tuple[bytes, bool]:
    """The beginning of the body, decoded, and whether there was more. What cannot be decoded is left as it came."""
    raw, more = b"", False
    async for chunk in response.aiter_raw():
        raw += chunk
        if len(raw) > limit:
            raw, more = raw[:limit], True
            break
    coding = response.headers.get("content-encoding", "").strip().lower()
    if coding not in ("gzip", "deflate"):
        return raw, more
    try:
        unpacker = zlib.decompressobj(zlib.MAX_WBITS | 32)
        body = unpacker.decompress(raw, limit)  # a few bytes may stand for gigabytes
    except zlib.error:
        return raw, more
    return body, more or bool(unpacker.unconsumed_tail)
