"""The world outside: a small HTTP service that counts what really happened. It does not know agentdesk.

It listens on a unix socket in the folder that each sandbox sees read-only; a sandbox has no network. A request
takes a while, its effect falls into the middle, so that a kill can come before, during or after it. It refuses
nothing: a second request with the same key is counted, and shows.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import selectors
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

INSIDE = "/run/agentdesk/requests/bank.sock"
LOOKS_EVERY_S = 0.05

# what the declared tools run in the sandbox: one POST, tried until somebody listens
POST = f"""exec python3 -c '
import http.client, json, os, socket, sys, time
word = sys.argv[1]
body = sys.stdin.read()
for _ in range(600):
    try:
        sock = socket.socket(socket.AF_UNIX)
        sock.connect("{INSIDE}")
        break
    except OSError:
        time.sleep(0.1)
else:
    sys.exit("nobody listens")
bank = http.client.HTTPConnection("bank")
bank.sock = sock
key = os.environ["AGENTDESK_IDEMPOTENCY_KEY"] if sys.argv[2] == "key" else ""
bank.request("POST", "/" + word, body, {{"Idempotency-Key": key}})
print(bank.getresponse().read().decode())
'"""


@dataclass(frozen=True, slots=True)
class Entry:
    """One effect. `key` is empty for a plain call."""

    what: str
    token: str
    key: str
    at: float


class Bank:
    """`root`: the folder of the sandboxes' own folders. A context manager."""

    def __init__(self, root: Path, seed: int) -> None:
        self.root = root
        self.entries: list[Entry] = []
        self._delays = random.Random(seed)
        self._in_flight: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._listening: dict[Path, tuple[socket.socket, int]] = {}
        self._selector = selectors.DefaultSelector()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="bank", daemon=True)

    def __enter__(self) -> Bank:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        for taken, _ in self._listening.values():
            taken.close()
        self._selector.close()

    def happened(self, token: str) -> bool | None:
        """None while a request about it is under way."""
        with self._lock:
            if self._in_flight[token]:
                return None
            return any(entry.token == token for entry in self.entries)

    def take(self, what: str, token: str, key: str) -> str:
        with self._lock:
            self._in_flight[token] += 1
            before, after = self._delays.uniform(0, 0.25), self._delays.uniform(0, 0.25)
        try:
            time.sleep(before)
            with self._lock:
                self.entries.append(Entry(what, token, key, time.time()))
                number = len(self.entries)
            time.sleep(after)
            return f"{what} {token}: entry {number}"
        finally:
            with self._lock:
                self._in_flight[token] -= 1

    # --- sockets

    def _serve(self) -> None:
        while not self._stop.is_set():
            self._listen_everywhere()
            for found, _ in self._selector.select(LOOKS_EVERY_S):
                with contextlib.suppress(OSError):
                    connection, _ = found.fileobj.accept()  # type: ignore[union-attr]
                    threading.Thread(target=self._answer, args=[connection], daemon=True).start()

    def _listen_everywhere(self) -> None:
        """The product empties the folder when a sandbox is made; then the socket is put there again."""
        for folder in self._folders():
            path = folder / "bank.sock"
            taken = self._listening.get(path)
            with contextlib.suppress(OSError):
                if taken is not None:
                    if path.exists() and path.stat().st_ino == taken[1]:
                        continue
                    self._selector.unregister(taken[0])
                    taken[0].close()
                    del self._listening[path]
                path.unlink(missing_ok=True)
                fresh = socket.socket(socket.AF_UNIX)
                fresh.bind(short(path))
                path.chmod(0o666)
                fresh.listen(64)
                self._listening[path] = (fresh, path.stat().st_ino)
                self._selector.register(fresh, selectors.EVENT_READ)

    def _folders(self) -> Iterator[Path]:
        with contextlib.suppress(OSError):
            yield from [path for path in self.root.glob("*/requests") if path.is_dir()]

    def _answer(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            connection.settimeout(30)
            _Request(connection, ("sandbox", 0), self)  # type: ignore[arg-type]


class _Request(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        bank: Any = self.server
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        told = bank.take(self.path.strip("/"), body["token"], self.headers["Idempotency-Key"] or "").encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(told)))
        self.end_headers()
        self.wfile.write(told)

    def log_message(self, *_: Any) -> None:
        pass


def short(path: Path) -> str:
    """A socket's path may have about a hundred bytes: through the folder's own descriptor it is short."""
    if len(os.fsencode(path)) < 100:
        return str(path)
    return f"/proc/self/fd/{os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)}/{path.name}"
