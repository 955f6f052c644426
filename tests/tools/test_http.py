"""http_request against real servers on the loopback: where it may go, what it says of what came, what stays hidden."""

from __future__ import annotations

import gzip
import itertools
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.harness import eventually
from tests.tools.conftest import Scratchpad
from tests.tools.http_server import JSON, Answer, RawServer, http
from workspaces.domain.effects import Effect
from workspaces.domain.http_rules import BadRules, read_http_rules
from workspaces.domain.results import ResultClass as R
from workspaces.sandboxes.base import ExecInterrupted, SandboxSpec
from workspaces.sandboxes.local import LocalDriver
from workspaces.tools.base import OutcomeUnknown, ToolContext, ToolResult
from workspaces.tools.http import HttpRequest
from workspaces.wire.guarded import Guard, NotAllowed

LOOPBACK = ("127.0.0.0/8",)
SEEN = "Bearer s3cret-of-the-profile"
_numbers = itertools.count(1)


@pytest.fixture
def serve() -> Iterator[Callable[..., RawServer]]:
    made: list[RawServer] = []

    def start(**answers: bytes | Answer) -> RawServer:
        made.append(RawServer(**answers))
        return made[-1]

    yield start
    for server in made:
        server.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A disk; nothing is ever started on it."""
    driver = LocalDriver(Path(tmp_path_factory.mktemp("http")))
    sandbox = driver.open(SandboxSpec("http"))
    yield sandbox
    sandbox.destroy()
    driver.close()


def rules(*servers: RawServer, **more: Any) -> dict[str, Any]:
    return {
        "allow": [f"127.0.0.1:{server.port}" for server in servers],
        "methods": ["GET", "HEAD", "POST", "DELETE"],
        "timeout_s": 20,
    } | more


def ask(
    said: Mapping[str, Any],
    url: str,
    *,
    method: str = "GET",
    private: tuple[str, ...] = LOOPBACK,
    interrupt: threading.Event | None = None,
    sandbox: Any = None,
    **arguments: Any,
) -> ToolResult:
    tool = HttpRequest(read_http_rules(said), private)
    arguments = {"method": method, "url": url, **arguments}
    assert tool.spec.problems_of(arguments) == []
    key = f"c{next(_numbers)}"
    context = ToolContext(key, sandbox, Scratchpad(), interrupt=interrupt, idempotency_key="effect-1")
    return tool.run(arguments, context)


def problems(arguments: Mapping[str, Any], **said: Any) -> str:
    tool = HttpRequest(read_http_rules({"allow": ["api.example.com", "*.example.org"], **said}))
    return " | ".join(
        map(str, tool.spec.problems_of({"method": "GET", "url": "https://api.example.com/", **arguments}))
    )


# --- before anything is sent


@pytest.mark.parametrize(
    ("method", "more", "effect"),
    [
        ("GET", {}, Effect.NONE),
        ("GET", {"save_to": "a.bin"}, Effect.WORKSPACE),
        ("HEAD", {}, Effect.NONE),
        ("POST", {}, Effect.EXTERNAL),
        ("DELETE", {}, Effect.IRREVERSIBLE),
    ],
)
def test_the_method_decides_the_effect_and_the_profile_may_say_otherwise(
    method: str, more: dict[str, str], effect: Effect
) -> None:
    said = {"allow": ["a.example"], "methods": ["GET", "HEAD", "POST", "DELETE"], "effects": {"DELETE": "irreversible"}}
    tool = HttpRequest(read_http_rules(said))
    assert tool.spec.effect_of({"method": method, "url": "https://a.example/", **more}) is effect
    assert tool.spec.effect is Effect.IRREVERSIBLE


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ({"url": "https://evil.example/"}, "not on the list"),
        ({"url": "https://api.example.com:8443/"}, "not on the list"),
        ({"url": "https://example.org/"}, "not on the list"),
        ({"url": "https://api.example.com.evil.example/"}, "not on the list"),
        ({"url": "https://api.example.com@evil.example/"}, "name or password"),
        ({"url": "https://evil.example\\@api.example.com/"}, "backslash"),
        ({"url": "https://api.example.com/\r\nX: y"}, "control character"),
        ({"url": "https://127.0.0.1/"}, "not on the list"),
        ({"url": "https://2130706433/"}, "not on the list"),
        ({"url": "file:///etc/passwd"}, "must begin with https"),
        ({"url": "https:///a"}, "name a host"),
        ({"url": "https://[::1/"}, "no address"),
        ({"headers": {"X-A": "a\r\nX-B: b"}}, "one line"),
        ({"headers": {"X-A\r\nX-B": "b"}}, "not a header's name"),
        ({"headers": {"Host": "evil.example"}}, "set by the request"),
        ({"headers": {"transfer-encoding": "chunked"}}, "set by the request"),
        ({"headers": {"authorization": "mine"}}, "set by the profile"),
        ({"body": "x"}, "carries no body"),
        ({"method": "POST"}, "method"),
    ],
)
def test_a_request_that_may_not_go_there_is_refused_before_it_is_made(arguments: dict[str, Any], word: str) -> None:
    assert word in problems(arguments, headers={"api.example.com": {"Authorization": SEEN}})


def test_what_is_allowed_has_no_problems() -> None:
    assert problems({"url": "https://a.b.example.org/x?q=%20#part", "headers": {"Accept": "text/plain"}}) == ""
    assert problems({"url": "HTTP://API.Example.COM./x"}) == ""


@pytest.mark.parametrize(
    ("said", "field"),
    [
        ({}, "allow"),
        ({"allow": []}, "allow"),
        ({"allow": ["http://a.example/x"]}, "allow"),
        ({"allow": ["*.com"]}, "allow"),
        ({"allow": ["a.example"], "methods": ["TRACE"]}, "methods"),
        ({"allow": ["a.example"], "effects": {"POST": "external"}}, "effects"),
        ({"allow": ["a.example"], "effects": {"GET": "harmless"}}, "effects"),
        ({"allow": ["a.example"], "headers": {"b.example": {"X": "y"}}}, "headers"),
        ({"allow": ["a.example"], "headers": {"a.example": {"X": "y\nz"}}}, "headers"),
        ({"allow": ["a.example"], "headers": {"a.example": {"Host": "y"}}}, "headers"),
        ({"allow": ["a.example"], "timeout_s": 0}, "timeout_s"),
        ({"allow": ["a.example"], "redirects": True}, "redirects"),
        ({"allow": ["a.example"], "max_response_bytes": 1e12}, "max_response_bytes"),
        ({"allow": ["a.example"], "alow": []}, "alow"),
    ],
)
def test_wrong_rules_name_their_field_and_hold_no_value(said: dict[str, Any], field: str) -> None:
    with pytest.raises(BadRules) as raised:
        read_http_rules(said)
    assert raised.value.field == field


def test_a_key_goes_to_its_own_host_and_over_https_unless_a_port_is_named() -> None:
    found = read_http_rules(
        {
            "allow": ["a.example", "b.example:81", "*.c.example"],
            "headers": {"a.example": {"K": "a"}, "b.example:81": {"K": "b"}, "*.c.example": {"K": "c"}},
        }
    )
    assert found.headers_for("https", "a.example", 443) == {"K": "a"}
    assert found.headers_for("http", "a.example", 80) == {}
    assert found.headers_for("http", "b.example", 81) == {"K": "b"}
    assert found.headers_for("https", "x.c.example", 443) == {"K": "c"}
    assert found.headers_for("https", "d.example", 443) == {}
    assert "headers" not in repr(found), "a log shows no key"


# --- which addresses


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "0.0.0.0",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "168.63.129.16",
        "224.0.0.1",
        "255.255.255.255",
        "::1",
        "::",
        "::ffff:127.0.0.1",
        "::ffff:169.254.169.254",
        "64:ff9b::7f00:1",
        "2002:7f00:1::",
        "fe80::1%eth0",
        "fc00::1",
        "fd00:ec2::254",
        "ff02::1",
    ],
)
def test_a_private_or_metadata_address_is_refused_whatever_its_name(address: str) -> None:
    with pytest.raises(NotAllowed):
        Guard(["a.example:80"]).check_address("a.example", 80, address)
    with pytest.raises(NotAllowed):  # the site allows it, the profile's pattern does not name the host
        Guard(["*.example:80"], ["0.0.0.0/0", "::/0"]).check_address("a.example", 80, address)


def test_a_public_address_may_be_reached() -> None:
    for address in ("93.184.216.34", "2606:2800:220:1::1"):
        Guard(["a.example:80"]).check_address("a.example", 80, address)


def resolving(monkeypatch: pytest.MonkeyPatch, *answers: str) -> list[str]:
    """Names end in .test; each look-up gives the next address."""
    asked: list[str] = []
    real = socket.getaddrinfo

    def lookup(host: Any, port: Any, *rest: Any, **more: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else host
        if name and name.endswith(".test"):
            asked.append(name)
            host = answers[min(len(asked), len(answers)) - 1]
        return real(host, port, *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    return asked


def test_a_name_that_leads_to_a_private_address_is_not_connected_to(
    serve: Callable[..., RawServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    resolving(monkeypatch, "127.0.0.1")
    server = serve(x=http(200, b"inside"))
    found = ask({"allow": [f"inner.test:{server.port}"]}, server.url("x", "inner.test"), private=())
    assert found.result_class is R.ERROR
    assert "private" in found.content
    assert "nothing was sent" in found.content
    assert server.seen == []


def test_the_address_that_was_checked_is_the_one_connected_to(
    serve: Callable[..., RawServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name server that answers otherwise the second time gains nothing: there is no second time."""
    asked = resolving(monkeypatch, "127.0.0.1", "127.0.0.2")
    server = serve(x=http(200, b"right"))
    found = ask({"allow": [f"changing.test:{server.port}"]}, server.url("x", "changing.test"))
    assert found.content.endswith("right")
    assert asked == ["changing.test"]
    assert f"\r\nHost: changing.test:{server.port}\r\n" in server.seen[0]


