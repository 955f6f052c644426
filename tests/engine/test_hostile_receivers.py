"""Receivers that mean harm, are broken or hang: no try takes longer, keeps more or goes elsewhere than it may."""

from __future__ import annotations

import asyncio
import gzip
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.tools.http_server import Answer, RawServer, http
from tests.tools.test_http import resolving
from workspaces.actions.endpoint_addresses import read_address
from workspaces.actions.errors import Refused
from workspaces.domain.endpoints import AttemptOutcome as Out
from workspaces.domain.endpoints import EndpointKind
from workspaces.engine.transports import base, webhook
from workspaces.engine.transports import http as posting
from workspaces.engine.transports.base import NotSent, Parcel, Sent

LOOPBACK = ("127.0.0.0/8",)
SECRET = "whsec_" + "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
TOKEN = "https://desk.example/act/0123456789abcdef0123456789abcdef.SIGNATURE-of-it/"
BODY = {"type": "endpoint.test.v1", "timestamp": "2026-12-01T10:00:00.000Z", "data": {"links": {"resolve": TOKEN}}}
LIMIT_S = 1.0  # in place of 20 s


@pytest.fixture
def serve() -> Iterator[Callable[..., RawServer]]:
    made: list[RawServer] = []

    def start(**answers: bytes | Answer) -> RawServer:
        made.append(RawServer(**answers))
        return made[-1]

    yield start
    for server in made:
        server.close()


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(posting, "TOTAL_S", LIMIT_S)
    monkeypatch.setattr(posting, "BODY_S", 0.2)


def send(url: str, *, private: tuple[str, ...] = LOOPBACK, secrets: tuple[str, ...] = (SECRET,)) -> Sent:
    return asyncio.run(webhook.Webhook().send(parcel(url, private=private, secrets=secrets)))


def parcel(url: str, *, private: tuple[str, ...] = LOOPBACK, secrets: tuple[str, ...] = (SECRET,)) -> Parcel:
    return Parcel("msg_1", "endpoint.test.v1", BODY, url, secrets=secrets, tokens=(TOKEN,), private=private)


def failure(url: str, **more: Any) -> NotSent:
    with pytest.raises(NotSent) as raised:
        send(url, **more)
    return raised.value


# --- slow, endless, huge


def drip(connection: socket.socket, _: bytes) -> None:
    """A header that never ends, a byte at a time: no single read is slow."""
    connection.sendall(b"HTTP/1.1 200 OK\r\nX-Slow: ")
    for _ in range(600):
        connection.sendall(b"a")
        time.sleep(0.05)


def silent(connection: socket.socket, _: bytes) -> None:
    time.sleep(30)


def endless_headers(connection: socket.socket, _: bytes) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\n")
    while True:
        connection.sendall(b"X-More: " + b"m" * 8_000 + b"\r\n")


def only_hints(connection: socket.socket, _: bytes) -> None:
    while True:
        connection.sendall(b"HTTP/1.1 103 Early Hints\r\nLink: </x>; rel=preload\r\n\r\n" * 100)


@pytest.mark.parametrize("answer", [drip, silent])
def test_a_receiver_that_drips_or_is_silent_holds_a_try_no_longer_than_its_time(
    serve: Callable[..., RawServer], hurried: None, answer: Answer
) -> None:
    began = time.monotonic()
    error = failure(serve(x=answer).url("x"))
    assert error.outcome is Out.TIMEOUT
    assert not error.permanent
    assert time.monotonic() - began < 10 * LIMIT_S


@pytest.mark.parametrize("answer", [endless_headers, only_hints])
def test_a_receiver_that_says_too_much_is_left(serve: Callable[..., RawServer], answer: Answer) -> None:
    server = serve(x=answer)
    error = failure(server.url("x"))
    assert error.outcome is Out.CONNECTION
    assert server.gone.wait(30), "the connection is closed, and not read on"


def test_a_verdict_that_is_followed_by_an_endless_body_counts(serve: Callable[..., RawServer], hurried: None) -> None:
    def answer(connection: socket.socket, _: bytes) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n")
        while True:
            connection.sendall(b"x" * 100)
            time.sleep(0.01)

    server = serve(x=answer)
    sent = send(server.url("x"))
    assert sent.status == 200
    assert len(sent.response_body) <= base.KEPT_BYTES
    assert server.gone.wait(30)


def test_a_packed_gigabyte_is_never_unpacked(serve: Callable[..., RawServer]) -> None:
    bomb = gzip.compress(b"0" * 50_000_000)
    sent = send(serve(x=http(200, bomb, content_encoding="gzip")).url("x"))
    assert len(sent.response_body) <= base.KEPT_BYTES


def test_what_is_no_http_is_a_failure(serve: Callable[..., RawServer]) -> None:
    assert failure(serve(x=b"220 mail.example ESMTP\r\n").url("x")).outcome is Out.CONNECTION
    assert failure(serve(x=b"").url("x")).outcome is Out.CONNECTION


def test_nobody_there_is_a_failure_in_words() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    error = failure(f"http://127.0.0.1:{port}/x?key=k3y-of-the-address")
    assert error.outcome is Out.CONNECTION
    assert "k3y" not in str(error)


# --- what it says is kept short and without secrets


