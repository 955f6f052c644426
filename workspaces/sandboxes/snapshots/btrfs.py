"""Disks as btrfs subvolumes in a sparse file that is mounted through a loop device. Root only; never unmounts
what it did not mount.

A snapshot is a read-only subvolume: it takes milliseconds whatever the size, and shares every block that did
not change. A qgroup limits what a disk may hold.

What is deleted is only renamed, until `tidy`. With qgroups on, the kernel counts anew for every extent of a deleted
subvolume who else has it, and meanwhile each new snapshot waits for seconds (measured: 2 to 8 s with 500 MB in 10,000
files and 30 to 60 snapshots). `tidy` has it not count, and count everything once at the end instead: for these seconds
a disk can grow past its limit, after them it is held to it again.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import subprocess
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from workspaces.sandboxes.base import (
    Entry,
    FileChange,
    SandboxError,
    SandboxUnavailable,
    SnapshotInfo,
    SnapshotMissing,
)
from workspaces.sandboxes.confined import Confined
from workspaces.sandboxes.snapshots.base import Owner, Quiet, check_ref, give, locked, make_disk
from workspaces.sandboxes.snapshots.walk import compare, read_all, tally

DEFAULT_SIZE_BYTES = 64 * 1024**3
CLAIMS_BYTES = 512 * 1024**2  # room for the output of commands: kept outputs (256 MB) and running ones
_EXTENT = re.compile(rb"^inode \d+ file offset \d+ len (\d+) disk start ", re.MULTILINE)
_COUNTED_BELOW = "3"  # the kernel's own default: levels of a tree up to which a deleted one is counted
_UUID = re.compile(rb"uuid: ([0-9a-f-]{36})")
_MARK = re.compile(rb"^transid marker was (\d+)", re.MULTILINE)


class BtrfsStore:
    """One a root folder; any number of processes may open it at the same time."""

    kind = "btrfs"
    limits_disk = True

    def __init__(self, root: Path, owner: Owner = None, size_bytes: int = DEFAULT_SIZE_BYTES) -> None:
        """Raises SandboxUnavailable, with the reason, where btrfs does not work: it is really tried."""
        if os.geteuid() != 0:
            raise SandboxUnavailable("btrfs snapshots need root")
        if not shutil.which("btrfs") or not shutil.which("mkfs.btrfs"):
            raise SandboxUnavailable("btrfs-progs is not installed", hint="apt-get install btrfs-progs")
        self.root = root
        self.owner = owner
        self.mount = root / "btrfs"
        self.mounted_here = False
        with locked(root / "btrfs.lock"):
            self._mount(size_bytes)
            try:
                self._probe()
            except SandboxError:
                self.close()
                raise
        for name in ("disks", "claims", "snapshots", "marks", "gone"):
            (self.mount / name).mkdir(exist_ok=True)

    def open(self, key: str, limit_bytes: int) -> Path:
        disk = self.mount / "disks" / key
        if not disk.exists():
            with locked(self.root / "btrfs.lock"):
                if not disk.exists():
                    fresh = self._fresh()
                    _btrfs("subvolume", "create", fresh)
                    make_disk(fresh, self.owner)
                    fresh.rename(disk)
        self._limit(disk, limit_bytes)
        make_disk(disk, self.owner)
        return disk

    def path(self, key: str) -> Path:
        return self.mount / "disks" / key

    def claims(self, key: str) -> Path:
        folder = self.mount / "claims" / key
        if not folder.exists():
            with locked(self.root / "btrfs.lock"):
                if not folder.exists():
                    _btrfs("subvolume", "create", folder)
                    give(folder, self.owner)
                    self._limit(folder, CLAIMS_BYTES)
        return folder

    def exists(self, key: str) -> bool:
        return (self.mount / "disks" / key).is_dir()

    def delete(self, key: str) -> None:
        for folder in (self.mount / "disks" / key, self.mount / "claims" / key):
            if folder.exists():
                folder.rename(self._gone())
        (self.mount / "marks" / key).unlink(missing_ok=True)

    def save(self, key: str, quiet: Quiet) -> SnapshotInfo:
        started = time.monotonic()
        ref = secrets.token_hex(16)
        snapshot = self._snapshot(ref)
        with quiet():
            _btrfs("subvolume", "snapshot", "-r", self.mount / "disks" / key, snapshot)
        mark_file = self.mount / "marks" / key
        since = int(mark_file.read_text()) + 1 if mark_file.exists() else 0
        added, mark = _written_since(snapshot, since)
        _replace(mark_file, str(mark))
        total, files = tally(snapshot)
        return SnapshotInfo(ref, added, total, files, time.monotonic() - started)

    def put_back(self, key: str, ref: str, limit_bytes: int) -> None:
        saved = self.saved(ref)
        disk = self.mount / "disks" / key
        fresh = self._fresh()
        _btrfs("subvolume", "snapshot", saved, fresh)
        self._limit(fresh, limit_bytes)
        _, mark = _written_since(fresh, 1 << 62)
        _replace(self.mount / "marks" / key, str(mark))
        with locked(self.root / "btrfs.lock"):
            if disk.exists():
                disk.rename(self._gone())
            fresh.rename(disk)

    def used_bytes(self, key: str) -> int | None:
        output = _btrfs("qgroup", "show", "--raw", "-f", self.mount / "disks" / key)
        rows = [line.split() for line in output.decode().splitlines() if line.startswith("0/")]
        return int(rows[0][1]) if rows else None

    def changes(self, before: str, after: str, *, limit: int = 2000) -> list[FileChange]:
        return compare(self.saved(before) / "files", self.saved(after) / "files", limit)

    def read(self, ref: str, path: str, *, limit_bytes: int = 2 * 1024 * 1024) -> bytes:
        return Confined(self.saved(ref) / "files").read(path, limit_bytes=limit_bytes)

    def list(self, ref: str, path: str = "", *, limit: int = 2000) -> list[Entry]:
        return Confined(self.saved(ref) / "files").list(path, limit=limit)

    def problems(self, refs: Iterable[str]) -> dict[str, str]:
        found: dict[str, str] = {}
        met: set[tuple[int, ...]] = set()
        for ref in refs:
            try:
                read_all(self.saved(ref), met)
            except SnapshotMissing as error:
                found[ref] = str(error)
            except OSError as error:  # btrfs has a checksum of every block
                found[ref] = f"a part of the snapshot cannot be read: {error}"
        return found

    def drop(self, ref: str) -> None:
        with contextlib.suppress(SnapshotMissing):
            saved = self.saved(ref)
            saved.rename(saved.with_name(f".{ref}"))  # a read-only subvolume can be renamed, not moved

    def tidy(self) -> int:
        with locked(self.root / "tidy.lock"):
            doomed = [*(self.mount / "gone").iterdir(), *(self.mount / "snapshots").glob("*/.*")]
            with self._uncounted():  # also with nothing to do: an earlier one may have been killed before it counted
                for folder in doomed:
                    self._delete_subvolume(folder)
                if doomed:
                    _btrfs("filesystem", "sync", self.mount)  # wakes the kernel's cleaner
                    _btrfs("subvolume", "sync", self.mount)
            return len(doomed)

    def detach(self) -> None:
        with contextlib.suppress(SandboxUnavailable):  # busy: somebody looks into it
            _run("umount", self.mount)
        self.mounted_here = False

    def close(self) -> None:
        if self.mounted_here and os.path.ismount(self.mount):
            _run("umount", self.mount)
        self.mounted_here = False

    @contextlib.contextmanager
    def _uncounted(self) -> Iterator[None]:
        """Deleted subvolumes are not counted one by one; at the end everything is counted once."""
        found = _UUID.search(_btrfs("filesystem", "show", self.mount))
        state = Path("/sys/fs/btrfs", found[1].decode() if found else "-", "qgroups")
        threshold = state / "drop_subtree_threshold"  # Linux 6.1
        try:
            threshold.write_text("0")
        except OSError:  # older, or /sys is read-only here: slow, but right
            yield
            return
        try:
            yield
        finally:
            threshold.write_text(_COUNTED_BELOW)
            if (state / "inconsistent").read_text().strip() == "1":
                _btrfs("quota", "rescan", "-w", self.mount)

    def _mount(self, size_bytes: int) -> None:
        self.mount.mkdir(parents=True, exist_ok=True)
        if os.path.ismount(self.mount):
            return
        image = self.root / "btrfs.img"
        if not image.exists():
            fresh = self.root / f".{secrets.token_hex(6)}.img"
            try:
                with fresh.open("wb") as file:
                    file.truncate(size_bytes)
                _run("mkfs.btrfs", "-q", fresh)
                fresh.rename(image)
            finally:
                fresh.unlink(missing_ok=True)
        _run("mount", "-t", "btrfs", "-o", "loop,noatime,nodev,nosuid,discard=async", image, self.mount)
        self.mounted_here = True
        _btrfs("quota", "enable", self.mount)

    def _probe(self) -> None:
        """One subvolume, limited, snapshotted, read back and deleted."""
        for name in ("disks", "fresh"):
            (self.mount / name).mkdir(exist_ok=True)
        probe, copy = self._fresh(), self._fresh()
        _btrfs("subvolume", "create", probe)
        try:
            _btrfs("qgroup", "limit", str(1024**2), probe)
            (probe / "probe").write_text("probe")
            _btrfs("subvolume", "snapshot", "-r", probe, copy)
            if (copy / "probe").read_text() != "probe":
                raise SandboxUnavailable("a btrfs snapshot came back different")
            self._delete_subvolume(copy)
        finally:
            self._delete_subvolume(probe)

    def _fresh(self) -> Path:
        return self.mount / "fresh" / secrets.token_hex(8)

    def _gone(self) -> Path:
        return self.mount / "gone" / secrets.token_hex(8)

    def _snapshot(self, ref: str) -> Path:
        # spread over folders, so that thousands of snapshots make no slow listing
        folder = self.mount / "snapshots" / ref[:2]
        folder.mkdir(exist_ok=True)
        return folder / ref

    def saved(self, ref: str) -> Path:
        """The snapshot's folder. Raises SnapshotMissing."""
        path = self.mount / "snapshots" / check_ref(ref)[:2] / ref
        if not path.is_dir():
            raise SnapshotMissing("no such snapshot")
        return path

    def _limit(self, folder: Path, limit_bytes: int) -> None:
        _btrfs("qgroup", "limit", str(limit_bytes), folder)

    def _delete_subvolume(self, folder: Path) -> None:
        """With the subvolumes that somebody made inside it, innermost first."""
        try:
            _btrfs("subvolume", "delete", folder)
        except SandboxError:
            inner = _btrfs("subvolume", "list", "-o", folder).decode(errors="surrogateescape").splitlines()
            if not inner:
                raise
            for line in inner:
                self._delete_subvolume(self.mount / line.split(" path ", 1)[1])
            _btrfs("subvolume", "delete", folder)


def _written_since(subvolume: Path, generation: int) -> tuple[int, int]:
    """Bytes in extents written since `generation`, and the generation now."""
    output = _btrfs("subvolume", "find-new", subvolume, str(generation))
    mark = _MARK.search(output)
    if mark is None:
        raise SandboxError("btrfs does not say which generation this is")
    return sum(int(size) for size in _EXTENT.findall(output)), int(mark[1])


def _replace(path: Path, text: str) -> None:
    fresh = path.with_name(f".{secrets.token_hex(6)}")
    fresh.write_text(text)
    fresh.rename(path)


def _btrfs(*arguments: str | Path) -> bytes:
    return _run("btrfs", *arguments)


def _run(*argv: str | Path) -> bytes:
    try:
        done = subprocess.run(argv, capture_output=True, timeout=120, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SandboxUnavailable(f"{argv[0]} failed: {error}") from None
    if done.returncode:
        text = done.stderr.decode(errors="replace").strip().splitlines()
        raise SandboxUnavailable(f"{argv[0]} {argv[1]} failed: {text[-1] if text else done.returncode}")
    return done.stdout
