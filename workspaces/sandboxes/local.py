"""The local driver, for development without Docker: commands run as the worker's own user, isolated from nothing.

A sandbox is then only a folder and the processes that carry its mark. Nothing here limits memory, CPU or
network, and a command can read whatever the user can.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from workspaces.sandboxes import processes
from workspaces.sandboxes.base import (
    Connections,
    Machines,
    SandboxSpec,
    SandboxUnavailable,
    SandboxUsage,
    SnapshotStore,
    State,
    StdioProcess,
)
from workspaces.sandboxes.disk_sandbox import DiskSandbox
from workspaces.sandboxes.execution import Folders, Liveness
from workspaces.sandboxes.snapshots.base import DiskStore
from workspaces.sandboxes.snapshots.choose import choose_store
from workspaces.sandboxes.stdio import PipedProcess

_MARKER = "AGENTDESK_LOCAL"
_KEPT_NAMES = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "SSL_CERT_FILE")


class LocalDriver:
    """`root` holds disks and snapshots; `store` is `content` unless set. One a process, thread-safe."""

    name = "local"
    isolated = False

    def __init__(self, root: Path, *, store: str = "content") -> None:
        self.root = root.resolve()
        self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.store: DiskStore
        self.store, self.store_reason = choose_store(self.root, None, store)

    @property
    def snapshots(self) -> SnapshotStore:
        return self.store

    def check(self) -> None:
        if not sys.platform.startswith("linux") or not processes.running():
            raise SandboxUnavailable("the local driver needs Linux with /proc", hint="use the Docker driver")

    def open(self, spec: SandboxSpec) -> LocalSandbox:
        sandbox = LocalSandbox(spec, self)
        if not self.store.exists(spec.key):
            self.store.open(spec.key, spec.limits.disk_bytes)
        return sandbox

    def awake(self) -> list[str]:
        return sorted(mark.parent.name for mark in self.root.glob("run/*/running"))

    def detach(self) -> None:
        self.store.detach()

    def close(self) -> None:
        self.store.close()


class LocalSandbox(DiskSandbox):
    def __init__(self, spec: SandboxSpec, driver: LocalDriver) -> None:
        super().__init__(spec, driver.root, driver.store, None)
        site = hashlib.sha256(os.fsencode(driver.root)).hexdigest()[:16]
        self._marker = f"{_MARKER}={spec.key}:{site}"
        self._running = self._own / "running"  # says whether it runs, to every process
        self._halted = self._own / "halted"

    def state(self) -> State:
        if self._running.exists():
            return "frozen" if self._halted.exists() else "running"
        return "stopped" if self._store.exists(self._spec.key) else "absent"

    def connections(self, after: int) -> tuple[Connections, int]:
        return [], after  # there is no proxy: a command reaches whatever the user does

    def machines(self) -> Machines | None:
        return None  # processes of the worker's own user: nothing counts what has ended

    def usage(self) -> SandboxUsage:
        memory = 0
        for pid in self._pids():
            with contextlib.suppress(OSError, ValueError, IndexError):
                memory += int((processes.PROC / str(pid) / "statm").read_text().split()[1])
        memory *= os.sysconf("SC_PAGE_SIZE")
        exists = self._store.exists(self._spec.key)
        return SandboxUsage(None, memory, self._store.used_bytes(self._spec.key) if exists else None)

    def _start(self) -> None:
        self._halted.unlink(missing_ok=True)
        self._running.touch()

    def _stop(self) -> None:
        self._running.unlink(missing_ok=True)
        self._halted.unlink(missing_ok=True)
        processes.kill_all(self._pids)
        until = time.monotonic() + 5
        while self._pids() and time.monotonic() < until:
            time.sleep(0.01)

    def _halt(self) -> None:
        self._halted.touch()
        # what forks meanwhile is stopped in the next round
        for _ in range(5):
            mine = set(processes.marked(self._marker.encode()))
            moving = [pid for pid in mine if processes.state_of(pid) not in ("T", "t", "Z", "")]
            if not moving:
                return
            processes.signal_each(moving, signal.SIGSTOP)

    def _go_on(self) -> None:
        self._halted.unlink(missing_ok=True)
        processes.signal_each(processes.marked(self._marker.encode()), signal.SIGCONT)

    def _is_idle(self) -> bool:
        return not processes.marked(self._marker.encode())

    def _pids(self) -> list[int]:
        return processes.family(processes.everything(), self._marker.encode(), None)

    def _folders(self) -> Folders:
        requests, claims = self._own / "requests", self._store.claims(self._spec.key)
        return Folders(requests, claims, str(requests), str(claims))

    def _inside(self) -> str:
        return str(self._disk() / "files")

    def _environment(self) -> dict[str, str]:
        home = str(self._disk() / "home")
        name, value = self._marker.split("=", 1)
        environment = {key: os.environ[key] for key in _KEPT_NAMES if key in os.environ}
        return environment | {
            "HOME": home,
            "PATH": f"{home}/.local/bin:{environment.get('PATH', os.defpath)}",
            "PYTHONUSERBASE": f"{home}/.local",
            "npm_config_prefix": f"{home}/.local",
            name: value,
        }

    def _attach(self, argv: list[str], env: dict[str, str], cwd: str, kill: Callable[[], None]) -> StdioProcess:
        process = subprocess.Popen(
            argv,
            cwd=cwd,
            env=self._environment() | env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        return PipedProcess(process, kill)

    def launch(self, arguments: list[str], record: Path) -> None:
        # the middle shell ends at once, so that the runner is nobody's child and nobody has to wait for it
        line = '"$@" </dev/null >/dev/null 2>&1 & echo $!'
        done = subprocess.run(
            ["/bin/sh", "-c", line, "sh", *arguments],
            cwd=self._disk() / "files",
            env=self._environment(),
            stdout=subprocess.PIPE,
            start_new_session=True,
            timeout=30,
            check=False,
        )
        if done.returncode or not done.stdout.strip().isdigit():
            raise SandboxUnavailable("the command's runner cannot be started")
        record.write_text(done.stdout.decode().strip())

    def look(self, record: Path | None) -> tuple[Liveness, int | None]:
        if self.state() not in ("running", "frozen"):
            return "gone", None
        if record is None:
            return "runs", None
        try:
            process = processes.look(int(record.read_text()))
        except (OSError, ValueError):
            return "gone", None
        alive = process is not None and processes.belongs(process, self._marker.encode())
        return ("runs", None) if alive else ("ended", 137)

    def kill_command(self, marker: str, group: int | None) -> None:
        # another workspace, or another installation on this machine, may use the same key
        own = self._marker.encode()
        processes.kill_all(lambda: processes.family(processes.everything(), marker.encode(), group, own))