# --- what comes back


def test_an_answer_says_its_status_its_main_headers_and_its_body(serve: Callable[..., RawServer]) -> None:
    server = serve(x=http(200, b'{"a": 1}', content_type=JSON, date="today", etag='"v1"'))
    found = ask(rules(server), server.url("x"), headers={"X-Mine": "yes"})
    assert found.result_class is R.OK
    assert found.content == ('HTTP 200 Said\ncontent-type: application/json\ncontent-length: 8\netag: "v1"\n\n{"a": 1}')
    assert "X-Mine: yes" in server.seen[0]
    assert "Idempotency-Key" not in server.seen[0]
    assert found.data["status"] == 200


def test_an_effect_outside_carries_its_key_and_its_body(serve: Callable[..., RawServer]) -> None:
    server = serve(x=http(201, b'{"id": 7}', content_type=JSON))
    found = ask(rules(server), server.url("x"), method="POST", json={"b": [1, "ü"]})
    assert found.result_class is R.OK
    assert "\r\nIdempotency-Key: effect-1\r\n" in server.seen[0]
    assert "Content-Type: application/json" in server.seen[0]
    assert server.seen[0].endswith('{"b":[1,"ü"]}'.encode().decode("latin-1"))


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (http(404, b"gone"), R.ERROR),
        (http(500, b"{}", content_type=JSON), R.ERROR),
        (http(200, b"[]", content_type=JSON), R.EMPTY),
        (http(200, b"  \n"), R.EMPTY),
        (http(200, b"<html><title>Error</title>502 Bad Gateway</html>", content_type="text/html"), R.ERROR),
        (http(302, b"", location="http://127.0.0.1:1/"), R.ERROR),
    ],
)
def test_an_answer_that_is_no_success_is_named(serve: Callable[..., RawServer], answer: bytes, expected: R) -> None:
    server = serve(x=answer)
    found = ask(rules(server), server.url("x"), expect="json")
    assert found.result_class is expected
    assert found.content.startswith(f"[result: {expected.value} - ")


