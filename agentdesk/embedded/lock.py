"""One installation at a time: a lock on the home folder, held for as long as its holder lives."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from types import TracebackType
from typing import Self

from agentdesk.embedded.process import StartError


class HomeLock:
    """The kernel lets go of it when the holder dies, so it is never stale."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._path = home / "lock"
        self._handle: int | None = None

    def __enter__(self) -> Self:
        handle = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(handle, 20, 0).decode().strip() or "unknown"
            os.close(handle)
            raise StartError(
                f"agentdesk already runs on {self._home} (pid {holder}). Stop it (kill {holder}), "
                "or run a second one with its own AGENTDESK_HOME and AGENTDESK_PORT."
            ) from None
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        self._handle = handle
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._handle is not None:
            os.ftruncate(self._handle, 0)
            os.close(self._handle)
            self._handle = None