def test_what_a_receiver_repeats_brings_no_secret_onto_a_page(serve: Callable[..., RawServer]) -> None:
    def echo(connection: socket.socket, raw: bytes) -> None:
        connection.sendall(http(400, SECRET.encode() + b" " + raw, location=TOKEN, server="api_key=abcdef123456"))

    error = failure(serve(hook_0123456789=echo).url("hook_0123456789"))
    kept = f"{error} {error.heard.response_body} {error.heard.response_headers} {error.heard.request_headers}"
    for secret in (SECRET, TOKEN, "SIGNATURE-of-it", "abcdef123456", "hook_0123456789"):
        assert secret not in kept, secret
    assert "v1,…" in str(error.heard.request_headers)
    assert error.heard.status == 400


def test_what_no_database_can_hold_is_kept_as_something_it_can(serve: Callable[..., RawServer]) -> None:
    sent = send(serve(x=http(200, b"a\x00b\xff\xfe", server="x\xffy")).url("x"))
    assert "\x00" not in sent.response_body
    sent.response_body.encode()
    str(sent.response_headers).encode()


def test_no_header_comes_from_data_that_could_break_it(serve: Callable[..., RawServer]) -> None:
    server = serve(x=http(204))
    send(server.url("x?a=b%0d%0aX-Evil:%201"))
    head = server.seen[0].split("\r\n\r\n")[0].split("\n\n")[0]
    assert "X-Evil" not in head.replace("%20", " ").split("\r\n", 1)[1]
    for bad in ("x\r\nX-Evil: 1", "x y", "x\\y", "x\x7f"):
        assert failure(server.url(bad)).outcome is Out.FORBIDDEN


# --- where it may go


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "2130706433",
        "0x7f000001",
        "127.1",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:a9fe:a9fe]",
        "[64:ff9b::7f00:1]",
        "0.0.0.0",
        "10.0.0.1",
        "172.16.9.9",
        "192.168.0.1",
        "100.64.0.1",
        "169.254.169.254",
        "168.63.129.16",
        "[fe80::1]",
        "[fd00:ec2::254]",
        "224.0.0.1",
        "localhost",
    ],
)
def test_no_private_or_metadata_address_is_sent_to(serve: Callable[..., RawServer], host: str) -> None:
    server = serve(x=http(200))
    for scheme in ("http", "https"):
        error = failure(f"{scheme}://{host}:{server.port}/x", private=())
        assert error.outcome is Out.FORBIDDEN, error
        assert "Nothing was sent" in str(error) or "https://" in str(error)
    assert server.seen == []


def test_an_address_may_hold_no_name_and_password(serve: Callable[..., RawServer]) -> None:
    server = serve(x=http(200))
    error = failure(f"http://user:pass@127.0.0.1:{server.port}/x")
    assert error.outcome is Out.FORBIDDEN
    assert "pass@" not in str(error)
    assert server.seen == []


@pytest.mark.parametrize("place", ["1.1.1.1:99999", "1.1.1.1:0", "1.1.1.1:-1", ".."])
def test_an_address_names_a_host_and_a_port_that_there_can_be(place: str) -> None:
    assert failure(f"https://{place}/x").outcome is Out.FORBIDDEN
    with pytest.raises(Refused, match="must name a"):
        read_address(EndpointKind.WEBHOOK, f"https://{place}/x")


def test_a_name_that_changes_its_mind_gains_nothing(
    serve: Callable[..., RawServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Judged and connected to is one answer of the name server: a second one, private, is never asked for."""
    asked = resolving(monkeypatch, "127.0.0.1", "169.254.169.254")
    server = serve(x=http(200))
    sent = send(server.url("x", "rebinding.test"))
    assert asked == ["rebinding.test"]
    assert sent.address == "127.0.0.1"
    assert f"\r\nHost: rebinding.test:{server.port}\r\n" in server.seen[0]
    error = failure(server.url("x", "rebinding.test"))
    assert error.outcome is Out.FORBIDDEN
    assert len(server.seen) == 1


def test_only_the_networks_that_the_site_names_are_reached(
    serve: Callable[..., RawServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    resolving(monkeypatch, "127.0.0.1")
    server = serve(x=http(200))
    assert failure(server.url("x", "inner.test"), private=("10.0.0.0/8",)).outcome is Out.FORBIDDEN
    assert send(server.url("x", "inner.test"), private=("127.0.0.1/32",)).status == 200


def test_without_tls_nothing_leaves_the_sites_networks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Links that let people act are in it."""
    resolving(monkeypatch, "93.184.216.34")
    error = failure("http://public.test/x", private=("127.0.0.0/8",))
    assert error.outcome is Out.FORBIDDEN
    assert "https" in str(error)
    assert failure("http://public.test/x", private=()).outcome is Out.FORBIDDEN


def test_a_redirect_is_a_failure_and_is_not_followed(serve: Callable[..., RawServer]) -> None:
    target = serve(y=http(200))
    server = serve(x=http(307, location=target.url("y")))
    error = failure(server.url("x"))
    assert error.outcome is Out.REFUSED
    assert "not followed" in str(error)
    assert error.heard.status == 307
    assert target.seen == []


def test_a_proxy_of_the_environment_is_not_used(
    serve: Callable[..., RawServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy, server = serve(), serve(x=http(200))
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, proxy.url())
    assert send(server.url("x")).status == 200
    assert proxy.seen == []
