"""Programs in a sandbox whose input and output are held open: what the drivers share, and the two ways to hold them.

The program runs beside a `cat` that feeds it. When whoever holds the other end goes (also by a kill of the whole
worker), `cat` sees the end, gives the program a second, and kills the process group. What leaves its group is found by
its mark (processes.py) when the sandbox is next asked to kill it. Knows no driver.
"""

from __future__ import annotations

import contextlib
import struct
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from workspaces.sandboxes import runner

_ERRORS_KEPT = 64  # chunks
_READ_BYTES = 65_536
# the group is the program's own: an engine and `start_new_session` both make it the leader of a new one
_WATCHED = '{ cat; sleep 1; kill -9 0; } | { "$@"; kill -9 0; }'


def watched(argv: Sequence[str]) -> list[str]:
    return ["/bin/sh", "-c", _WATCHED, "sh", *argv]


def environment(name: str, env: Mapping[str, str]) -> dict[str, str]:
    """`name`: of the key, as commands are marked with it."""
    return {**env, runner.MARKER: name}


class _Held:
    """What both ways share: the end of the errors, and one end."""

    def __init__(self, kill: Callable[[], None]) -> None:
        self._kill = kill
        self._errors: deque[bytes] = deque(maxlen=_ERRORS_KEPT)
        self._closing = threading.Lock()
        self._closed = False

    def errors(self) -> bytes:
        return b"".join(list(self._errors))

    def close(self) -> None:
        with self._closing:
            if self._closed:
                return
            self._closed = True
        try:
            self._kill()
        finally:
            self._let_go()

    def _let_go(self) -> None: ...


class PipedProcess(_Held):
    """A child of this process, by pipes."""

    def __init__(self, process: subprocess.Popen[bytes], kill: Callable[[], None]) -> None:
        super().__init__(kill)
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self._process = process
        self._in, self._out, self._err = process.stdin, process.stdout, process.stderr
        self._reader = threading.Thread(target=self._read_errors, daemon=True)
        self._reader.start()

    def read(self) -> bytes:
        try:
            return self._out.read1(_READ_BYTES)  # type: ignore[attr-defined]
        except (OSError, ValueError):
            return b""

    def write(self, data: bytes) -> None:
        try:
            self._in.write(data)
            self._in.flush()
        except ValueError:
            raise BrokenPipeError("the program was ended") from None

    def _read_errors(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            while chunk := self._err.read1(_READ_BYTES):  # type: ignore[attr-defined]
                self._errors.append(chunk)

    def _let_go(self) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join(5)
        for pipe in (self._in, self._err, self._out):
            with contextlib.suppress(OSError, ValueError):
                pipe.close()


class AttachedProcess(_Held):
    """By an engine's attached stream: frames of stdout and stderr in one socket (the Engine API's stream format)."""

    def __init__(self, attached: Any, kill: Callable[[], None]) -> None:
        super().__init__(kill)
        self._attached = attached  # keeps the response alive that owns the socket
        self._socket = getattr(attached, "_sock", attached)
        self._socket.settimeout(None)

    def read(self) -> bytes:
        while True:
            head = self._exactly(8)
            if len(head) < 8:
                return b""
            stream, size = head[0], struct.unpack(">I", head[4:])[0]
            body = self._exactly(size)
            if stream == 2:
                self._errors.append(body)
            elif body:
                return body

    def _exactly(self, size: int) -> bytes:
        found = bytearray()
        while len(found) < size:
            try:
                chunk = self._socket.recv(min(size - len(found), _READ_BYTES))
            except (OSError, ValueError):
                break
            if not chunk:
                break
            found += chunk
        return bytes(found)

    def write(self, data: bytes) -> None:
        self._socket.sendall(data)

    def _let_go(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(2)
        owners: tuple[Any, ...] = (getattr(self._attached, "_response", None), self._attached, self._socket)
        for owner in owners:
            with contextlib.suppress(OSError, ValueError, AttributeError):
                owner.close()
