"""Finds and signals the processes that a command started, by reading /proc. Knows no driver and keeps nothing.

A command's processes are those that carry its marker in their environment, those of its process group or
session, and all that descend from any of these: a child that called `setsid`, or whose parent has ended, is
found by one of the three.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Process:
    """As its own innermost namespace counts it, except `pid`, which is ours."""

    pid: int
    parent: int
    groups: frozenset[int]  # innermost process group and session
    environ: bytes
    cgroup: str
    state: str


def running() -> bool:
    """Whether processes can be looked at here at all."""
    return (PROC / "self" / "environ").exists()


def everything() -> Iterable[Process]:
    for name in os.listdir(PROC):
        if name.isdigit():
            process = look(int(name))
            if process:
                yield process


def marked(marker: bytes) -> list[int]:
    """The living pids whose environment holds the marker: one file a process, for what is asked often."""
    found = []
    for name in filter(str.isdigit, os.listdir(PROC)):
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                environ = file.read()
        except OSError:
            continue
        if marker in environ and marker in environ.split(b"\x00") and state_of(int(name)) not in ("Z", "X", ""):
            found.append(int(name))
    return found


def look(pid: int) -> Process | None:
    """None when there is no such process, or it is not ours to see."""
    folder = PROC / str(pid)
    try:
        status = (folder / "status").read_text(errors="replace")
        environ = (folder / "environ").read_bytes()
        cgroup = (folder / "cgroup").read_text(errors="replace")
    except OSError:
        return None
    fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    groups = frozenset(int(fields[key].split()[-1]) for key in ("NSpgid", "NSsid") if fields.get(key, "").split())
    return Process(pid, int(fields.get("PPid", "0")), groups, environ, cgroup, fields.get("State", "?").strip()[:1])


def state_of(pid: int) -> str:
    """One letter as /proc gives it; empty when there is no such process."""
    process = look(pid)
    return process.state if process else ""


def belongs(process: Process, marker: bytes) -> bool:
    return marker in process.environ.split(b"\x00")


def family(processes: Iterable[Process], marker: bytes, group: int | None, within: bytes = b"") -> list[int]:
    """The pids of a command: see the module's first lines. `within`: a second mark, where the first is not unique."""
    alive = [process for process in processes if process.state not in ("Z", "X")]
    chosen = {
        p.pid
        for p in alive
        if (belongs(p, marker) and (not within or belongs(p, within))) or (group and group in p.groups)
    }
    grown = True
    while grown:
        more = {p.pid for p in alive if p.parent in chosen} - chosen
        chosen |= more
        grown = bool(more)
    return sorted(chosen)


def kill_all(find: Callable[[], list[int]], *, rounds: int = 20) -> bool:
    """SIGKILL to all that `find` finds. False when a process is not ours to signal.

    They are stopped first, round after round until no new one turns up, so that none forks away and no parent
    sees its child killed. A frozen process dies at its thaw at the latest, before an instruction of its own.
    """
    stopped: set[int] = set()
    for _ in range(rounds):
        fresh = set(find()) - stopped
        if not fresh:
            break
        for pid in fresh:
            try:
                os.kill(pid, signal.SIGSTOP)
            except ProcessLookupError:
                pass
            except PermissionError:
                return False
        stopped |= fresh
    signal_each(sorted(stopped), signal.SIGKILL)
    return True


def signal_each(pids: Iterable[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
