"""The network of a sandbox: none, what is on its list, or open."""

from __future__ import annotations

import http.server
import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.harness import eventually
from tests.sandboxes.conftest import open_driver, sh
from tests.sandboxes.test_commands import wait_until
from workspaces.sandboxes import egress, way_out
from workspaces.sandboxes.base import NetworkPolicy
from workspaces.sandboxes.egress import Log, Policy, Refused, where


@pytest.mark.parametrize(
    ("host", "port", "allowed"),
    [
        ("example.com", 443, True),
        ("example.com", 80, False),
        ("www.example.com", 443, False),
        ("a.b.example.org", 443, True),
        ("example.org", 443, False),
        ("evilexample.org", 443, False),
        ("example.org.evil.net", 443, False),
    ],
)
def test_a_name_is_on_the_list_or_not(host: str, port: int, allowed: bool) -> None:
    policy = Policy(["example.com:443", "*.example.org:443"])
    if allowed:
        policy.check_name(host, port)
    else:
        with pytest.raises(Refused, match="not on"):
            policy.check_name(host, port)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "0.0.0.0",
        "10.1.2.3",
        "172.17.0.1",
        "192.168.1.1",
        "100.64.0.1",
        "169.254.169.254",
        "224.0.0.1",
        "255.255.255.255",
        "::1",
        "::",
        "fe80::1%eth0",
        "fd00:ec2::254",
        "::ffff:169.254.169.254",
        "64:ff9b::a9fe:a9fe",
        "2002:a9fe:a9fe::1",
        "::10.1.2.3",
        "fec0::1",
        "64:ff9b:1::a9fe:a9fe",
        "168.63.129.16",
        "192.0.0.192",
    ],
)
def test_an_address_inside_is_refused_however_it_is_written(address: str) -> None:
    with pytest.raises(Refused, match="private"):
        Policy([]).check_address(address)
    Policy([]).check_address("93.184.216.34")
    Policy([]).check_address("2606:2800:220:1::1")
    Policy([], ["10.1.0.0/16"]).check_address("10.1.2.3")


def test_what_a_request_asks_for() -> None:
    assert where("CONNECT", "Example.com.:443") == ("example.com", 443, "/")
    assert where("GET", "http://example.com/a?b=c") == ("example.com", 80, "/a?b=c")
    assert where("GET", "http://[2606::1]:8080") == ("2606::1", 8080, "/")
    for method, target in (
        ("CONNECT", "example.com"),
        ("GET", "/local"),
        ("GET", "https://example.com/"),
        ("GET", "http://user@example.com/"),
        ("CONNECT", "a:99999"),
    ):
        with pytest.raises(ValueError):  # noqa: PT011 - whichever part it is
            where(method, target)


