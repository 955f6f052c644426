"""The part of a sandbox that every driver shares: files, commands, snapshots. Knows no engine.

Locks are files, because web, worker and scheduler open the same sandbox from processes of their own.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from workspaces.sandboxes import stdio
from workspaces.sandboxes.base import (
    Entry,
    ExecResult,
    NotAFile,
    OutputSink,
    PathRefused,
    SandboxGone,
    SandboxSpec,
    SandboxUnavailable,
    SnapshotInfo,
    State,
    StdioProcess,
)
from workspaces.sandboxes.confined import Confined
from workspaces.sandboxes.execution import Commands, Folders, Liveness, name_of
from workspaces.sandboxes.frozen import FrozenTime
from workspaces.sandboxes.snapshots.base import DiskStore, locked

_RUNNER_ENDS_S = (0.0, 0.005, 0.01, 0.02)  # a command's runner outlives the command's end by moments
_KEY = re.compile(r"[a-z0-9][a-z0-9-]{0,39}\Z")


class DiskSandbox(ABC):
    """Drivers add how the machine is started, stopped, halted, and how a runner is launched in it."""

    def __init__(self, spec: SandboxSpec, root: Path, store: DiskStore, owner: tuple[int, int] | None) -> None:
        if not _KEY.match(spec.key):
            raise ValueError(f"{spec.key!r} cannot be a sandbox's key")
        self._spec = spec
        self._store = store
        self._owner = owner
        self._own = root / "run" / spec.key
        self._own.mkdir(parents=True, exist_ok=True)
        self._frozen = FrozenTime(self._own / "frozen.json")

    @property
    def spec(self) -> SandboxSpec:
        return self._spec

    # --- what a driver adds

    @abstractmethod
    def state(self) -> State: ...

    @abstractmethod
    def _start(self) -> None:
        """Create and start, from nothing. The lock is held."""

    @abstractmethod
    def _stop(self) -> None:
        """End every process and remove the machine. The lock is held."""

    @abstractmethod
    def _halt(self) -> None:
        """Freeze; nothing if that is so already or nothing runs."""

    @abstractmethod
    def _go_on(self) -> None:
        """Thaw; nothing if it is not frozen."""

    @abstractmethod
    def _is_idle(self) -> bool:
        """Whether nothing runs (or stands frozen) but what keeps it up. False also when that cannot be told."""

    @abstractmethod
    def _folders(self) -> Folders: ...

    @abstractmethod
    def _inside(self) -> str:
        """The workspace's path as commands see it."""

    @abstractmethod
    def _attach(self, argv: list[str], env: dict[str, str], cwd: str, kill: Callable[[], None]) -> StdioProcess:
        """Start it as the leader of a process group of its own. `cwd` as commands see it."""

    @abstractmethod
    def launch(self, arguments: list[str], record: Path) -> None: ...

    @abstractmethod
    def look(self, record: Path | None) -> tuple[Liveness, int | None]: ...

    @abstractmethod
    def kill_command(self, marker: str, group: int | None) -> None: ...

    # --- life

    def start(self) -> None:
        with self._lock():
            state = self.state()
            if state == "frozen":
                self._thaw()
            elif state != "running":
                self._make()
                self._start()

    def stop(self) -> None:
        with self._lock():
            self._end()

    def destroy(self) -> None:
        with self._lock():
            self._end()
            self._store.delete(self._spec.key)
        shutil.rmtree(self._own, ignore_errors=True)

    def freeze(self) -> None:
        # not under the lock: a snapshot that takes long must not delay an order to halt
        if self.state() != "running":
            return
        with self._pause_lock():
            self._frozen.begin()
            self._halt()

    def thaw(self) -> None:
        with self._lock():
            self._thaw()

    def _thaw(self) -> None:
        with self._pause_lock():
            self._go_on()
            self._frozen.end()

    def _make(self) -> Path:
        self._own.mkdir(parents=True, exist_ok=True)
        disk = self._store.open(self._spec.key, self._spec.limits.disk_bytes)
        folders = self._folders()
        folders.make()
        folders.clear()
        self._frozen.clear()
        return disk

    def _end(self) -> None:
        self._stop()
        self._frozen.clear()
        if self._store.exists(self._spec.key):
            self._folders().clear()

    def _lock(self) -> contextlib.AbstractContextManager[None]:
        return locked(self._own / "lock")

    def _pause_lock(self) -> contextlib.AbstractContextManager[None]:
        return locked(self._own / "pause.lock")

    # --- commands

    def exec(
        self,
        argv: Sequence[str],
        *,
        key: str,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        cwd: str = "",
        timeout_s: float = 60.0,
        output_limit_bytes: int = 4 * 1024 * 1024,
        on_output: OutputSink | None = None,
        interrupt: threading.Event | None = None,
    ) -> ExecResult:
        commands = self._commands()
        folder = ""
        if not commands.is_known(key):
            state = self.state()
            if state != "running":
                raise SandboxUnavailable(f"the sandbox is {state}", hint="start it first")
            try:
                folder = self._confined().check_folder(cwd)
            except NotAFile as error:
                raise PathRefused(f"the working folder: {error}") from None
        elif self.state() not in ("running", "frozen"):
            raise SandboxGone("the sandbox went away while the command ran")
        return commands.run(
            argv,
            key=key,
            stdin=stdin,
            env=env or {},
            cwd=f"{self._inside()}/{folder}".rstrip("/"),
            timeout_s=timeout_s,
            output_limit_bytes=output_limit_bytes,
            on_output=on_output,
            interrupt=interrupt,
        )

    def open_stdio(
        self, argv: Sequence[str], *, key: str, env: Mapping[str, str] | None = None, cwd: str = ""
    ) -> StdioProcess:
        if not argv:
            raise ValueError("no command")
        state = self.state()
        if state != "running":
            raise SandboxUnavailable(f"the sandbox is {state}", hint="start it first")
        try:
            folder = self._confined().check_folder(cwd)
        except NotAFile as error:
            raise PathRefused(f"the working folder: {error}") from None
        marked = stdio.environment(name_of(key), env or {})
        inside = f"{self._inside()}/{folder}".rstrip("/")
        return self._attach(stdio.watched(argv), marked, inside, lambda: self.kill(key))

    def is_known(self, key: str) -> bool:
        return self._commands().is_known(key)

    def kill(self, key: str) -> None:
        self._commands().kill(key)

    def _commands(self) -> Commands:
        return Commands(self._folders(), self, self._frozen)

    # --- files

    def read(self, path: str, *, limit_bytes: int = 50 * 1024 * 1024) -> bytes:
        return self._confined().read(path, limit_bytes=limit_bytes)

    def write(self, path: str, data: bytes, *, executable: bool = False) -> None:
        self._confined().write(path, data, executable=executable)

    def list(self, path: str = "", *, recursive: bool = False, limit: int = 2000) -> list[Entry]:
        return self._confined().list(path, recursive=recursive, limit=limit)

    def _confined(self) -> Confined:
        return Confined(self._disk() / "files", owner=self._owner)

    def _disk(self) -> Path:
        if self._store.exists(self._spec.key):
            return self._store.path(self._spec.key)
        return self._store.open(self._spec.key, self._spec.limits.disk_bytes)

    # --- snapshots

    def snapshot(self) -> SnapshotInfo:
        with self._lock():
            self._disk()
            quiet = self._is_quiet()  # before: what ends meanwhile may have written behind the copy's back
            return replace(self._store.save(self._spec.key, self._quiet), quiet=quiet)

    def _is_quiet(self) -> bool:
        for pause_s in _RUNNER_ENDS_S:
            time.sleep(pause_s)
            if self._is_idle():
                return True
        return False

    def restore(self, ref: str) -> None:
        with self._lock():
            self._store.list(ref, limit=1)  # a missing ref is told before anything is ended
            before = self.state()
            self._end()
            self._store.put_back(self._spec.key, ref, self._spec.limits.disk_bytes)
            if before in ("running", "frozen"):
                self._make()
                self._start()

    @contextlib.contextmanager
    def _quiet(self) -> Iterator[None]:
        """Processes halted; afterwards they go on, unless an order to freeze came meanwhile."""
        if self.state() != "running":
            yield
            return
        with self._pause_lock():
            self._halt()
        try:
            yield
        finally:
            with self._pause_lock():
                if not self._frozen.active():
                    self._go_on()