def test_the_profiles_key_is_sent_and_never_shown(serve: Callable[..., RawServer], folder: Any) -> None:
    def echo(connection: socket.socket, raw: bytes) -> None:
        connection.sendall(http(200, raw, content_type="text/plain", location=SEEN, www_authenticate=SEEN[7:]))

    server = serve(x=echo)
    said = rules(server, headers={f"127.0.0.1:{server.port}": {"Authorization": SEEN}})
    found = ask(said, server.url("x"))
    assert SEEN in server.seen[0]
    assert SEEN[7:] not in found.content + str(found.data)
    assert "[removed]" in found.content
    ask(said, server.url("x"), save_to="echo.txt", sandbox=folder)
    assert SEEN[7:].encode() not in folder.read("echo.txt")


@pytest.mark.parametrize("place", ["http://elsewhere.test/?key={}", "http://u:{}@elsewhere.test/", "/{}\\"])
def test_a_redirect_that_repeats_the_key_shows_it_to_nobody(serve: Callable[..., RawServer], place: str) -> None:
    server = serve(x=http(302, location=place.format("k3y-abc")))
    said = rules(server, headers={f"127.0.0.1:{server.port}": {"X-Key": "k3y-abc"}}, redirects=3)
    found = ask(said, server.url("x"))
    assert "not " in found.content
    assert "k3y-abc" not in found.content + str(found.data)


