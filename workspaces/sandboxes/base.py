"""The sandbox contract: what every driver offers, its limits and its errors. Never imports a driver.

A sandbox runs the commands of one workspace. Its *disk* is the only thing that survives it: two folders,
`files` (the workspace itself, seen inside as `/workspace`, the working directory) and `home` (seen as
`$HOME`: caches, user-level packages). Everything else is thrown away with the sandbox.

The contract fits a container and a virtual machine alike: a snapshot is named by an opaque `ref`, and a
driver may save memory with it (`SnapshotInfo.holds_memory`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

OutputSink = Callable[[Literal["stdout", "stderr"], bytes], None]


class SandboxError(Exception):
    """Something the sandbox could not do. `hint` says what a person can do about it."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class SandboxUnavailable(SandboxError):
    """The engine does not answer, or the image is missing. Passing: trying again later may work."""


class SandboxGone(SandboxError):
    """The sandbox (or the command asked for) no longer exists; its outcome is not known."""


class DiskFull(SandboxError):
    """No room: on the workspace's disk, by its limit, or where all disks and snapshots lie. Nothing is half written."""


class PathRefused(SandboxError):
    """A path that leaves the workspace, by `..`, by an absolute path or through a link."""


class NotAFile(SandboxError):
    """No such file, or not a regular one."""


class FileTooLarge(SandboxError):
    """More bytes than the caller's limit."""


class SnapshotMissing(SandboxError):
    """No snapshot has that ref, or it is damaged."""


@dataclass(frozen=True, slots=True)
class SandboxLimits:
    memory_bytes: int = 512 * 1024 * 1024
    cpus: float = 1.0
    pids: int = 256
    disk_bytes: int = 2 * 1024 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class NetworkPolicy:
    """`allow`: "host:port" or "*.domain:port". `reachable`: private networks that may be reached all the same."""

    mode: Literal["none", "allowlist", "open"] = "none"
    allow: tuple[str, ...] = ()
    reachable: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Connection:
    """One attempt to leave a sandbox through the proxy. `at`: seconds since the epoch; `why`: of a refusal."""

    at: float
    host: str
    port: int
    allowed: bool
    address: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True)
class SandboxSpec:
    """What a driver needs to know to open a workspace's sandbox. `key` names it for ever: [a-z0-9-], <= 40."""

    key: str
    limits: SandboxLimits = field(default_factory=SandboxLimits)
    runtime: str = "runc"
    network: NetworkPolicy = NetworkPolicy()
    image: str = ""  # empty: the driver's default


@dataclass(frozen=True, slots=True)
class ExecResult:
    """`exit_code` is None when the command was killed for its timeout. Output is cut at the limit."""

    exit_code: int | None
    stdout: bytes
    stderr: bytes
    timed_out: bool = False
    stdout_truncated: bool = False
    stderr_truncated: bool = False
    duration_s: float = 0.0


class ExecInterrupted(Exception):  # an order from outside, not a fault
    """The wait was interrupted. The command was NOT ended: freeze, `kill` or wait again with its key."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a folder. `path` is relative to /workspace, with `/`; undecodable bytes as surrogates."""

    path: str
    kind: Literal["file", "folder", "link", "other"]
    size_bytes: int
    mode: int
    modified_at: float


@dataclass(frozen=True, slots=True)
class SnapshotInfo:
    """`added_bytes`: what storing it cost. `total_bytes`, `files`: what the disk then held.

    `quiet`: nothing ran that could have changed the disk after it was saved. False also when that cannot be told.
    """

    ref: str
    added_bytes: int
    total_bytes: int
    files: int
    duration_s: float
    holds_memory: bool = False
    quiet: bool = False


@dataclass(frozen=True, slots=True)
class FileChange:
    """One path that differs between two states. Sizes are None where the file does not exist."""

    path: str
    kind: Literal["added", "changed", "removed"]
    before_bytes: int | None
    after_bytes: int | None


@dataclass(frozen=True, slots=True)
class SandboxUsage:
    """Since the sandbox started. None where the driver cannot tell."""

    cpu_s: float | None
    memory_bytes: int | None
    disk_bytes: int | None


@dataclass(frozen=True, slots=True)
class MachineUsage:
    """What one machine (a container) has used since it started; its counters only grow. `memory_bytes`: held now."""

    machine: str
    cpu_s: float
    age_s: float
    memory_bytes: int
    runs: bool = False


class StdioProcess(Protocol):
    """A program in a sandbox whose input and output are held by whoever opened it. It ends with that one at the latest.

    `read` and `write` block and may be called from two threads; `close` may be called from a third and ends both.
    """

    def read(self) -> bytes:
        """The next bytes of its standard output; empty when it has ended, or was closed."""

    def write(self, data: bytes) -> None:
        """Raises OSError when it takes nothing any more."""

    def errors(self) -> bytes:
        """The end of its standard error, as far as it was read; for a message when it does not answer."""

    def close(self) -> None:
        """Kill it with everything that it started. Does nothing the second time. Raises SandboxUnavailable."""


State = Literal["absent", "running", "frozen", "stopped"]


Machines = list[MachineUsage]
Connections = list[Connection]  # a class with a method `list` cannot name the type in itself


