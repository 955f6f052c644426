"""The proxy of an allow-list against requests that a server could read differently than it does."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from workspaces.sandboxes.egress import Log, Policy, Proxy


async def asked(request: bytes, folder: Path) -> tuple[bytes, list[bytes]]:
    """What the proxy answers, and what has reached the one server that is allowed (`PORT` in the request)."""
    received: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    served = Proxy(Policy([f"127.0.0.1:{port}"], ["127.0.0.0/8"]), Log(str(folder)))
    door = await asyncio.start_unix_server(served.serve, str(folder / "s"))
    reader, writer = await asyncio.open_unix_connection(str(folder / "s"))
    writer.write(request.replace(b"PORT", str(port).encode()))
    said = await asyncio.wait_for(reader.read(), 60)
    writer.close()
    door.close()
    server.close()
    return said, received


def test_a_request_is_forwarded_with_the_name_that_was_judged(tmp_path: Path) -> None:
    request = b"GET http://127.0.0.1:PORT/a?b HTTP/1.1\r\nhost: inside.example\r\nAccept: */*\r\nX-Empty:\r\n\r\n"
    said, received = asyncio.run(asked(request, tmp_path))
    assert said.startswith(b"HTTP/1.1 200")
    (head,) = received
    first, host, *rest = head.split(b"\r\n")
    assert first == b"GET /a?b HTTP/1.1"
    assert host.startswith(b"Host: 127.0.0.1:")
    assert rest == [b"Connection: close", b"Accept: */*", b"X-Empty:", b"", b""]


@pytest.mark.parametrize(
    "head",
    [
        b"GET http://127.0.0.1:PORT/ HTTP/1.1\r\nX: y\nHost: inside.example",
        b"GET http://127.0.0.1:PORT/ HTTP/1.1\r\nX: y\rHost: inside.example",
        b"GET http://127.0.0.1:PORT/ HTTP/1.1\r\nHost : inside.example",
        b"GET http://127.0.0.1:PORT/ HTTP/1.1\r\n Host: inside.example",
        b"GET http://127.0.0.1:PORT/ HTTP/1.1\r\nno header",
        b"GET\nX:1 http://127.0.0.1:PORT/ HTTP/1.1",
        b"GET http://127.0.0.1:PORT/ HTTP/9",
        b"GET  http://127.0.0.1:PORT/ HTTP/1.1",
        b"GET",
    ],
)
def test_a_request_with_a_second_reading_reaches_nobody(head: bytes, tmp_path: Path) -> None:
    said, received = asyncio.run(asked(head + b"\r\n\r\n", tmp_path))
    assert said.startswith(b"HTTP/1.1 400")
    assert received == []
