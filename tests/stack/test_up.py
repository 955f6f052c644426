"""The whole product under its supervisor, as `make up` runs it, with the local driver and no demo."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agentdesk import environment
from agentdesk.embedded.process import is_running

pytestmark = [pytest.mark.stack, pytest.mark.timeout(300)]

PARTS = {"postgres", "valkey", "web", "worker", "scheduler"}
WITHIN_S = 120  # a busy machine must not fail this


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    """One for all of them: a second start is meant to be an ordinary thing."""
    folder = Path(tempfile.mkdtemp(prefix="ad-"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


class Product:
    def __init__(self, home: Path, port: int) -> None:
        self.home = home
        self.port = port
        env = {name: value for name, value in os.environ.items() if not name.startswith("AGENTDESK_")}
        for name in ("DATABASE_URL", "VALKEY_URL", "DJANGO_SETTINGS_MODULE"):
            env.pop(name, None)
        self.env = env | {
            "AGENTDESK_HOME": str(home),
            "AGENTDESK_PORT": str(port),
            "AGENTDESK_DEMO": "0",
            "AGENTDESK_SANDBOX_DRIVER": "local",
        }
        self.process = subprocess.Popen(
            [sys.executable, "-m", "agentdesk.up"],
            cwd=environment.REPO,
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        self.lines.extend(iter(self.process.stdout.readline, ""))

    def wait_for(self, words: str) -> None:
        eventually(lambda: any(words in line for line in self.lines) or self.process.poll() is not None)
        assert any(words in line for line in self.lines), self.lines

    def ended(self) -> int:
        """Waits for the end and gives the status."""
        status = self.process.wait(WITHIN_S)
        self._reader.join()
        assert self.process.stdout is not None
        self.process.stdout.close()
        return status

    def parts(self) -> dict[str, tuple[int, str]]:
        noted = {file.stem: file.read_text().split() for file in (self.home / "run").glob("*.pid")}
        return {name: (int(pid), born) for name, (pid, born) in noted.items()}

    def manage(self, *words: str) -> str:
        command = [sys.executable, "manage.py", *words]
        return subprocess.check_output(command, cwd=environment.REPO, env=self.env, text=True)

    def get(self, path: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()


def eventually(holds: Callable[[], bool], within_s: float = WITHIN_S) -> None:
    deadline = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.1)


@contextlib.contextmanager
def product(home: Path, port: int) -> Iterator[Product]:
    started = Product(home, port)
    try:
        yield started
    finally:
        if started.process.poll() is None:
            started.process.kill()
        started.ended()


def nothing_left(parts: dict[str, tuple[int, str]]) -> bool:
    return not any(is_running(pid, born) for pid, born in parts.values())


def test_it_comes_up_serves_and_stops_on_ctrl_c_leaving_nothing(home: Path) -> None:
    with product(home, free_port()) as running:
        running.wait_for("Ready after")
        parts = running.parts()
        assert set(parts) == PARTS
        status, body = running.get("/readyz")
        assert status == 200
        assert json.loads(body)["migrations"] == "ok"
        beating = '"workers": "ok", "scheduler": "ok"'
        eventually(lambda: beating in running.get("/readyz")[1])
        status, page = running.get("/sign-in/")
        assert status == 200
        assert "<form" in page
        assert any("NO ISOLATION" in line for line in running.lines)
        running.manage("createsuperuser", "--noinput", "--username=kept", "--email=kept@localhost.test")
        running.process.send_signal(signal.SIGINT)
        assert running.ended() == 0
        assert nothing_left(parts)
        assert running.lines[-1].startswith("agentdesk stopped")
        assert not any("force" in line for line in running.lines)
        assert running.parts() == {}


def test_a_killed_supervisor_leaves_nothing_and_the_next_start_goes_on(home: Path) -> None:
    with product(home, free_port()) as running:
        running.wait_for("Ready after")
        parts = running.parts()
        assert set(parts) == PARTS
        running.process.kill()
        running.ended()
        eventually(lambda: nothing_left(parts), within_s=20)
    with product(home, free_port()) as again:
        again.wait_for("Ready after")
        assert any("up to date" in line for line in again.lines if "migrations" in line)
        found = again.manage(
            "shell", "-v0", "-c", "from workspaces.models import User; print(*User.objects.values_list('username'))"
        )
        assert "kept" in found
        again.process.send_signal(signal.SIGTERM)
        assert again.ended() == 0


def test_each_part_that_dies_is_started_again(home: Path) -> None:
    with product(home, free_port()) as running:
        running.wait_for("Ready after")
        before = running.parts()
        for pid, _ in before.values():
            os.kill(pid, signal.SIGKILL)
        eventually(
            lambda: (
                set(running.parts()) == PARTS
                and all(running.parts()[name] != before[name] and is_running(*running.parts()[name]) for name in PARTS)
            )
        )
        eventually(lambda: ready(running))
        for name in PARTS:
            running.wait_for(f"{name}: ended with status")
            running.wait_for(f"{name}: runs again")
        parts = running.parts()
        running.process.send_signal(signal.SIGTERM)
        assert running.ended() == 0
        assert nothing_left(parts)


def ready(running: Product) -> bool:
    try:
        return running.get("/readyz")[0] == 200
    except OSError:
        return False


def test_a_second_one_on_the_same_home_or_port_is_told_in_one_line(home: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with product(home, port) as refused:
            assert refused.ended() == 1
            assert f"Port {port} is in use" in refused.lines[-1]
            assert not any("Traceback" in line for line in refused.lines)
    with product(home, free_port()) as running:
        running.wait_for("postgres")
        with product(home, free_port()) as refused:
            assert refused.ended() == 1
            assert f"already runs on {home} (pid {running.process.pid})" in refused.lines[-1]
        parts = running.parts()
        assert "postgres" in parts
        running.process.send_signal(signal.SIGTERM)  # maybe in the middle of its start
        assert running.ended() == 0
        assert nothing_left(parts)


def test_a_setting_that_cannot_be_read_is_told_in_one_line(home: Path) -> None:
    started = subprocess.run(
        [sys.executable, "-m", "agentdesk.up"],
        cwd=environment.REPO,
        env=dict(os.environ) | {"AGENTDESK_HOME": str(home), "AGENTDESK_PORT": "desk"},
        capture_output=True,
        text=True,
    )
    assert started.returncode == 1
    assert "AGENTDESK_PORT is 'desk'; expected a whole number" in started.stderr
    assert "Traceback" not in started.stderr
