"""Starts keyed commands and waits for them through files, as the host sees them. Shared by the drivers.

The requests folder is the host's alone (the sandbox sees it read-only). The claims folder is written by the
sandbox, so nothing in it is trusted: names are opened without following links, only regular files are read,
and only so much of them.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import shutil
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from workspaces.sandboxes import runner
from workspaces.sandboxes.base import (
    ExecInterrupted,
    ExecResult,
    OutputSink,
    SandboxGone,
    SandboxUnavailable,
)
from workspaces.sandboxes.claims import Stream, exit_code, number, number_at, open_claim, small, small_at
from workspaces.sandboxes.frozen import FrozenTime

_FIRST_WAIT_S = 0.005
_LONGEST_WAIT_S = 0.1
_LIVENESS_S = 1.0
_CLAIM_S = 30.0  # from the launch to the runner's claim: an engine under load is slow, a broken image is silent
_END_S = 2.0  # from the exit to the end marks: the drains only have to be scheduled
_DIED = b"\n[the command was killed with its runner: by itself, or for want of memory or processes]\n"
_FULL = b"\n[No space left on the device that the workspace lies on: the command was ended]\n"
_LEAST_ROOM_BYTES = 1024 * 1024
_KEPT_BYTES = 256 * 1024 * 1024  # output of finished commands kept for a second caller

Liveness = Literal["runs", "ended", "gone"]


class Machine(Protocol):
    """What a driver adds: how a runner is launched, looked at and killed."""

    def launch(self, arguments: list[str], record: Path) -> None:
        """Start the runner detached; write what `look` needs to `record` before it can run."""

    def look(self, record: Path | None) -> tuple[Liveness, int | None]:
        """Whether the runner (None: the sandbox alone) is alive, and its exit code if the engine knows."""

    def kill_command(self, marker: str, group: int | None) -> None: ...


@dataclass(frozen=True, slots=True)
class Folders:
    """Where requests and claims lie, on the host and as the runner sees them."""

    requests: Path
    claims: Path
    inside_requests: str
    inside_claims: str
    owner: tuple[int, int] | None = None

    def make(self) -> None:
        self.requests.mkdir(parents=True, exist_ok=True)
        self.requests.chmod(0o755)
        self.claims.mkdir(parents=True, exist_ok=True)
        self.claims.chmod(0o700)
        if self.owner:
            os.chown(self.claims, *self.owner)
        script = self.requests / "exec.sh"
        if not script.exists() or script.read_text() != runner.SCRIPT:
            fresh = self.requests / f".{secrets.token_hex(6)}"
            fresh.write_text(runner.SCRIPT)
            fresh.chmod(0o755)
            fresh.rename(script)

    def clear(self) -> None:
        """Forget every key. Only called when nothing runs in the sandbox."""
        for folder in (self.requests, self.claims):
            if folder.exists():
                for name in os.listdir(folder):
                    entry = folder / name
                    if entry.is_dir() and not entry.is_symlink():
                        shutil.rmtree(entry, ignore_errors=True)
                    elif name != "exec.sh":
                        with contextlib.suppress(FileNotFoundError):
                            entry.unlink()


class Commands:
    """The commands of one sandbox."""

    def __init__(self, folders: Folders, machine: Machine, frozen: FrozenTime) -> None:
        self.folders = folders
        self.machine = machine
        self.frozen = frozen

    def is_known(self, key: str) -> bool:
        return (self.folders.claims / name_of(key)).is_dir()

    def kill(self, key: str) -> None:
        name = name_of(key)
        group = None
        # once it has ended, its number may be another's; what it left behind still carries the marker
        if self.is_known(key) and small(self.folders.claims, name, "exit") is None:
            group = number(self.folders.claims, name, "group")
        self.machine.kill_command(f"{runner.MARKER}={name}", group)

    def run(
        self,
        argv: Sequence[str],
        *,
        key: str,
        stdin: bytes,
        env: Mapping[str, str],
        cwd: str,
        timeout_s: float,
        output_limit_bytes: int,
        on_output: OutputSink | None,
        interrupt: threading.Event | None,
    ) -> ExecResult:
        name = name_of(key)
        if not self.is_known(key):
            if not argv:
                raise ValueError("no command")
            try:
                self._ask(name, argv, env, cwd, stdin, output_limit_bytes)
            except ValueError as error:
                return ExecResult(126, b"", f"{error}\n".encode())
            self._launch(name)
        return _Wait(self, name, timeout_s, on_output, interrupt).result()

    def _ask(self, name: str, argv: Sequence[str], env: Mapping[str, str], cwd: str, stdin: bytes, limit: int) -> None:
        """Write the request down whole. If one is there (its caller died, or races with us) it stands."""
        end = f"\x1eend:{secrets.token_hex(16)}\x1e".encode()
        fresh = self.folders.requests / f".{secrets.token_hex(6)}"
        script = runner.request_script(argv, env, cwd)
        fresh.mkdir(mode=0o755)
        (fresh / "request").write_bytes(script)
        (fresh / "limits").write_bytes(runner.limits_script(limit, end))
        (fresh / "stdin").write_bytes(stdin)
        (fresh / "about").write_text(json.dumps({"end": end.decode(), "limit": limit}))
        for path in (fresh, fresh / "request", fresh / "limits", fresh / "stdin"):
            path.chmod(0o755 if path is fresh else 0o644)
        try:
            fresh.rename(self.folders.requests / name)
        except OSError:
            shutil.rmtree(fresh, ignore_errors=True)

    def _launch(self, name: str) -> None:
        token = secrets.token_hex(8)
        record = self.folders.requests / name / f"launch-{token}"
        inside = self.folders.inside_requests
        arguments = [
            "/bin/sh",
            f"{inside}/exec.sh",
            self.folders.inside_claims,
            name,
            f"{inside}/{name}",
            token,
        ]
        self.machine.launch(arguments, record)

    def trim(self) -> None:
        """Empty the oldest finished outputs once all together are too big. Their exit codes stay."""
        finished: list[tuple[float, str, int]] = []
        for name in os.listdir(self.folders.claims):
            with contextlib.suppress(OSError), open_claim(self.folders.claims, name) as folder:
                state = os.stat("exit", dir_fd=folder, follow_symlinks=False)
                size = sum(os.stat(stream, dir_fd=folder, follow_symlinks=False).st_size for stream in ("out", "err"))
                finished.append((state.st_mtime, name, size))
        total = sum(size for _, _, size in finished)
        for _, name, size in sorted(finished)[:-1]:
            if total <= _KEPT_BYTES:
                return
            with contextlib.suppress(OSError), open_claim(self.folders.claims, name) as folder:
                for stream in ("out", "err"):
                    os.unlink(stream, dir_fd=folder)
                (self.folders.requests / name / "trimmed").touch()
                total -= size


class _Wait:
    """One caller waiting for one command."""

    def __init__(
        self,
        commands: Commands,
        name: str,
        timeout_s: float,
        sink: OutputSink | None,
        interrupt: threading.Event | None,
    ) -> None:
        self.commands = commands
        self.claims = commands.folders.claims
        self.request = commands.folders.requests / name
        self.name = name
        self.timeout_s = timeout_s
        self.sink = sink
        self.interrupt = interrupt
        about = self._about()
        self.streams = [Stream(w, about["end"].encode(), about["limit"]) for w in ("stdout", "stderr")]
        self.next_look = time.monotonic() + _LIVENESS_S
        self.attached_at = (_clock_of(self.request), time.monotonic())
        self.runner_died = False

    def result(self) -> ExecResult:
        self._wait_for_claim()
        try:
            with open_claim(self.claims, self.name) as claim:
                return self._follow(claim)
        except FileNotFoundError:
            raise SandboxGone("the sandbox was stopped while the command ran") from None
        finally:
            for stream in self.streams:
                stream.close()

    def _about(self) -> dict[str, Any]:
        try:
            about: dict[str, Any] = json.loads((self.request / "about").read_text())
        except (OSError, ValueError):
            raise SandboxGone("the sandbox has forgotten this command") from None
        return about

    def _wait_for_claim(self) -> None:
        until = time.monotonic() + _CLAIM_S
        wait = _FIRST_WAIT_S
        while not (self.claims / self.name).is_dir():
            self._pause(wait)
            wait = min(wait * 1.5, _LONGEST_WAIT_S)
            if time.monotonic() > self.next_look:
                self.next_look = time.monotonic() + _LIVENESS_S
                launches = sorted(self.request.glob("launch-*"), key=lambda path: path.stat().st_mtime)
                alive, _ = self.commands.machine.look(launches[-1] if launches else None)
                if alive != "runs" and not (self.claims / self.name).is_dir():
                    if self.commands.machine.look(None)[0] == "runs":
                        raise SandboxUnavailable("the command's runner did not start in the sandbox's image")
                    raise SandboxGone("the sandbox went away before the command started")
            if time.monotonic() > until and not self.commands.frozen.active():
                raise SandboxUnavailable("the engine did not start the command in time")

    def _follow(self, claim: int) -> ExecResult:
        wait = _FIRST_WAIT_S
        code: int | None = None
        ended: float | None = None
        while True:
            got = [stream.pull(claim, self.sink) for stream in self.streams]
            if code is None:
                code = exit_code(claim)
                ended = time.monotonic() if code is not None else None
            if code is not None and not any(got):
                assert ended is not None
                if all(s.complete for s in self.streams) or time.monotonic() - ended > _END_S:
                    return self._finished(claim, code)
            if not any(got):
                self._pause(wait)
                wait = min(wait * 1.3, _LONGEST_WAIT_S)
            else:
                wait = _FIRST_WAIT_S
                self._obey()
            if code is None:
                if self._used_s(claim) > self.timeout_s and not self.commands.frozen.active():
                    return self._time_out(claim)
                code = self._dead_code(claim)
                ended = time.monotonic() if code is not None else None

    def _pause(self, wait_s: float) -> None:
        if self.interrupt is None:
            time.sleep(wait_s)
        else:
            self.interrupt.wait(wait_s)
            self._obey()

    def _obey(self) -> None:
        if self.interrupt is not None and self.interrupt.is_set():
            raise ExecInterrupted(self.name)

    def _used_s(self, claim: int) -> float:
        """Seconds that the command has run: since its claim, by this host's clock, without frozen time.

        Read once, where the claim's time stands: a clock moved while the command runs times nothing out.
        """
        started = self._launched_at(claim)
        wall, steady = self.attached_at
        now = wall + time.monotonic() - steady
        return now - started - self.commands.frozen.overlap(started, now)

    def _record(self, claim: int) -> Path | None:
        token = small_at(claim, "token")
        path = self.request / f"launch-{token}" if token and token.isalnum() else None
        return path if path and path.exists() else None

    def _launched_at(self, claim: int) -> float:
        record = self._record(claim)
        return (record or self.request).stat().st_mtime if self.request.exists() else time.time()

    def _dead_code(self, claim: int) -> int | None:
        """The exit code when the runner itself was killed (the sandbox's own doing: out of memory, `kill -1`)."""
        if time.monotonic() < self.next_look:
            return None
        self.next_look = time.monotonic() + _LIVENESS_S
        record = self._record(claim)
        if record is None:
            if not self.request.exists():
                raise SandboxGone("the sandbox was stopped while the command ran")
            return None
        alive, code = self.commands.machine.look(record)
        if alive == "runs":
            return None
        written = exit_code(claim)
        if written is not None:
            return written
        if alive == "gone" or code is None:
            raise SandboxGone("the sandbox went away while the command ran; its outcome is not known")
        self.runner_died = True
        return code or 137

    def _time_out(self, claim: int) -> ExecResult:
        (self.request / "timed_out").touch()
        marker = f"{runner.MARKER}={self.name}"
        until = time.monotonic() + 5
        code = None
        while code is None and time.monotonic() < until:
            self.commands.machine.kill_command(marker, number_at(claim, "group"))
            for _ in range(10):
                time.sleep(0.02)
                code = exit_code(claim)
                if code is not None:
                    break
        ended = time.monotonic()
        while not all(s.complete for s in self.streams) and time.monotonic() - ended < _END_S:
            if not any([stream.pull(claim, self.sink) for stream in self.streams]):  # noqa: C419 - both must be pulled
                time.sleep(0.01)
        return self._finished(claim, None)

    def _finished(self, claim: int, code: int | None) -> ExecResult:
        timed_out = (self.request / "timed_out").exists()
        trimmed = (self.request / "trimmed").exists()
        out, err = (stream.finish(self.sink) for stream in self.streams)
        if self.runner_died:
            err += _DIED if shutil.disk_usage(self.claims).free > _LEAST_ROOM_BYTES else _FULL
        started = self._launched_at(claim)
        try:
            ended = os.stat("exit", dir_fd=claim, follow_symlinks=False).st_mtime
        except OSError:
            ended = time.time()
        with contextlib.suppress(OSError):
            os.truncate(self.request / "stdin", 0)
        self.commands.trim()
        return ExecResult(
            None if timed_out else code,
            out,
            err,
            timed_out=timed_out,
            stdout_truncated=self.streams[0].truncated or trimmed,
            stderr_truncated=self.streams[1].truncated or trimmed,
            duration_s=max(0.0, ended - started - self.commands.frozen.overlap(started, ended)),
        )


def _clock_of(folder: Path) -> float:
    """Now, by the clock that dates the folder's files."""
    try:
        (folder / "attached").touch()
        return (folder / "attached").stat().st_mtime
    except OSError:  # the command is being forgotten, which whoever waits finds out for itself
        return time.time()


def name_of(key: str) -> str:
    """A key as the mark and the folder of what runs under it."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:40]
