"""The product under its own supervisor, as `make up` runs it, in a home of its own; and a second worker beside it."""

from __future__ import annotations

import contextlib
import http.client
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import urlencode

from agentdesk import environment
from agentdesk.embedded.process import Child, is_running, leashed

READY_WITHIN_S = 120.0
PARTS = ("postgres", "valkey", "web", "worker", "scheduler", "worker2")


class Product:
    def __init__(self, home: Path, *, engine: str, lease_s: int, store: str, broken: bool = False) -> None:
        self.home = home
        self.run = environment.run_dir(home)
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = int(free.getsockname()[1])
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("AGENTDESK_")}
        for name in ("DATABASE_URL", "VALKEY_URL", "DJANGO_SETTINGS_MODULE"):
            inherited.pop(name, None)
        self.environment = inherited | {
            "AGENTDESK_HOME": str(home),
            "AGENTDESK_PORT": str(self.port),
            "AGENTDESK_DEMO": "0",
            "AGENTDESK_LEASE_S": str(lease_s),
            "AGENTDESK_WORKER_CONCURRENCY": "16",
            "AGENTDESK_SANDBOX_DRIVER": "docker",
            "AGENTDESK_SANDBOX_STORE": store,
            "AGENTDESK_IDLE_TIMEOUT_S": "3",
            "DOCKER_HOST": engine,
        }
        if broken:
            self.environment["PYTHONPATH"] = str(Path(__file__).with_name("broken"))
        self._supervisor: subprocess.Popen[bytes] | None = None
        self._second: Child | None = None

    def start(self) -> None:
        self.home.mkdir(parents=True, exist_ok=True)
        with (self.home / "up.log").open("ab") as log:
            self._supervisor = subprocess.Popen(
                leashed([sys.executable, "-m", "agentdesk.up"], signal.SIGTERM),
                cwd=environment.REPO,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + READY_WITHIN_S
        while "Ready after" not in (self.home / "up.log").read_text():
            if self._supervisor.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the product does not start:\n{self.said()}")
            time.sleep(0.1)
        self._second = Child(
            "worker2",
            [
                *(sys.executable, "-m", "celery", "-A", "agentdesk", "worker", "--pool", "threads"),
                *("--concurrency", "16", "--without-gossip", "--without-mingle", "-n", "second@%h"),
            ],
            run=self.run,
            log=self.home / "log" / "worker2.log",
            env=self.environment | {"AGENTDESK_DB_POOL_MAX": "20"},
            cwd=environment.REPO,
        )
        self._second.start()

    def keep_up(self) -> None:
        """What the supervisor does for its own children, for the second worker."""
        assert self._second is not None
        if not self._second.alive():
            self._second.start()

    def said(self) -> str:
        return (self.home / "up.log").read_text()[-3000:]

    def gave_up(self) -> bool:
        return self._supervisor is None or self._supervisor.poll() is not None

    def pid(self, part: str) -> tuple[int, str] | None:
        """Pid and birth of a part that runs."""
        with contextlib.suppress(FileNotFoundError, ValueError):
            pid, born = (self.run / f"{part}.pid").read_text().split()
            if is_running(int(pid), born):
                return int(pid), born
        return None

    def stop(self) -> None:
        if self._second is not None:
            self._second.stop(20)
        if self._supervisor is not None and self._supervisor.poll() is None:
            self._supervisor.send_signal(signal.SIGTERM)
            try:
                self._supervisor.wait(60)
            except subprocess.TimeoutExpired:
                self._supervisor.kill()
                self._supervisor.wait()

    def left_running(self) -> list[str]:
        """Processes of this installation that outlived its end."""
        mark = f"AGENTDESK_HOME={self.home}".encode()
        found = []
        for entry in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):
                if mark in entry.read_bytes().split(b"\0") and int(entry.parent.name) != os.getpid():
                    found.append((entry.parent / "cmdline").read_bytes().replace(b"\0", b" ").decode()[:120])
        return found

    def remove(self) -> None:
        for line in Path("/proc/mounts").read_text().splitlines():
            at = line.split()[1]
            if at.startswith(f"{self.home}/"):
                subprocess.run(["umount", "-l", at], capture_output=True)
        shutil.rmtree(self.home, ignore_errors=True)
        if self.run.parent != self.home:
            shutil.rmtree(self.run, ignore_errors=True)


class Browser:
    """A signed-in person's requests to the web server. Raises OSError while it is down."""

    def __init__(self, port: int, session: str) -> None:
        self.port = port
        token = "c" * 32
        name = f"agentdesk_{port}"
        self._headers = {
            "Host": f"localhost:{port}",
            "Cookie": f"{name}={session}; {name}_csrf={token}",
            "X-CSRFToken": token,
            "Content-Type": "application/x-www-form-urlencoded",
        }

    def post(self, path: str, **fields: str) -> int:
        """The status."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            connection.request("POST", path, urlencode(fields), self._headers)
            answer = connection.getresponse()
            answer.read()
            return answer.status
        except http.client.HTTPException as error:
            raise OSError(str(error)) from error
        finally:
            connection.close()