def test_a_log_that_nobody_reads_closes_the_way_out(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(egress, "SEGMENT_BYTES", 200)
    monkeypatch.setattr(egress, "MOST_SEGMENTS", 3)
    way = way_out.WayOut(tmp_path, "x", {}, False)
    (tmp_path / "log").mkdir()
    log = Log(str(tmp_path / "log"))
    with pytest.raises(OSError, match="full"):
        [log.write(host="h", port=number, allowed=False, why="w") for number in range(100)]
    found, position = way.connections(0)
    assert [connection.port for connection in found] == list(range(len(found)))
    assert len(found) > 3
    assert way.connections(position) == ([], position)
    assert len(list((tmp_path / "log").iterdir())) == 1  # what was read is forgotten
    log.write(host="h", port=7, allowed=True, address="1.2.3.4")
    with (tmp_path / "log" / f"{log.number:08d}.jsonl").open("ab") as file:
        file.write(b'{"half a line')
    more, later = way.connections(position)
    assert [(connection.port, connection.allowed) for connection in more] == [(7, True)]
    assert way.connections(later) == ([], later)


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    driver = open_driver("docker", "content", tmp_path_factory.mktemp("network"))
    yield driver
    for network in driver.client.networks.list(names=[f"agentdesk-out-{driver.site}"]):
        network.remove()
    driver.close()


@pytest.fixture(scope="module")
def gateway(driver: Any) -> str:
    """This machine's own address on the proxies' network: private, so refused unless the site allows it."""
    network = driver.client.networks.get(driver.site_network())
    return str(network.attrs["IPAM"]["Config"][0]["Gateway"])


@pytest.fixture(scope="module")
def server() -> Iterator[int]:
    """A web server on this machine. Its port."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps({"path": self.path, "host": self.headers["Host"]}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("0.0.0.0", 0), Handler) as served:
        thread = threading.Thread(target=served.serve_forever)
        thread.start()
        yield served.server_port
        served.shutdown()
        thread.join()


def fetch(sandbox: Any, url: str, *, proxy: bool = True) -> Any:
    program = (
        "import sys, urllib.request as r, urllib.error as e\n"
        f"o = r.build_opener() if {proxy} else r.build_opener(r.ProxyHandler({{}}))\n"
        "try: print(o.open(sys.argv[1], timeout=20).read().decode())\n"
        "except e.HTTPError as x: print(x.code, x.read().decode())\n"
        "except OSError as x: print('failed', x)\n"
    )
    return sh(sandbox, f'python3 -c "{program}" {url}').stdout.decode()


REACH = "python3 -c 'import socket; socket.create_connection((\"{}\", 8765), 3)'"
TUNNEL = r"""
import socket, sys
place = sys.argv[1]
s = socket.create_connection(("127.0.0.1", 3128), 20)
s.sendall(f"CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n\r\n".encode())
head = s.recv(65536)
if b" 200 " in head.split(b"\r\n")[0]:
    s.sendall(b"GET /tunnel HTTP/1.0\r\nHost: x\r\n\r\n")
    while data := s.recv(65536):
        head += data
print(head.decode())
"""


KILL_THE_GATE = r"""
import os
for pid in filter(str.isdigit, os.listdir("/proc")):
    words = open(f"/proc/{pid}/cmdline", "rb").read().split(b"\0")
    if b"gate" in words:
        try:
            os.kill(int(pid), 9)
            print("killed")
        except PermissionError:
            print("refused")
"""


@pytest.mark.docker
def test_only_what_is_on_the_list_is_reached_and_every_attempt_is_written_down(
    driver: Any, make_sandbox: Callable[..., Any], gateway: str, server: int
) -> None:
    allow = (f"{gateway}:{server}", "localhost:80", "169.254.169.254:80")
    sandbox = make_sandbox(network=NetworkPolicy("allowlist", allow, (f"{gateway}/32",)))
    assert json.loads(fetch(sandbox, f"http://{gateway}:{server}/a?b=c")) == {
        "path": "/a?b=c",
        "host": f"{gateway}:{server}",
    }

    def tunnel(place: str) -> str:
        return str(sandbox.exec(["python3", "-c", TUNNEL, place], key=place).stdout.decode())

    assert '"path": "/tunnel"' in tunnel(f"{gateway}:{server}")
    assert fetch(sandbox, f"http://{gateway}:{server + 1}/").startswith("403")
    assert fetch(sandbox, "http://example.com/").startswith("403")
    assert "private" in tunnel("localhost:80")  # on the list, but inside
    assert "private" in fetch(sandbox, "http://169.254.169.254/latest/meta-data/")
    found, position = sandbox.connections(0)
    assert [(c.host, c.port, c.allowed) for c in found] == [
        (gateway, server, True),
        (gateway, server, True),
        (gateway, server + 1, False),
        ("example.com", 80, False),
        ("localhost", 80, False),
        ("169.254.169.254", 80, False),
    ]
    assert found[0].address == gateway
    assert abs(found[0].at - time.time()) < 600
    assert "list" in found[2].why
    # around the proxy there is nothing: no interface, no route, no name server
    assert sh(sandbox, "ls /sys/class/net").stdout.split() == [b"lo"]
    assert "failed" in fetch(sandbox, f"http://{gateway}:{server}/", proxy=False)
    assert sandbox.connections(position) == ([], position)


@pytest.mark.docker
def test_neither_gate_nor_list_nor_log_can_be_touched_from_inside(
    driver: Any, make_sandbox: Callable[..., Any], gateway: str, server: int
) -> None:
    sandbox = make_sandbox(network=NetworkPolicy("allowlist", (f"{gateway}:{server}",), (f"{gateway}/32",)))
    ended = sandbox.exec(["python3", "-c", KILL_THE_GATE], key="kill")
    assert ended.stdout == b"refused\n", ended
    break_in = "cd /run/agentdesk/egress; ls; rm -f door/s; echo x >door/x; echo x >>script/egress.py; ls door"
    inside = sh(sandbox, break_in)
    assert inside.stdout.split() == [b"door", b"script", b"s"]
    assert json.loads(fetch(sandbox, f"http://{gateway}:{server}/"))["path"] == "/"
    eventually(lambda: sandbox.snapshot().quiet, within_s=30, what="the gate is nothing that writes")
    sandbox.freeze()
    sandbox.thaw()
    assert json.loads(fetch(sandbox, f"http://{gateway}:{server}/"))["path"] == "/"


@pytest.mark.docker
def test_the_proxy_ends_with_its_sandbox_and_a_changed_list_holds_from_the_next_start(
    driver: Any, make_sandbox: Callable[..., Any], gateway: str, server: int
) -> None:
    sandbox = make_sandbox(network=NetworkPolicy("allowlist"))
    assert fetch(sandbox, f"http://{gateway}:{server}/").startswith("403")
    assert driver.awake() == [sandbox.spec.key]
    policy = NetworkPolicy("allowlist", (f"{gateway}:{server}",), (f"{gateway}/32",))
    again = driver.open(type(sandbox.spec)(sandbox.spec.key, network=policy))
    again.start()  # it runs: nothing changes
    assert fetch(again, f"http://{gateway}:{server}/").startswith("403")
    again.stop()
    label = f"{way_out.EGRESS_LABEL}={sandbox.spec.key}"
    assert driver.client.containers.list(all=True, filters={"label": label}) == []
    again.start()
    assert json.loads(fetch(again, f"http://{gateway}:{server}/"))["path"] == "/"
    assert [c.allowed for c in again.connections(0)[0]] == [False, False, True]
    # a proxy that died is no way out, and no sandbox without one
    (proxy,) = driver.client.containers.list(filters={"label": label})
    proxy.remove(force=True)
    wait_until(lambda: fetch(again, f"http://{gateway}:{server}/").startswith("failed"), 30)


@pytest.mark.docker
def test_open_sandboxes_reach_out_but_not_one_another(
    driver: Any, make_sandbox: Callable[..., Any], gateway: str, server: int
) -> None:
    one, two = (make_sandbox(network=NetworkPolicy("open")) for _ in range(2))
    assert json.loads(fetch(one, f"http://{gateway}:{server}/"))["path"] == "/"
    address = sh(two, "hostname -I").stdout.decode().strip()
    assert address
    listen = threading.Thread(target=lambda: sh(two, "timeout 40 python3 -m http.server 8765", key="listen"))
    listen.start()
    try:
        ready = f"until {REACH.format('127.0.0.1')}; do sleep .1; done"
        assert sh(two, f"({ready}) 2>/dev/null", timeout_s=30).exit_code == 0
        assert sh(one, REACH.format(address), timeout_s=30).exit_code == 1
    finally:
        two.kill("listen")
        listen.join(60)
