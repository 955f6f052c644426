"""What a container has used, from the kernel's control groups of this host. Knows no engine; changes nothing.

The engine's own `stats` may wait a second for its next sample; these files answer at once. They are read only for a
process whose control group names the container: elsewhere (a remote engine, a worker in a container of its own) a
number that looks like the process's would be somebody else's.
"""

from __future__ import annotations

import json
import os
import secrets
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

from workspaces.sandboxes.base import MachineUsage
from workspaces.sandboxes.processes import PROC

CGROUPS = Path("/sys/fs/cgroup")
KEPT = 32  # machines that have ended, of one sandbox


def read(container: str, pid: int) -> MachineUsage | None:
    """Of a running container and its first process. None where that cannot be read here."""
    try:
        groups = _groups(container, (PROC / str(pid) / "cgroup").read_text())
        cpu_s = _cpu_s(groups)
        memory = _memory_bytes(groups)
        age_s = _age_s(pid)
    except (OSError, ValueError, KeyError, IndexError):
        return None
    return MachineUsage(container, cpu_s, age_s, memory, runs=True)


def _groups(container: str, text: str) -> dict[str, Path]:
    """The container's folder by controller; "" is that of the unified hierarchy. Raises KeyError for another's."""
    found: dict[str, Path] = {}
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        if container not in path:
            continue
        for controller in controllers.split(","):
            found[controller] = CGROUPS / controllers / path.lstrip("/")
            if not found[controller].exists():
                found[controller] = CGROUPS / controller / path.lstrip("/")
    if not found:
        raise KeyError(container)
    return found


def _cpu_s(groups: dict[str, Path]) -> float:
    if "cpuacct" in groups:
        return int((groups["cpuacct"] / "cpuacct.usage").read_text()) / 1e9
    return _table(groups[""] / "cpu.stat")["usage_usec"] / 1e6


def _memory_bytes(groups: dict[str, Path]) -> int:
    """Without what is only cached of files that nobody uses, as the engine counts it."""
    if "memory" in groups:
        used = int((groups["memory"] / "memory.usage_in_bytes").read_text())
        return max(0, used - _table(groups["memory"] / "memory.stat").get("total_inactive_file", 0))
    used = int((groups[""] / "memory.current").read_text())
    return max(0, used - _table(groups[""] / "memory.stat").get("inactive_file", 0))


def _table(path: Path) -> dict[str, int]:
    return {name: int(value) for name, value in (line.split() for line in path.read_text().splitlines())}


def _age_s(pid: int) -> float:
    """By the clock that is never set."""
    started = int((PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
    return max(0.0, float((PROC / "uptime").read_text().split()[0]) - started)


def from_stats(container: str, stats: dict[str, Any], started_at: str) -> MachineUsage | None:
    """Of what the engine told. None for a container that ended meanwhile: it was read at no time."""
    age = datetime.fromisoformat(stats["read"]) - datetime.fromisoformat(started_at)
    if age.total_seconds() < 0:
        return None
    cpu_s = stats["cpu_stats"]["cpu_usage"]["total_usage"] / 1e9
    return MachineUsage(container, cpu_s, age.total_seconds(), held_bytes(stats), runs=True)


def held_bytes(stats: dict[str, Any]) -> int:
    """Memory without what is only cached of files that nobody uses."""
    held = stats.get("memory_stats", {})
    detail = held.get("stats", {})
    return max(0, held.get("usage", 0) - detail.get("total_inactive_file", detail.get("inactive_file", 0)))


class Ended:
    """The last counters of a sandbox's machines that were removed, kept in a file until long after they were booked."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def all(self) -> list[MachineUsage]:
        try:
            rows = json.loads(self._path.read_text())
            return [MachineUsage(**row) for row in rows]
        except (OSError, ValueError, TypeError):
            return []

    def add(self, machine: MachineUsage) -> None:
        """Once a machine: whoever is interrupted before he removed it adds it again. Under the sandbox's lock."""
        rows = [row for row in self.all() if row.machine != machine.machine][-KEPT + 1 :]
        draft = self._path.with_name(f".{secrets.token_hex(4)}")
        draft.write_text(json.dumps([asdict(row) for row in (*rows, machine)]))
        draft.replace(self._path)
