"""Which node a workspace is placed on: the one with the most memory left. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from workspaces.domain.isolation import engine_runtime


@dataclass(frozen=True, slots=True)
class Room:
    """A node that answers. `used_bytes`: the memory limits of the workspaces that are awake on it."""

    node: str
    memory_bytes: int
    used_bytes: int
    runtimes: frozenset[str]

    @property
    def free_bytes(self) -> int:
        return self.memory_bytes - self.used_bytes


def roomiest(rooms: Iterable[Room], needed_bytes: int, runtime: str) -> str | None:
    """The node's name, or None where no node offers the runtime.

    Where nothing has `needed_bytes` left, the roomiest takes it all the same: limits are what a sandbox may use at
    most, and a task that waits for a machine that nobody will add helps no one.
    """
    able = [room for room in rooms if engine_runtime(runtime, room.runtimes) is not None]
    fitting = [room for room in able if room.free_bytes >= needed_bytes] or able
    return max(fitting, key=lambda room: (room.free_bytes, room.node)).node if fitting else None
