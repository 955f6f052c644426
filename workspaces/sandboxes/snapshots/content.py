"""Disks as plain folders, their states as trees of content-addressed objects. Works everywhere; needs no rights.

A folder's object lists its entries; a file's entry lists its chunks; a snapshot is the id of the top folder. So
a folder in which nothing changed is the same object and costs no byte, and a file that did not change costs one
`stat` (its size, times and inode are remembered with its chunks). Holes cost nothing; owners are kept where this runs
as root, extended attributes where the file system has them. Sockets and devices are left out.
"""

from __future__ import annotations

import base64
import errno
import os
import secrets
import shutil
import stat
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from workspaces.sandboxes.base import (
    Entry,
    FileChange,
    FileTooLarge,
    NotAFile,
    PathRefused,
    SandboxError,
    SnapshotInfo,
    SnapshotMissing,
)
from workspaces.sandboxes.snapshots.base import Owner, Quiet, check_ref, make_disk
from workspaces.sandboxes.snapshots.objects import CHUNK, Objects, Session
from workspaces.sandboxes.snapshots.trees import Restoring, Row, Saving, below, chunks_of, read_all, rows_of

_MAX_LINKS = 40

Rows = list[Row]
Entries = list[Entry]  # a class with a method `list` cannot name the type in itself
Changes = list[FileChange]


class ContentStore:
    """One a root folder; any number of processes may open it at the same time."""

    kind = "content"
    limits_disk = False

    def __init__(self, root: Path, owner: Owner = None) -> None:
        self.root = root
        self.owner = owner
        for name in ("disks", "claims"):
            (root / name).mkdir(parents=True, exist_ok=True)
        self.objects = Objects(root / "content")

    def open(self, key: str, limit_bytes: int) -> Path:
        disk = self.path(key)
        disk.mkdir(exist_ok=True)
        make_disk(disk, self.owner)
        return disk

    def path(self, key: str) -> Path:
        return self.root / "disks" / key

    def claims(self, key: str) -> Path:
        return self.root / "claims" / key

    def exists(self, key: str) -> bool:
        return self.path(key).is_dir()

    def delete(self, key: str) -> None:
        for folder in (self.path(key), self.claims(key)):
            if folder.exists():
                _remove(folder)
        with self.objects.writing() as session:
            session.db.execute("DELETE FROM seen WHERE disk = ?", (key,))

    def used_bytes(self, key: str) -> int | None:
        return sum(state.st_blocks * 512 for state in _states(self.path(key)))

    def detach(self) -> None:
        pass

    def close(self) -> None:
        pass

    def save(self, key: str, quiet: Quiet) -> SnapshotInfo:
        started = time.monotonic()
        ref = secrets.token_hex(16)
        with self.objects.writing() as session, quiet():
            saving = Saving(session, key, self.owner)
            try:
                root = saving.folder(os.fsencode(self.path(key)), b"")
            except (OSError, RecursionError) as error:
                if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
                    raise  # told by the store of objects
                raise SandboxError(f"the disk cannot be saved: {error}") from None
            session.count([root], 1)
            saving.remember()
            session.db.execute("INSERT INTO snapshot VALUES (?, ?, ?, ?)", (ref, root, saving.total, saving.files))
        return SnapshotInfo(ref, session.added_bytes, saving.total, saving.files, time.monotonic() - started)

    def put_back(self, key: str, ref: str, limit_bytes: int) -> None:
        disk = self.path(key)
        fresh = disk.with_name(f".{secrets.token_hex(8)}")
        try:
            with self.objects.reading() as session:
                fresh.mkdir()
                Restoring(session, self.owner, os.fsencode(fresh)).folder(self._root(session, ref), os.fsencode(fresh))
        except BaseException:
            _remove(fresh)
            raise
        if disk.exists():
            old = disk.with_name(f".{secrets.token_hex(8)}")
            disk.rename(old)
            fresh.rename(disk)
            _remove(old)
        else:
            fresh.rename(disk)

    def drop(self, ref: str) -> None:
        drop_from(self.objects, ref)

    def tidy(self) -> int:
        return 0  # `drop` has given the room back

    def read(self, ref: str, path: str, *, limit_bytes: int = 2 * 1024 * 1024) -> bytes:
        with self.objects.reading() as session:
            row = self._find(session, ref, path)
            if row is None or row[1] != "file":
                raise NotAFile(f"{path or '.'} is not a regular file")
            if row[4] > limit_bytes:
                raise FileTooLarge(f"{path} has {row[4]} bytes, more than {limit_bytes}")
            return b"".join(session.get(CHUNK, digest) for digest in chunks_of(row))

    def list(self, ref: str, path: str = "", *, limit: int = 2000) -> Entries:
        with self.objects.reading() as session:
            row = self._find(session, ref, path)
            if row is not None and row[1] != "folder":
                raise NotAFile(f"{path} is not a folder")
            digest = self._files(session, ref) if row is None else base64.b64decode(row[5])
            prefix = "/".join(_parts(path))
            rows = rows_of(session, digest) if digest else []
        return [Entry(f"{prefix}/{r[0]}" if prefix else r[0], _kind(r), r[4], r[2], r[3] / 1e9) for r in rows[:limit]]

    def changes(self, before: str, after: str, *, limit: int = 2000) -> Changes:
        found: Changes = []
        with self.objects.reading() as session:
            old, new = self._files(session, before), self._files(session, after)
            for change in _differences(session, old, new, ""):
                found.append(change)
        return sorted(found, key=lambda change: change.path)[:limit]

    def problems(self, refs: Iterable[str]) -> dict[str, str]:
        found: dict[str, str] = {}
        whole: set[bytes] = set()  # objects that are there with all that is below them
        with self.objects.reading() as session:
            for ref in refs:
                try:
                    read_all(session, self._root(session, ref), whole)
                except (SnapshotMissing, ValueError) as error:
                    found[ref] = str(error)
        return found

    def _root(self, session: Session, ref: str) -> bytes:
        row = session.db.execute("SELECT root FROM snapshot WHERE ref = ?", (check_ref(ref),)).fetchone()
        if row is None:
            raise SnapshotMissing("no such snapshot")
        return bytes(row[0])

    def _files(self, session: Session, ref: str) -> bytes | None:
        for row in rows_of(session, self._root(session, ref)):
            if row[0] == "files":
                return base64.b64decode(row[5])
        return None

    def _find(self, session: Session, ref: str, path: str) -> Row | None:
        """The entry at `path`, links resolved inside; None for the top folder."""
        top = self._files(session, ref)
        trail: Rows = []
        pending = _parts(path)
        links = 0
        while pending:
            part = pending.pop(0)
            if part == "..":
                if not trail:
                    raise PathRefused(f"{path} leaves the workspace")
                trail.pop()
                continue
            if trail and trail[-1][1] != "folder":
                raise NotAFile(f"{path} goes through a file")
            digest = base64.b64decode(trail[-1][5]) if trail else top
            row = next((r for r in (rows_of(session, digest) if digest else []) if r[0] == part), None)
            if row is None:
                raise NotAFile(f"there is no {path}")
            if row[1] == "link":
                links += 1
                if links > _MAX_LINKS:
                    raise PathRefused(f"{path} goes through too many links")
                if row[5].startswith("/"):
                    trail.clear()
                pending = _parts(row[5]) + pending
            else:
                trail.append(row)
        return trail[-1] if trail else None


