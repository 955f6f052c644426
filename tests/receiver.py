"""Somebody's webhook receiver: a process of its own that checks each request with the official verification library.

    python -m tests.receiver FOLDER PORT

It knows nothing of agentdesk but the secrets that it was given. What it accepts is on the disk before it is answered,
so a kill at any point loses nothing that the sender was told has arrived. `Receiver` is the hold that a test has on
the process: everything goes through files in FOLDER, so that it outlives a kill as well.

- `NAME.secrets`: one a line; any of them verifies. Without the file the path /NAME is a 404.
- `NAME.behaviour`: JSON: `delay_s` before it answers, `status` instead of 200 (then nothing is accepted), `headers`,
  `body` of the answer; `once`: an id that was accepted before is answered with 200 and refused, as it should be.
- `NAME.die`: the next request that is accepted is the last: the process ends itself without an answer. Once.
- `accepted.jsonl`, `refused.jsonl`: what came, in order.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import sys
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from standardwebhooks import Webhook, WebhookVerificationError

from agentdesk import environment
from agentdesk.embedded.process import Child

READY_WITHIN_S = 120.0
BINDS_WITHIN_S = 20.0


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request that was accepted, or refused. `at` is the receiver's clock (Unix seconds) when its body was read."""

    endpoint: str
    id: str
    at: float
    raw: str
    refused: str = ""
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def body(self) -> Any:
        return json.loads(self.raw)


class Receiver:
    """A context manager: the process runs within. Started from the main thread only (see Child)."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = int(free.getsockname()[1])
        self.child = Child(
            "receiver",
            [sys.executable, "-m", "tests.receiver", str(folder), str(self.port)],
            run=folder,
            log=folder / "receiver.log",
            cwd=environment.REPO,
        )

    def __enter__(self) -> Receiver:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.child.kill()
        self.child.stop(5)

    def start(self) -> None:
        """Runs and answers."""
        self.child.start()
        deadline = time.monotonic() + READY_WITHIN_S
        while not self.answers():
            if not self.child.alive() or time.monotonic() > deadline:
                raise RuntimeError(f"the receiver does not start: {self.child.last_words(3)}")
            time.sleep(0.02)

    def kill(self) -> None:
        self.child.kill()

    def alive(self) -> bool:
        return self.child.alive()

    def answers(self) -> bool:
        asked = contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=5))
        with contextlib.suppress(OSError, http.client.HTTPException), asked as connection:
            connection.request("GET", "/")
            return connection.getresponse().status == http.client.NO_CONTENT
        return False

    def url(self, name: str, *, host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}/{name}"

    def trust(self, name: str, *secrets: str) -> None:
        """From now on `name` takes what is signed with one of these."""
        _put(self.folder / f"{name}.secrets", "\n".join(secrets))

    def behave(self, name: str, **behaviour: Any) -> None:
        """From now on; nothing given: as it should."""
        _put(self.folder / f"{name}.behaviour", json.dumps(behaviour))

    def die_at_next(self, name: str) -> None:
        (self.folder / f"{name}.die").touch()

    def accepted(self, name: str = "") -> list[Arrival]:
        return self._read("accepted.jsonl", name)

    def refused(self, name: str = "") -> list[Arrival]:
        return self._read("refused.jsonl", name)

    def _read(self, file: str, name: str) -> list[Arrival]:
        with contextlib.suppress(FileNotFoundError):
            whole = (self.folder / file).read_text().rpartition("\n")[0]
            found = [Arrival(**json.loads(line)) for line in whole.splitlines() if line]
            return [each for each in found if not name or each.endpoint == name]
        return []


def _put(path: Path, text: str) -> None:
    fresh = path.with_name(f"{path.name}.new")
    fresh.write_text(text)
    fresh.replace(path)


# ---- the process


class _Server(ThreadingHTTPServer):
    request_queue_size = 256
    daemon_threads = True

    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder
        self._lock = threading.Lock()
        super().__init__(("127.0.0.1", port), _Request)
        self._files: dict[str, int] = {}
        for name in ("accepted.jsonl", "refused.jsonl"):
            self._files[name] = _opened(folder / name)

    def write(self, name: str, arrival: dict[str, Any]) -> None:
        """It is on the disk when this returns."""
        with self._lock:
            os.write(self._files[name], json.dumps(arrival).encode() + b"\n")
            os.fdatasync(self._files[name])

    def has(self, name: str, id_: str) -> bool:
        with self._lock:
            lines = (self.folder / "accepted.jsonl").read_text().splitlines()
        known = [json.loads(line) for line in lines]
        return any(one["endpoint"] == name and one["id"] == id_ for one in known)


def _opened(path: Path) -> int:
    """For appending; half a line that a killed predecessor left goes first: nobody was told that it arrived."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    size = os.fstat(file).st_size
    whole = os.pread(file, size, 0).rfind(b"\n") + 1
    os.ftruncate(file, whole)
    return file


class _Request(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        self._answer(204)

    def do_POST(self) -> None:
        length = int(self.headers["Content-Length"] or 0)
        raw = self.rfile.read(length)
        if len(raw) < length:  # its sender died in the midst of it
            self.close_connection = True
            return
        at = time.time()
        name = self.path.strip("/").partition("?")[0]
        folder = self.server.folder
        if not name.replace("-", "").isalnum() or not (folder / f"{name}.secrets").exists():
            self._answer(404)
            return
        secrets = (folder / f"{name}.secrets").read_text().split()
        behaviour: dict[str, Any] = {}
        with contextlib.suppress(FileNotFoundError):
            behaviour = json.loads((folder / f"{name}.behaviour").read_text())
        headers = {key.lower(): value for key, value in self.headers.items()}
        arrival = {
            "endpoint": name,
            "id": headers.get("webhook-id", ""),
            "at": at,
            "raw": raw.decode(errors="replace"),
            "headers": headers,
        }
        wrong = _wrong(raw, headers, secrets)
        status = 400 if wrong else int(behaviour.get("status", 200))
        seen = bool(behaviour.get("once")) and not wrong and self.server.has(name, arrival["id"])
        if status >= 300 or seen:
            self.server.write(
                "refused.jsonl", arrival | {"refused": wrong or ("seen before" if seen else f"answered {status}")}
            )
        else:
            self.server.write("accepted.jsonl", arrival)
            with contextlib.suppress(FileNotFoundError):
                (folder / f"{name}.die").unlink()
                os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(float(behaviour.get("delay_s", 0)))
        self._answer(status, behaviour.get("body", wrong), behaviour.get("headers", {}))

    def _answer(self, status: int, body: str = "", headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for key, value in (headers or {}).items():
            self.send_header(key, value)
        if status != 204:
            self.send_header("Content-Length", str(len(body.encode())))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_: Any) -> None:
        pass


def _wrong(raw: bytes, headers: dict[str, str], secrets: list[str]) -> str:
    """Empty when one of the secrets verifies it."""
    why = "no secret"
    for secret in secrets:
        try:
            Webhook(secret).verify(raw, headers)
        except (WebhookVerificationError, ValueError) as error:
            why = str(error) or type(error).__name__
        else:
            return ""
    return why


def main() -> None:
    folder, port = Path(sys.argv[1]), int(sys.argv[2])
    deadline = time.monotonic() + BINDS_WITHIN_S
    while True:
        try:
            server = _Server(folder, port)
            break
        except OSError:  # the port of a killed predecessor that still ends
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
    server.serve_forever()


if __name__ == "__main__":
    main()
