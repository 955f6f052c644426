"""Disks as plain folders, their states as trees of content-addressed objects. Works everywhere; needs no rights.

A folder's object lists its entries; a file's entry lists its chunks; a snapshot is the id of the top folder. So
a folder in which nothing changed is the same object and costs no byte, and a file that did not change costs one
`stat` (its size, times and inode are remembered with its chunks). Extended attributes are not kept, hard links
come back as separate files, sockets and devices are left out.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import secrets
import shutil
import stat
import time
from collections.abc import Iterator
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
from workspaces.sandboxes.snapshots.base import Owner, Quiet, check_ref, give, make_disk
from workspaces.sandboxes.snapshots.objects import CHUNK, FOLDER, Objects, Session

CHUNK_BYTES = 4 * 1024 * 1024
_RACY_NS = 100_000_000  # changed so shortly before that a later change could bear the same time: not remembered
_DIGEST = 32
_MAX_LINKS = 40
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

# an entry of a folder's object: [name, kind, mode, mtime_ns, size, content]; names and link targets are text
# with surrogate escapes, content is base64 of the chunks' ids (file), the folder's id, or the target (link)
Row = list[Any]


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

    def close(self) -> None:
        pass

    def save(self, key: str, quiet: Quiet) -> SnapshotInfo:
        started = time.monotonic()
        ref = secrets.token_hex(16)
        with self.objects.writing() as session, quiet():
            saving = _Saving(session, key)
            try:
                root = saving.folder(os.fsencode(self.path(key)), b"")
            except (OSError, RecursionError) as error:
                raise SandboxError(f"the disk cannot be saved: {error}") from None
            session.count([root], 1)
            saving.remember()
            session.db.execute(
                "INSERT INTO snapshot VALUES (?, ?, ?, ?)", (ref, root, saving.total, saving.files)
            )
        return SnapshotInfo(ref, session.added_bytes, saving.total, saving.files, time.monotonic() - started)

    def put_back(self, key: str, ref: str, limit_bytes: int) -> None:
        disk = self.path(key)
        fresh = disk.with_name(f".{secrets.token_hex(8)}")
        try:
            with self.objects.reading() as session:
                fresh.mkdir()
                _Restoring(session, self.owner).folder(self._root(session, ref), os.fsencode(fresh))
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
        with self.objects.writing() as session:
            try:
                root = self._root(session, ref)
            except SnapshotMissing:
                return
            session.db.execute("DELETE FROM snapshot WHERE ref = ?", (ref,))
            session.count([root], -1)
            pending = [(root, True)]
            while pending:
                digest, is_folder = pending.pop()
                if not session.unused(digest):
                    continue
                below = _below(_rows(session, digest)) if is_folder else []
                session.delete(digest)
                session.count([child for child, _ in below], -1)
                pending += set(below)

    def read(self, ref: str, path: str, *, limit_bytes: int = 2 * 1024 * 1024) -> bytes:
        with self.objects.reading() as session:
            row = self._find(session, ref, path)
            if row is None or row[1] != "file":
                raise NotAFile(f"{path or '.'} is not a regular file")
            if row[4] > limit_bytes:
                raise FileTooLarge(f"{path} has {row[4]} bytes, more than {limit_bytes}")
            return b"".join(session.get(CHUNK, digest) for digest in _chunks(row))

    def list(self, ref: str, path: str = "", *, limit: int = 2000) -> list[Entry]:
        with self.objects.reading() as session:
            row = self._find(session, ref, path)
            if row is not None and row[1] != "folder":
                raise NotAFile(f"{path} is not a folder")
            digest = self._files(session, ref) if row is None else base64.b64decode(row[5])
            prefix = "/".join(_parts(path))
            rows = _rows(session, digest) if digest else []
        return [
            Entry(f"{prefix}/{r[0]}" if prefix else r[0], _kind(r), r[4], r[2], r[3] / 1e9) for r in rows[:limit]
        ]

    def changes(self, before: str, after: str, *, limit: int = 2000) -> list[FileChange]:
        found: list[FileChange] = []
        with self.objects.reading() as session:
            old, new = self._files(session, before), self._files(session, after)
            for change in _differences(session, old, new, ""):
                found.append(change)
        return sorted(found, key=lambda change: change.path)[:limit]

    def _root(self, session: Session, ref: str) -> bytes:
        row = session.db.execute("SELECT root FROM snapshot WHERE ref = ?", (check_ref(ref),)).fetchone()
        if row is None:
            raise SnapshotMissing("no such snapshot")
        return bytes(row[0])

    def _files(self, session: Session, ref: str) -> bytes | None:
        for row in _rows(session, self._root(session, ref)):
            if row[0] == "files":
                return base64.b64decode(row[5])
        return None

    def _find(self, session: Session, ref: str, path: str) -> Row | None:
        """The entry at `path`, links resolved inside; None for the top folder."""
        top = self._files(session, ref)
        trail: list[Row] = []
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
            row = next((r for r in (_rows(session, digest) if digest else []) if r[0] == part), None)
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


class _Saving:
    """One walk over a disk."""

    def __init__(self, session: Session, disk: str) -> None:
        self.session = session
        self.disk = disk
        self.total = self.files = 0
        self.now = time.time_ns()
        rows = session.db.execute(
            "SELECT path, size, mtime, ctime, inode, chunks FROM seen WHERE disk = ?", (disk,)
        )
        self.seen = {row[0]: (row[1:5], row[5]) for row in rows}
        self.met: set[bytes] = set()
        self.fresh: list[tuple[Any, ...]] = []

    def folder(self, path: bytes, inside: bytes) -> bytes:
        rows: list[Row] = []
        with _readable(path), os.scandir(path) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
        cached: list[tuple[Row, bytes, bytes]] = []
        for entry in found:
            state = entry.stat(follow_symlinks=False)
            name = os.fsdecode(entry.name)
            row: Row = [name, "", stat.S_IMODE(state.st_mode), state.st_mtime_ns, 0, ""]
            below = inside + b"/" + entry.name
            if stat.S_ISDIR(state.st_mode):
                row[1], row[5] = "folder", _text(self.folder(entry.path, below))
                row[3] = 0  # made of its entries' names, which are stored; a temporary file must not change it
            elif stat.S_ISLNK(state.st_mode):
                row[1], row[5] = "link", os.fsdecode(os.readlink(entry.path))
                self.files += 1
            elif stat.S_ISREG(state.st_mode):
                row[1], row[4] = "file", state.st_size
                known = self._known(below, state)
                if known is None:
                    row[4], row[5] = self._store(entry.path, below, state)
                else:
                    row[5] = _text(known)
                    cached.append((row, entry.path, below))
                self.files += 1
                self.total += row[4]
            elif stat.S_ISFIFO(state.st_mode):
                row[1] = "fifo"
                self.files += 1
            else:
                continue
            rows.append(row)
        return self._put(rows, cached)

    def remember(self) -> None:
        db = self.session.db
        db.executemany("REPLACE INTO seen VALUES (?, ?, ?, ?, ?, ?, ?)", self.fresh)
        gone = self.seen.keys() - self.met
        db.executemany("DELETE FROM seen WHERE disk = ? AND path = ?", [(self.disk, path) for path in gone])

    def _put(self, rows: list[Row], cached: list[tuple[Row, bytes, bytes]]) -> bytes:
        digest, new = self.session.add(FOLDER, _packed(rows))
        if not new:
            return digest
        # the folder is new: each object it names must be there, also what was only remembered and then dropped
        lost = [item for item in cached if not all(self.session.has(chunk) for chunk in _chunks(item[0]))]
        for row, path, below in lost:
            row[4], row[5] = self._store(path, below, os.lstat(path))
        if lost:
            self.session.delete(digest)
            digest, new = self.session.add(FOLDER, _packed(rows))
        if new:
            self.session.count([child for child, _ in _below(rows)], 1)
        return digest

    def _known(self, inside: bytes, state: os.stat_result) -> bytes | None:
        self.met.add(inside)
        stamp, chunks = self.seen.get(inside, (None, None))
        return bytes(chunks) if chunks is not None and stamp == _stamp(state) else None

    def _store(self, path: bytes, inside: bytes, state: os.stat_result) -> tuple[int, str]:
        chunks = b""
        size = 0
        with _readable(path), os.fdopen(os.open(path, _FILE), "rb", buffering=0) as file:
            while chunk := _filled(file, CHUNK_BYTES):
                digest, _ = self.session.add(CHUNK, chunk)
                chunks += digest
                size += len(chunk)
        if state.st_ctime_ns < self.now - _RACY_NS and size == state.st_size:
            self.fresh.append((self.disk, inside, *_stamp(state), chunks))
        return size, _text(chunks)


class _Restoring:
    def __init__(self, session: Session, owner: Owner) -> None:
        self.session = session
        self.owner = owner

    def folder(self, digest: bytes, path: bytes) -> None:
        for row in _rows(self.session, digest):
            target = path + b"/" + os.fsencode(row[0])
            if row[1] == "folder":
                os.mkdir(target, 0o700)
                self.folder(base64.b64decode(row[5]), target)
            elif row[1] == "link":
                os.symlink(os.fsencode(row[5]), target)
            elif row[1] == "fifo":
                os.mkfifo(target)
            else:
                self._file(row, target)
            if self.owner:
                os.chown(target, *self.owner, follow_symlinks=False)
            if row[1] != "link":
                os.chmod(target, row[2])  # after chown, which clears setuid
            if row[1] != "folder":
                os.utime(target, ns=(row[3], row[3]), follow_symlinks=False)

    def _file(self, row: Row, target: bytes) -> None:
        with open(target, "xb", buffering=0) as file:
            for digest in _chunks(row):
                data = self.session.get(CHUNK, digest)
                if data.count(0) == len(data):
                    file.seek(len(data), os.SEEK_CUR)  # a hole stays a hole
                else:
                    file.write(data)
            file.truncate(row[4])


def _differences(session: Session, old: bytes | None, new: bytes | None, prefix: str) -> Iterator[FileChange]:
    if old == new:
        return
    was = {row[0]: row for row in (_rows(session, old) if old else [])}
    now = {row[0]: row for row in (_rows(session, new) if new else [])}
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


def _packed(rows: list[Row]) -> bytes:
    # ASCII with escapes: surrogates, which stand for bytes that are not UTF-8, survive
    return json.dumps(rows, separators=(",", ":")).encode("ascii")


def _rows(session: Session, digest: bytes) -> list[Row]:
    rows: list[Row] = json.loads(session.get(FOLDER, digest))
    return rows


def _text(digests: bytes) -> str:
    return base64.b64encode(digests).decode("ascii")


def _chunks(row: Row) -> list[bytes]:
    raw = base64.b64decode(row[5])
    return [raw[at : at + _DIGEST] for at in range(0, len(raw), _DIGEST)]


def _below(rows: list[Row]) -> list[tuple[bytes, bool]]:
    return [(digest, row[1] == "folder") for row in rows if row[1] in ("file", "folder") for digest in _chunks(row)]


def _kind(row: Row) -> Any:
    return row[1] if row[1] in ("file", "folder", "link") else "other"


def _stamp(state: os.stat_result) -> tuple[int, int, int, int]:
    return state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_ino


def _parts(path: str) -> list[str]:
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if path.startswith("/"):
        if parts[:1] != ["workspace"]:
            raise PathRefused(f"{path} is outside the workspace")
        return parts[1:]
    return parts


def _filled(file: Any, size: int) -> bytes:
    """Up to `size` bytes, less only at the end of the file: chunks must not depend on how a read was cut."""
    parts: list[bytes] = []
    while size and (part := file.read(size)):
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


@contextlib.contextmanager
def _readable(path: bytes) -> Iterator[None]:
    """What its owner has closed even to itself is opened for as long as it is read. Root needs none of it."""
    mode = os.lstat(path).st_mode
    needed = 0o500 if stat.S_ISDIR(mode) else 0o400
    if os.geteuid() == 0 or mode & needed == needed:
        yield
        return
    os.chmod(path, stat.S_IMODE(mode) | needed)
    try:
        yield
    finally:
        os.chmod(path, stat.S_IMODE(mode))


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
