"""An HTTP server that answers as a test says, byte for byte, also wrongly, slowly or not at all."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable

Answer = Callable[[socket.socket, bytes], None]


class RawServer:
    """On the loopback. `answers`: path → what is done with the connection. `seen`: the requests' heads and bodies."""

    def __init__(self, **answers: bytes | Answer) -> None:
        self.answers = answers
        self.seen: list[str] = []
        self.gone = threading.Event()  # a client left before it had the whole answer
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def url(self, path: str = "", host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}/{path}"

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            raw = b""
            while b"\r\n\r\n" not in raw:
                chunk = connection.recv(65536)
                if not chunk:
                    return
                raw += chunk
            head, _, body = raw.partition(b"\r\n\r\n")
            length = next(
                (
                    int(line.split(b":")[1])
                    for line in head.split(b"\r\n")
                    if line.lower().startswith(b"content-length:")
                ),
                0,
            )
            while len(body) < length:
                body += connection.recv(65536)
            self.seen.append((head + b"\n\n" + body).decode("latin-1"))
            path = head.split(b" ")[1].decode().strip("/").partition("?")[0]
            answer = self.answers.get(path, http(404, b"no such page"))
            if callable(answer):
                try:
                    answer(connection, head + b"\r\n\r\n" + body)
                except OSError:
                    self.gone.set()
            else:
                connection.sendall(answer)


def http(status: int, body: bytes = b"", **headers: str) -> bytes:
    """An answer. `content_type` and the like become headers."""
    lines = [f"HTTP/1.1 {status} Said", f"Content-Length: {len(body)}", "Connection: close"]
    lines += [f"{name.replace('_', '-').title()}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


JSON = "application/json"
