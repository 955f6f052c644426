"""A git server on loopback: `git http-backend` behind Python's HTTP server, and some that misbehave."""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar


class Smart(BaseHTTPRequestHandler):
    root: ClassVar[str] = ""
    asked: ClassVar[list[str]] = []

    def log_message(self, *_: Any) -> None: ...

    def do_GET(self) -> None:
        self.asked.append(self.path)
        if self.path.startswith("/private"):
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="x"')
            self.end_headers()
        elif self.path.startswith("/moved"):
            self.send_response(301)
            self.send_header("Location", self.path.replace("/moved", "/project"))
            self.end_headers()
        elif self.path.startswith("/slow"):
            time.sleep(20)
        else:
            self.backend(b"")

    def do_POST(self) -> None:
        self.backend(self.rfile.read(int(self.headers.get("Content-Length") or 0)))

    def backend(self, body: bytes) -> None:
        path, _, query = self.path.partition("?")
        environment = {
            "PATH": os.environ["PATH"],
            "GIT_PROJECT_ROOT": self.root,
            "GIT_HTTP_EXPORT_ALL": "1",
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": "safe.directory",
            "GIT_CONFIG_VALUE_0": "*",
        }
        done = subprocess.run(["git", "http-backend"], input=body, env=environment, capture_output=True, check=False)
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n") if ": " in line)
        self.send_response(int(fields.pop("Status", "200 OK").split()[0]))
        for name, value in fields.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)


@contextlib.contextmanager
def serving(root: Path, *, dumb: bool = False) -> Iterator[tuple[str, list[str]]]:
    """The address of a server of the bare repositories in `root`, and the paths that it was asked for."""
    asked: list[str] = []

    class Plain(SimpleHTTPRequestHandler):
        def __init__(self, *given: Any, **named: Any) -> None:
            super().__init__(*given, directory=str(root), **named)

        def log_message(self, *_: Any) -> None: ...

    handler = Plain if dumb else type("Here", (Smart,), {"root": str(root), "asked": asked})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        server.block_on_close = False
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}", asked
        finally:
            server.shutdown()
            thread.join()


def git(folder: Path, *arguments: str) -> str:
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "GIT_AUTHOR_NAME": "A", "GIT_AUTHOR_EMAIL": "a@example.org",
        "GIT_COMMITTER_NAME": "A", "GIT_COMMITTER_EMAIL": "a@example.org",
    }  # fmt: skip
    command = ["git", "-c", "init.defaultBranch=main", "-C", str(folder), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, check=True, text=True).stdout.strip()


def bare(work: Path, target: Path) -> None:
    """A served copy of a working tree's repository."""
    git(work.parent, "clone", "--quiet", "--bare", str(work), str(target))
    git(target, "update-server-info")
