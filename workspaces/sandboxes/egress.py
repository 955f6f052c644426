"""The way out of a sandbox whose network is an allow-list: two small programs in one file, standard library only.

`egress.py proxy FOLDER` runs in a container of its own. It answers HTTP CONNECT and plain HTTP on a unix socket,
resolves names itself, connects only to hosts and ports on the list and never to private, loopback, link-local or
metadata addresses, and writes every connection down before it is made. `egress.py gate SOCKET PORT` runs inside the
sandbox, which has no network at all, and hands what arrives on a local port to that socket.

Runs alone, without the rest of the product. What it reads comes from an agent: nothing in it is trusted. A TLS tunnel
is not looked into: whoever serves an allowed name could pass on what is sent there.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import json
import os
import re
import socket
import sys
import time
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

HEAD_BYTES = 32 * 1024
HEAD_S = 15.0
CONNECT_S = 15.0
IDLE_S = 600.0
MOST_AT_ONCE = 64
SEGMENT_BYTES = 1024 * 1024
MOST_SEGMENTS = 32
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_UNICAST6 = ipaddress.ip_network("2000::/3")  # all that the internet routes; site-local and the like lie outside
_NEVER = [ipaddress.ip_network(one) for one in ("168.63.129.16/32", "192.0.0.0/24")]  # metadata of Azure, of Oracle
_TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"  # RFC 9110, 5.6.2
_FIRST = re.compile(_TOKEN + rb" [\x21-\x7e\x80-\xff]+ HTTP/1\.[01]")
_HEADER = re.compile(_TOKEN + rb":[^\r\n\x00]*")
_NOT_FORWARDED = (b"proxy-", b"connection:", b"keep-alive:", b"host:", b"te:", b"upgrade:")


class Refused(Exception):
    """The connection is not made; the text says why."""


class Policy:
    """`allow`: "host:port" or "*.domain:port"; `reachable`: networks that may be reached although they are private."""

    def __init__(self, allow: Sequence[str], reachable: Sequence[str] = ()) -> None:
        self.allow = frozenset(allow)
        self.reachable = [ipaddress.ip_network(network) for network in reachable]

    def check_name(self, host: str, port: int) -> None:
        parents = host.split(".")
        names = [host, *(f"*.{'.'.join(parents[at:])}" for at in range(1, len(parents)))]
        if not any(f"{name}:{port}" in self.allow for name in names):
            raise Refused("not on the workspace's list")

    def check_address(self, text: str) -> None:
        if self.is_reachable(text):
            return
        address = plain_address(text)
        outside = address.version == 6 and address not in _UNICAST6
        never = any(address in network for network in _NEVER if network.version == address.version)
        if outside or never or not address.is_global or address.is_multicast:
            raise Refused(f"{text} is a private, local or metadata address")

    def is_reachable(self, text: str) -> bool:
        """Whether it lies in a network that is named, private or not."""
        address = plain_address(text)
        return any(address in network for network in self.reachable if network.version == address.version)


def plain_address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """With an IPv4 address that is wrapped in an IPv6 one taken out."""
    address = ipaddress.ip_address(text.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address):
        if address in _NAT64:
            return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        inner = address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else None)
        return inner or address
    return address


class Log:
    """Lines of JSON in numbered files. The reader deletes those that it is done with; too many unread: no way out."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        numbers = self._numbers()
        self.number = numbers[-1] if numbers else 1

    def write(self, **line: Any) -> None:
        """Raises OSError."""
        path = self._path(self.number)
        if os.path.exists(path) and os.path.getsize(path) > SEGMENT_BYTES:
            self.number += 1
            path = self._path(self.number)
        if len(self._numbers()) > MOST_SEGMENTS:
            raise OSError("the log is full and nobody reads it")
        text = json.dumps({"at": round(time.time(), 3), **line}).encode() + b"\n"
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            if os.write(handle, text) != len(text):
                raise OSError("the log cannot be written")
        finally:
            os.close(handle)

    def _path(self, number: int) -> str:
        return os.path.join(self.folder, f"{number:08d}.jsonl")

    def _numbers(self) -> list[int]:
        return sorted(int(name.partition(".")[0]) for name in os.listdir(self.folder) if name.endswith(".jsonl"))


