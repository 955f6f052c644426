"""What a disk store offers to the drivers, beyond the reads of `SnapshotStore`. Never imports a store."""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol

from workspaces.sandboxes.base import SnapshotInfo, SnapshotMissing, SnapshotStore

Owner = tuple[int, int] | None
Quiet = Callable[[], AbstractContextManager[None]]
_REF = re.compile(r"[0-9a-f]{32}\Z")


class DiskStore(SnapshotStore, Protocol):
    """Disks of workspaces by key, each a folder with `files` and `home`, and their saved states by ref."""

    kind: str
    limits_disk: bool  # whether `limit_bytes` is enforced

    def open(self, key: str, limit_bytes: int) -> Path:
        """The disk's folder, made empty if it is new, with this limit from now on."""

    def path(self, key: str) -> Path:
        """The disk's folder, whether it exists or not."""

    def claims(self, key: str) -> Path:
        """The folder in which the sandbox leaves results; not part of the disk, so never in a snapshot."""

    def exists(self, key: str) -> bool: ...

    def delete(self, key: str) -> None: ...

    def save(self, key: str, quiet: Quiet) -> SnapshotInfo:
        """`quiet` holds the processes still; it is entered for as short a time as the store can do with."""

    def put_back(self, key: str, ref: str, limit_bytes: int) -> None:
        """Make the disk exactly `ref`. Nothing may run on it. Raises SnapshotMissing and changes nothing then."""

    def used_bytes(self, key: str) -> int | None: ...

    def detach(self) -> None:
        """For a stop of the installation: give back what the host holds for the disks (a mount), whoever took it.

        Nothing may run on a disk. What is in use after all stays; a store that is made anew takes it again.
        """

    def close(self) -> None:
        """Undo what this store mounted, if it did. For tests and uninstalling; never needed to stop."""


def check_ref(ref: str) -> str:
    """A ref is a name that a store gave. Anything else, paths above all, is missing."""
    if not _REF.match(ref):
        raise SnapshotMissing("no such snapshot")
    return ref


def give(path: Path, owner: Owner) -> None:
    if owner:
        os.chown(path, *owner, follow_symlinks=False)


def make_disk(folder: Path, owner: Owner) -> None:
    """The two empty folders of a disk."""
    for name in ("files", "home"):
        inner = folder / name
        if not inner.exists():
            inner.mkdir()
            give(inner, owner)
            inner.chmod(0o755)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Alone among the threads and processes of this host, until the block ends or the process dies."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