def test_a_key_that_is_cut_or_written_otherwise_is_not_shown_either(serve: Callable[..., RawServer]) -> None:
    key = 'k3y/"abc+def'
    body = json.dumps({"echo": key, "twice": quote(key, safe="")}).encode()
    server = serve(
        json=http(200, body, content_type=JSON),
        long=http(200, b"x" * 1_990 + key.encode() + b"y" * 100, content_type="text/plain"),
        head=http(200, b"ok", content_type="text/plain", etag="e" * 490 + key),
    )
    said = rules(server, headers={f"127.0.0.1:{server.port}": {"X-Key": key}}, max_response_bytes=2_000)
    for path in ("json", "long", "head"):
        found = ask(said, server.url(path))
        assert "k3y" not in found.content, path
        assert found.result_class in (R.OK, R.TRUNCATED)


# --- redirects


def test_a_redirect_is_followed_only_where_the_profile_says_and_each_place_is_checked_anew(
    serve: Callable[..., RawServer],
) -> None:
    second = serve(y=http(200, b"there"))
    third = serve(z=http(200, b"elsewhere"))
    first = serve(
        x=http(302, location=second.url("y")), off=http(302, location=third.url("z")), same=http(307, location="x")
    )
    said = rules(first, second, headers={f"127.0.0.1:{first.port}": {"X-Key": "only-first"}})
    assert "not followed" in ask(said, first.url("x")).content
    followed = ask(said | {"redirects": 3}, first.url("same"), headers={"X-Mine": "m"})
    assert followed.content.endswith("there")
    assert followed.content.count("HTTP 30") == 2
    assert "only-first" in first.seen[-1]
    assert "only-first" not in second.seen[0]
    assert "X-Mine" not in second.seen[0]
    refused = ask(said | {"redirects": 3}, first.url("off"))
    assert (refused.result_class, third.seen) == (R.ERROR, [])
    assert "not on the list" in refused.content
    assert ask(said | {"redirects": 1}, first.url("same")).result_class is R.ERROR
    posted = ask(said | {"redirects": 3}, first.url("x"), method="POST", body="b")
    assert (posted.result_class, len(second.seen)) == (R.ERROR, 1)


# --- servers that behave badly


def drip(connection: socket.socket, raw: bytes) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
    for _ in range(2_000):
        connection.sendall(b".")
        time.sleep(0.05)


def test_a_server_that_drips_is_given_up_when_the_time_is_over(serve: Callable[..., RawServer]) -> None:
    server = serve(x=drip)
    with pytest.raises(OutcomeUnknown) as raised:
        ask(rules(server, timeout_s=3), server.url("x"))
    assert raised.value.otherwise.result_class is R.TIMEOUT
    assert raised.value.otherwise.content.startswith("[result: timeout - ")
    assert server.gone.wait(20)


def test_an_order_drops_the_request_at_once(serve: Callable[..., RawServer]) -> None:
    server, order = serve(x=drip), threading.Event()

    def order_it() -> None:
        eventually(lambda: server.seen, within_s=60)
        order.set()

    threading.Thread(target=order_it).start()
    with pytest.raises(ExecInterrupted):
        ask(rules(server, timeout_s=90), server.url("x"), interrupt=order)
    assert server.gone.wait(30), "the connection is closed, not left to its 100 s"


