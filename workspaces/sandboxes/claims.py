"""Reads what a command left in its claim folder. The sandbox can write there, so nothing in it is trusted: no link
is followed, only regular files are read, and only so much of them.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from workspaces.sandboxes import runner
from workspaces.sandboxes.base import OutputSink

_CHUNK_BYTES = 256 * 1024
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Stream:
    """One output file, read as it grows, up to the mark or the limit."""

    def __init__(self, which: Literal["stdout", "stderr"], end: bytes, limit: int) -> None:
        self.which = which
        self.file = "out" if which == "stdout" else "err"
        self.end = end
        self.limit = limit
        self.raw = bytearray()
        self.told = 0
        self.complete = False
        self.truncated = False
        self.handle: int | None = None

    def pull(self, claim: int, sink: OutputSink | None) -> bool:
        """Read what is new; True if there was something."""
        if self.complete or (self.handle is None and not self._open(claim)):
            return False
        assert self.handle is not None
        room = self.limit + runner.END_BYTES + runner.BLOCK_BYTES - len(self.raw)
        chunk = os.pread(self.handle, min(_CHUNK_BYTES, room), len(self.raw)) if room > 0 else b""
        searched = max(0, len(self.raw) - len(self.end))
        self.raw += chunk
        found = self.raw.find(self.end, searched) if chunk else -1
        if found >= 0:
            del self.raw[found:]
            self.complete = True
        if len(self.raw) > self.limit:
            self.truncated = True
            # the rest is drained inside, so there is nothing more to wait for once the command has ended
            self.complete = self.complete or len(self.raw) >= self.limit + runner.END_BYTES + 1
        self._tell(sink)
        return bool(chunk)

    def _tell(self, sink: OutputSink | None) -> None:
        held_back = 0 if self.complete else _overlap(self.raw, self.end)
        until = min(len(self.raw) - held_back, self.limit)
        if sink and until > self.told:
            sink(self.which, bytes(self.raw[self.told : until]))
            self.told = until

    def finish(self, sink: OutputSink | None) -> bytes:
        self.complete = True
        self._tell(sink)
        self.close()
        return bytes(self.raw[: self.limit])

    def _open(self, claim: int) -> bool:
        try:
            handle = os.open(self.file, _FILE, dir_fd=claim)
        except OSError:
            return False
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            os.close(handle)
            return False
        self.handle = handle
        return True

    def close(self) -> None:
        if self.handle is not None:
            os.close(self.handle)
            self.handle = None


def _overlap(raw: bytearray, end: bytes) -> int:
    """How many of the last bytes could be the beginning of the mark."""
    for size in range(min(len(end) - 1, len(raw)), 0, -1):
        if raw.endswith(end[:size]):
            return size
    return 0


@contextlib.contextmanager
def open_claim(claims: Path, name: str) -> Iterator[int]:
    handle = os.open(claims / name, _FOLDER)
    try:
        yield handle
    finally:
        os.close(handle)


def small_at(claim: int, file: str) -> str | None:
    try:
        handle = os.open(file, _FILE, dir_fd=claim)
    except OSError:
        return None
    try:
        return os.read(handle, 64).decode("ascii", "replace") if stat.S_ISREG(os.fstat(handle).st_mode) else None
    finally:
        os.close(handle)


def small(claims: Path, name: str, file: str) -> str | None:
    try:
        with open_claim(claims, name) as claim:
            return small_at(claim, file)
    except OSError:
        return None


def number_at(claim: int, file: str) -> int | None:
    text = small_at(claim, file)
    return int(text) if text and text.isascii() and text.isdigit() else None


def number(claims: Path, name: str, file: str) -> int | None:
    text = small(claims, name, file)
    return int(text) if text and text.isascii() and text.isdigit() else None


def exit_code(claim: int) -> int | None:
    code = number_at(claim, "exit")
    return code if code is not None and 0 <= code <= 255 else None