class Proxy:
    def __init__(self, policy: Policy, log: Log) -> None:
        self.policy = policy
        self.log = log
        self.open = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        try:
            await self._serve(reader, writer)
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError):
            pass  # the client is gone, or does not speak HTTP: nothing was connected
        finally:
            self.open -= 1
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), HEAD_S)
        first, *headers = head[:-4].split(b"\r\n")
        try:
            if not _FIRST.fullmatch(first) or not all(map(_HEADER.fullmatch, headers)):
                raise ValueError("two programs could read it differently")
            method, target, _ = first.decode("latin-1").split(" ")
            host, port, path = where(method, target)
        except ValueError:
            await _answer(writer, 400, "this is a proxy: ask it for http://host/path, or to CONNECT host:port")
            return
        told = {"host": host[:253], "port": port, "method": method[:16]}
        try:
            if self.open > MOST_AT_ONCE:
                raise Refused(f"more than {MOST_AT_ONCE} connections at once")
            self.policy.check_name(host, port)
            address = await self._resolve(host, port)
        except Refused as refused:
            self.log.write(**told, allowed=False, why=str(refused))
            await _answer(writer, 403, f"{host}:{port} is refused: {refused}")
            return
        self.log.write(**told, allowed=True, address=address)
        try:
            there = await asyncio.wait_for(asyncio.open_connection(address, port), CONNECT_S)
        except (TimeoutError, OSError) as error:
            await _answer(writer, 502, f"{host}:{port} cannot be reached: {error or 'no answer'}")
            return
        if method == "CONNECT":
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        else:
            there[1].write(_forwarded(method, path, host, port, headers))
        await join((reader, writer), there)

    async def _resolve(self, host: str, port: int) -> str:
        """An address that may be reached. That very one is connected to, so a name cannot change in between."""
        loop = asyncio.get_running_loop()
        try:
            found = await asyncio.wait_for(loop.getaddrinfo(host, port, type=socket.SOCK_STREAM), CONNECT_S)
        except (TimeoutError, OSError, UnicodeError):
            raise Refused("the name does not resolve") from None
        refused = Refused("the name does not resolve")
        for *_, place in sorted(found, key=lambda row: row[0] != socket.AF_INET):
            try:
                self.policy.check_address(str(place[0]))
            except Refused as error:
                refused = error
            else:
                return str(place[0])
        raise refused


def where(method: str, target: str) -> tuple[str, int, str]:
    """Host, port and path of a request to a proxy. Raises ValueError."""
    parts = urlsplit(f"//{target}" if method == "CONNECT" else target)
    if method != "CONNECT" and parts.scheme != "http":
        raise ValueError("no absolute address")
    port = parts.port if parts.port is not None else (80 if method != "CONNECT" else 0)
    host = (parts.hostname or "").rstrip(".").encode("idna").decode() if parts.hostname else ""
    if not host or not port or parts.username is not None:
        raise ValueError("no host and port")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return host.lower(), port, path


def _forwarded(method: str, path: str, host: str, port: int, headers: Sequence[bytes]) -> bytes:
    """The request for the server itself; one a connection, so that the next one is judged anew."""
    kept = [line for line in headers if not line.lower().startswith(_NOT_FORWARDED)]
    name = f"[{host}]" if ":" in host else host
    lines = [f"{method} {path} HTTP/1.1", f"Host: {name if port == 80 else f'{name}:{port}'}", "Connection: close"]
    return b"\r\n".join([*(line.encode("latin-1") for line in lines), *kept]) + b"\r\n\r\n"


async def _answer(writer: asyncio.StreamWriter, status: int, text: str) -> None:
    body = f"{text}\n".encode()
    reason = {400: "Bad Request", 403: "Forbidden", 502: "Bad Gateway"}[status]
    head = f"HTTP/1.1 {status} {reason}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
    writer.write(f"{head}X-Agentdesk: network policy\r\nConnection: close\r\n\r\n".encode() + body)
    await writer.drain()


Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def join(one: Ends, other: Ends) -> None:
    """Both ways, until both sides have said all, or nothing was said for long."""
    try:
        await asyncio.gather(_copy(one[0], other[1]), _copy(other[0], one[1]))
    finally:
        for _, writer in (one, other):
            writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError, asyncio.TimeoutError):
        while data := await asyncio.wait_for(reader.read(65536), IDLE_S):
            writer.write(data)
            await writer.drain()
    with contextlib.suppress(OSError, RuntimeError):
        writer.write_eof()


async def proxy(folder: str) -> None:
    with open(os.path.join(folder, "policy", "policy.json"), encoding="utf-8") as file:
        said = json.load(file)
    served = Proxy(Policy(said["allow"], said["reachable"]), Log(os.path.join(folder, "log")))
    door = os.path.join(folder, "door", "s")
    with contextlib.suppress(FileNotFoundError):
        os.unlink(door)
    server = await asyncio.start_unix_server(served.serve, f"{door}.new", limit=HEAD_BYTES)
    os.chmod(f"{door}.new", 0o666)  # noqa: S103 - the gate and the agent are other users
    os.rename(f"{door}.new", door)
    await server.serve_forever()


async def gate(door: str, port: int) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there = await asyncio.open_unix_connection(door)
        except OSError:
            writer.close()
            return
        await join((reader, writer), there)

    server = await asyncio.start_server(serve, "127.0.0.1", port)
    print("ready", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    if sys.argv[1] == "proxy":
        asyncio.run(proxy(sys.argv[2]))
    else:
        asyncio.run(gate(sys.argv[2], int(sys.argv[3])))