def test_a_body_without_end_is_cut_at_the_limit_and_named(serve: Callable[..., RawServer]) -> None:
    def pour(connection: socket.socket, raw: bytes) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n")
        while True:
            connection.sendall(b"x" * 65536)

    server = serve(x=pour)
    found = ask(rules(server, max_response_bytes=100_000), server.url("x"))
    assert found.result_class is R.TRUNCATED
    assert found.data["body_bytes"] == 100_000
    assert server.gone.wait(20)


def test_a_small_body_that_unpacks_to_a_huge_one_is_cut(serve: Callable[..., RawServer]) -> None:
    packed = gzip.compress(b"0" * 20_000_000)
    server = serve(x=http(200, packed, content_encoding="gzip", content_type="text/plain"))
    found = ask(rules(server, max_response_bytes=200_000), server.url("x"))
    assert (found.result_class, found.data["body_bytes"]) == (R.TRUNCATED, 200_000)


@pytest.mark.parametrize("kind", ["text/plain; charset=nonsense", "text/plain; charset=utf-8", "text/html"])
def test_a_body_in_another_coding_than_it_says_is_still_read(serve: Callable[..., RawServer], kind: str) -> None:
    server = serve(x=http(200, "größe: 5 euro, more words".encode("latin-1"), content_type=kind))
    assert "e: 5 euro" in ask(rules(server), server.url("x")).content


def test_a_body_that_is_no_text_goes_into_the_file_that_is_named(serve: Callable[..., RawServer], folder: Any) -> None:
    body = bytes(range(256)) * 8
    server = serve(x=http(200, body, content_type="image/png"))
    shown = ask(rules(server), server.url("x"))
    assert "no text, 2048 bytes" in shown.content
    assert "save_to" in shown.content
    saved = ask(rules(server), server.url("x"), save_to="pictures/a.png", sandbox=folder)
    assert saved.data["saved_to"] == "pictures/a.png"
    assert folder.read("pictures/a.png") == body
    posted = ask(rules(server), server.url("x"), method="POST", sandbox=folder)
    assert folder.read(posted.data["saved_to"]) == body
    assert ask(rules(server), server.url("x"), save_to="../a", sandbox=folder).result_class is R.ERROR


def test_a_long_text_keeps_its_ends_and_says_where_the_rest_is(serve: Callable[..., RawServer], folder: Any) -> None:
    server = serve(x=http(200, b"line\n" * 20_000, content_type="text/plain"))
    read = ask(rules(server), server.url("x"))
    assert read.result_class is R.TRUNCATED
    posted = ask(rules(server), server.url("x"), method="POST", sandbox=folder)
    assert posted.result_class is R.OK
    assert folder.read(posted.data["offloaded_path"]).count(b"line") == 20_000


def test_nothing_was_sent_where_nobody_listens_or_the_name_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = socket.create_server(("127.0.0.1", 0))
    port = closed.getsockname()[1]
    closed.close()
    found = ask({"allow": [f"127.0.0.1:{port}"], "methods": ["POST"]}, f"http://127.0.0.1:{port}/", method="POST")
    assert found.result_class is R.ERROR
    assert "nothing was sent" in found.content
    resolving(monkeypatch, "no-such-name.invalid")
    found = ask({"allow": ["gone.test"], "methods": ["POST"]}, "http://gone.test/", method="POST")
    assert "does not resolve" in found.content
    assert "nothing was sent" in found.content


def test_a_connection_that_breaks_after_the_request_leaves_the_outcome_unknown(serve: Callable[..., RawServer]) -> None:
    server = serve(x=lambda connection, raw: None)
    with pytest.raises(OutcomeUnknown, match="was sent, and no whole answer came") as raised:
        ask(rules(server), server.url("x"), method="POST", body="pay 5")
    assert raised.value.otherwise.result_class is R.ERROR
    assert len(server.seen) == 1


def test_a_server_that_speaks_no_http_is_an_error(serve: Callable[..., RawServer]) -> None:
    server = serve(x=b"SSH-2.0-OpenSSH_9\r\n")
    with pytest.raises(OutcomeUnknown):
        ask(rules(server), server.url("x"))