class Sandbox(Protocol):
    """One workspace's machine. Every method may be called from any thread, at most one `exec` a key at a time."""

    @property
    def spec(self) -> SandboxSpec: ...

    def state(self) -> State:
        """What the engine says now, not what was last asked for."""

    def start(self) -> None:
        """Make it run: create, start or thaw. Does nothing when it runs. Raises SandboxUnavailable."""

    def stop(self) -> None:
        """End every process and free memory and CPU. The disk stays. Does nothing when absent."""

    def destroy(self) -> None:
        """`stop`, and delete the disk. Snapshots stay until they are dropped."""

    def freeze(self) -> None:
        """Halt every process where it stands, within 0.5 s. Does nothing when frozen or not running."""

    def thaw(self) -> None:
        """Let frozen processes go on. Does nothing when not frozen."""

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
        """Run a command to its end, or go on waiting for the one that `key` already started.

        The same `key` never runs a command twice: a second call (also from another process, after the
        first caller died) attaches to the running command or returns the finished one's result. Keys are
        forgotten when the sandbox stops, is destroyed, or a snapshot is restored.
        `cwd` is relative to /workspace. Output past `output_limit_bytes` (each stream) is read and
        dropped, never blocks the command, and is flagged. `on_output` gets chunks as they come. Reaching
        `timeout_s` kills the command's whole process group. Time spent frozen by this caller does not count.

        Raises: SandboxUnavailable; SandboxGone (the sandbox went away while waiting); ExecInterrupted
        (`interrupt` was set; noticed within 0.25 s, the command is left as it is); PathRefused (`cwd`).
        """

    def open_stdio(
        self, argv: Sequence[str], *, key: str, env: Mapping[str, str] | None = None, cwd: str = ""
    ) -> StdioProcess:
        """Start a program and hold its input and output, without a terminal. Nobody can attach to it later.

        It is killed by `close`, by `kill` with its key, and by itself about a second after its opener has died.
        Until then it counts as something that runs. Raises SandboxUnavailable, PathRefused (`cwd`).
        """

    def is_known(self, key: str) -> bool:
        """Whether `exec` with this key would attach rather than run anew."""

    def kill(self, key: str) -> None:
        """Kill the processes that were started under that key, also those left behind. Also works while frozen."""

    def read(self, path: str, *, limit_bytes: int = 50 * 1024 * 1024) -> bytes:
        """Raises PathRefused, NotAFile, FileTooLarge. Links are followed inside the workspace only."""

    def write(self, path: str, data: bytes, *, executable: bool = False) -> None:
        """Write a whole file, atomically, making its folders. Raises PathRefused, NotAFile (a folder)."""

    def list(self, path: str = "", *, recursive: bool = False, limit: int = 2000) -> list[Entry]:
        """Entries in name order, links not followed, at most `limit`. Raises PathRefused, NotAFile."""

    def snapshot(self) -> SnapshotInfo:
        """Save the disk, consistently (processes are frozen meanwhile). Cost follows what changed."""

    def restore(self, ref: str) -> None:
        """Put the disk back to exactly `ref` (of any workspace of this driver: that is how a fork starts).

        Every process ends. The sandbox is left stopped or running as it was. Raises SnapshotMissing.
        """

    def usage(self) -> SandboxUsage: ...

    def machines(self) -> Machines | None:
        """What the running machine has used, and the last ones that were ended by this contract, oldest first.

        None: this driver does not measure. A machine that ended by itself is not among them any more. Raises
        SandboxUnavailable.
        """

    def connections(self, after: int) -> tuple[Connections, int]:
        """Attempts to leave by the allow-list since the position `after` (0: all that is kept), and the new position.

        Says by `after` that everything before it is kept elsewhere and may be forgotten. Works without an engine.
        """


class SnapshotStore(Protocol):
    """Reads of saved states; needs no running sandbox."""

    def changes(self, before: str, after: str, *, limit: int = 2000) -> list[FileChange]:
        """What differs under `files`, in path order. Raises SnapshotMissing."""

    def read(self, ref: str, path: str, *, limit_bytes: int = 2 * 1024 * 1024) -> bytes:
        """A file as it was. Raises SnapshotMissing, PathRefused, NotAFile, FileTooLarge."""

    def list(self, ref: str, path: str = "", *, limit: int = 2000) -> list[Entry]:
        """One folder as it was. Raises SnapshotMissing, PathRefused, NotAFile."""

    def problems(self, refs: Iterable[str]) -> dict[str, str]:
        """Which of these cannot be put back, and why. Reads all that they hold, what they share once."""

    def drop(self, ref: str) -> None:
        """Forget a snapshot; what others share stays. Does nothing when it is not there."""

    def tidy(self) -> int:
        """Give back the room of what was dropped and deleted. May take long; call it now and then."""


class SandboxDriver(Protocol):
    """Makes sandboxes. One a process, thread-safe."""

    name: str
    isolated: bool  # False: commands run as the worker's own user (development only)

    def check(self) -> None:
        """Raises SandboxUnavailable with a hint when this driver cannot run here."""

    def open(self, spec: SandboxSpec) -> Sandbox:
        """Cheap, starts nothing; makes an empty disk on first use."""

    def awake(self) -> list[str]:
        """The keys of this driver's sandboxes that run or are frozen. Raises SandboxUnavailable."""

    def detach(self) -> None:
        """For a stop of the installation, when none is awake: the host holds nothing for the disks any more."""

    def close(self) -> None:
        """Let go of what this process holds. Sandboxes and disks stay as they are."""

    @property
    def snapshots(self) -> SnapshotStore: ...
