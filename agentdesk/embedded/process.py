"""Starts, watches and stops one child process, and finds the one that a killed predecessor left behind.

A child is started from the main thread only: the kernel ties "dies with its parent" to the parent's thread.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

LEASH = Path(__file__).with_name("leash.py")
LOG_MAX_BYTES = 20 * 1024 * 1024
POLL_S = 0.02


class StartError(Exception):
    """A part cannot start. The text is one line that says what to do."""


class Child:
    """One program, its log file and its pid file. `stop_signal` asks it to end in order."""

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        *,
        run: Path,
        log: Path,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        stop_signal: signal.Signals = signal.SIGTERM,
        death_signal: signal.Signals = signal.SIGKILL,
        pass_fds: Sequence[int] = (),
        user: int | None = None,
    ) -> None:
        self.name = name
        self.argv = list(argv)
        self.log = log
        self.env = dict(os.environ if env is None else env)
        self.cwd = cwd
        self.stop_signal = stop_signal
        self.death_signal = death_signal
        self.pass_fds = pass_fds
        self.user = user
        self.started_at = 0.0
        self.log_start = 0  # where in the log this run begins
        self._pid_file = run / f"{name}.pid"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def start(self) -> None:
        self.clear_stale()
        rotate(self.log)
        with self.log.open("ab") as log:
            self.log_start = log.tell()
            self._process = subprocess.Popen(
                leashed(self.argv, self.death_signal, self.user),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.env,
                cwd=self.cwd,
                pass_fds=self.pass_fds,
            )
        self.started_at = time.monotonic()
        self._pid_file.write_text(f"{self._process.pid} {birth(self._process.pid)}\n")

    def returncode(self) -> int | None:
        """None while it runs."""
        return self._process.poll() if self._process else None

    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def ask_to_stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(self.stop_signal)

    def kill(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()

    def stop(self, limit_s: float = 10.0) -> bool:
        """Stop it, by force after the limit, with everything in its group. True if it ended by itself."""
        process = self._process
        if process is None:
            return True
        self.ask_to_stop()
        in_order = True
        try:
            process.wait(limit_s)
        except subprocess.TimeoutExpired:
            in_order = False
        _kill_group(process.pid)
        process.wait()
        self._process = None
        self._pid_file.unlink(missing_ok=True)
        return in_order

    def clear_stale(self, limit_s: float = 10.0) -> None:
        """End the process that a killed predecessor left, if it is really that one (same pid, same birth)."""
        try:
            pid, born = self._pid_file.read_text().split()
        except (FileNotFoundError, ValueError):
            return
        if is_running(int(pid), born):
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), self.stop_signal)
            if not wait_until_gone(int(pid), born, limit_s):
                _kill_group(int(pid))
                if not wait_until_gone(int(pid), born, limit_s):
                    raise StartError(f"An old {self.name} (pid {pid}) does not end: kill -9 {pid}")
        self._pid_file.unlink(missing_ok=True)

    def last_words(self, lines: int = 3) -> str:
        """The end of its log, in one line."""
        try:
            with self.log.open("rb") as file:
                file.seek(max(0, self.log.stat().st_size - 4000))
                tail = file.read().decode(errors="replace").strip().splitlines()
        except OSError:
            return ""
        return " | ".join(line.strip() for line in tail[-lines:])


def leashed(argv: Sequence[str], death_signal: signal.Signals, user: int | None = None) -> list[str]:
    """The command line that runs `argv` in a session of its own and ends it when this process ends."""
    program = shutil.which(argv[0]) or argv[0]
    leash = [sys.executable, "-I", "-S", str(LEASH), str(os.getpid()), str(int(death_signal))]
    return [*leash, "-" if user is None else str(user), program, *argv[1:]]


def birth(pid: int) -> str:
    """What tells a process from a later one with the same pid; `-` when there is none (or a dead one)."""
    stat = Path(f"/proc/{pid}/stat")
    try:
        # The name, in brackets, may hold anything; state is the first field after it, start time the 20th.
        fields = stat.read_text(errors="replace").rpartition(")")[2].split()
        return "-" if fields[0] in "ZX" else fields[19]
    except (FileNotFoundError, ProcessLookupError):
        pass
    if Path("/proc/self/stat").exists():
        return "-"
    shown = subprocess.run(["ps", "-p", str(pid), "-o", "lstart="], capture_output=True, text=True)
    return shown.stdout.strip().replace(" ", "_") or "-"


def is_running(pid: int, born: str) -> bool:
    return born != "-" and birth(pid) == born


def wait_until_gone(pid: int, born: str, limit_s: float) -> bool:
    deadline = time.monotonic() + limit_s
    while is_running(pid, born):
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True


def rotate(log: Path) -> None:
    """Keep one older part. Truncated in place, as the writer may hold it open (it appends)."""
    try:
        if log.stat().st_size > LOG_MAX_BYTES:
            shutil.copyfile(log, log.with_suffix(".log.1"))
            os.truncate(log, 0)
    except FileNotFoundError:
        log.parent.mkdir(parents=True, exist_ok=True)


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