def drop_from(objects: Objects, ref: str) -> None:
    """Forget a snapshot, and the objects that nothing counts on any more. Does nothing when it is not there."""
    with objects.writing() as session:
        row = session.db.execute("SELECT root FROM snapshot WHERE ref = ?", (ref,)).fetchone()
        if row is None:
            return
        root = bytes(row[0])
        session.db.execute("DELETE FROM snapshot WHERE ref = ?", (ref,))
        session.count([root], -1)
        pending = [(root, True)]
        while pending:
            digest, is_folder = pending.pop()
            if not session.unused(digest):
                continue
            children = below(rows_of(session, digest)) if is_folder else []
            session.delete(digest)
            session.count([child for child, _ in children], -1)
            pending += set(children)


def _differences(session: Session, old: bytes | None, new: bytes | None, prefix: str) -> Iterator[FileChange]:
    if old == new:
        return
    was = {row[0]: row for row in (rows_of(session, old) if old else [])}
    now = {row[0]: row for row in (rows_of(session, new) if new else [])}
    for name in was.keys() | now.keys():
        left, right = was.get(name), now.get(name)
        path = prefix + name
        folders = [base64.b64decode(r[5]) if r and r[1] == "folder" else None for r in (left, right)]
        if any(folders):
            yield from _differences(session, folders[0], folders[1], f"{path}/")
        left, right = (None if r and r[1] == "folder" else r for r in (left, right))
        # the time is not a difference: a file that was only touched holds what it held
        if left and right:
            if [left[i] for i in (1, 2, 4, 5)] != [right[i] for i in (1, 2, 4, 5)]:
                yield FileChange(path, "changed", left[4], right[4])
        elif left:
            yield FileChange(path, "removed", left[4], None)
        elif right:
            yield FileChange(path, "added", None, right[4])


def _kind(row: Row) -> Any:
    return row[1] if row[1] in ("file", "folder", "link") else "other"


def _parts(path: str) -> list[str]:
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if path.startswith("/"):
        if parts[:1] != ["workspace"]:
            raise PathRefused(f"{path} is outside the workspace")
        return parts[1:]
    return parts


def _states(folder: Path) -> Iterator[os.stat_result]:
    for place, folders, files in os.walk(folder):
        for name in (*folders, *files):
            try:
                yield os.lstat(os.path.join(place, name))
            except FileNotFoundError:
                continue


def _remove(folder: Path) -> None:
    """Delete a tree, also one whose folders its owner has closed."""
    try:
        shutil.rmtree(folder)
    except PermissionError:
        for place, folders, _ in os.walk(folder):
            for name in folders:
                if not os.path.islink(os.path.join(place, name)):
                    os.chmod(os.path.join(place, name), stat.S_IRWXU)
        shutil.rmtree(folder)
