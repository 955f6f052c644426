"""Turns a folder into counted objects and back. Runs while nothing writes to the folder; keeps no state of its own."""

from __future__ import annotations

import base64
import contextlib
import errno
import json
import os
import stat
import time
from collections.abc import Iterator
from typing import Any

from workspaces.sandboxes.snapshots.base import Owner
from workspaces.sandboxes.snapshots.objects import CHUNK, FOLDER, Session, object_id

CHUNK_BYTES = 4 * 1024 * 1024
_RACY_NS = 100_000_000  # changed so shortly before that a later change could bear the same time: not remembered
_DIGEST = 32
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

# an entry of a folder's object: [name, kind, mode, mtime_ns, size, content] and, where there is more to it, a
# dictionary; names and link targets are text with surrogate escapes, content is base64 of the chunks' ids (file), the
# folder's id, or the target (link). In the dictionary: "owner" [uid, gid] when it is not the sandbox's user, "twin" the
# path of the first name of the same file (hard link), "attributes" {name: base64}
Row = list[Any]

_ZEROS = bytes(CHUNK_BYTES)
_ZERO_ID = object_id(CHUNK, _ZEROS)


class Saving:
    """One walk over a disk."""

    def __init__(self, session: Session, disk: str, owner: Owner) -> None:
        self.session = session
        self.disk = disk
        self.owner = owner or (os.geteuid(), os.getegid())
        self.twins: dict[tuple[int, int], bytes] = {}
        self.has_zeros = False
        self.total = self.files = 0
        self.now = time.time_ns()
        rows = session.db.execute("SELECT path, size, mtime, ctime, inode, chunks FROM seen WHERE disk = ?", (disk,))
        self.seen = {row[0]: (row[1:5], row[5]) for row in rows}
        self.met: set[bytes] = set()
        self.fresh: list[tuple[Any, ...]] = []

    def folder(self, path: bytes, inside: bytes) -> bytes:
        """The id of the folder's object. `inside` is its path within the disk."""
        with _readable(path):
            return self._folder(path, inside)

    def _folder(self, path: bytes, inside: bytes) -> bytes:
        rows: list[Row] = []
        with os.scandir(path) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
        cached: list[tuple[Row, bytes, bytes]] = []
        for entry in found:
            state = entry.stat(follow_symlinks=False)
            name = os.fsdecode(entry.name)
            row: Row = [name, "", stat.S_IMODE(state.st_mode), state.st_mtime_ns, 0, ""]
            path_inside = inside + b"/" + entry.name
            if stat.S_ISDIR(state.st_mode):
                row[1], row[5] = "folder", _text(self.folder(entry.path, path_inside))
                row[3] = 0  # made of its entries' names, which are stored; a temporary file must not change it
            elif stat.S_ISLNK(state.st_mode):
                row[1], row[5] = "link", os.fsdecode(os.readlink(entry.path))
                self.files += 1
            elif stat.S_ISREG(state.st_mode):
                row[1], row[4] = "file", state.st_size
                known = self._known(path_inside, state)
                if known is None:
                    row[4], row[5] = self._store(entry.path, path_inside, state)
                else:
                    row[5] = _text(known)
                    cached.append((row, entry.path, path_inside))
                self.files += 1
                self.total += row[4]
            elif stat.S_ISFIFO(state.st_mode):
                row[1] = "fifo"
                self.files += 1
            else:
                continue
            more = self._more(entry.path, path_inside, state)
            rows.append([*row, more] if more else row)
            if cached and cached[-1][0] is row:
                cached[-1] = (rows[-1], *cached[-1][1:])
        return self._put(rows, cached)

    def _more(self, path: bytes, inside: bytes, state: os.stat_result) -> dict[str, Any]:
        more: dict[str, Any] = {}
        if (state.st_uid, state.st_gid) != self.owner:
            more["owner"] = [state.st_uid, state.st_gid]
        if state.st_nlink > 1 and stat.S_ISREG(state.st_mode):
            first = self.twins.setdefault((state.st_dev, state.st_ino), inside)
            if first != inside:
                more["twin"] = os.fsdecode(first)
        attributes = _attributes(path)
        if attributes:
            more["attributes"] = attributes
        return more

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
        lost = [item for item in cached if not all(self.session.has(chunk) for chunk in chunks_of(item[0]))]
        for row, path, path_inside in lost:
            row[4], row[5] = self._store(path, path_inside, os.lstat(path))
        if lost:
            self.session.delete(digest)
            digest, new = self.session.add(FOLDER, _packed(rows))
        if new:
            self.session.count([child for child, _ in below(rows)], 1)
        return digest

    def _known(self, inside: bytes, state: os.stat_result) -> bytes | None:
        self.met.add(inside)
        stamp, chunks = self.seen.get(inside, (None, None))
        return bytes(chunks) if chunks is not None and stamp == _stamp(state) else None

    def _store(self, path: bytes, inside: bytes, state: os.stat_result) -> tuple[int, str]:
        chunks = b""
        size = 0
        with _readable(path), os.fdopen(os.open(path, _FILE), "rb", buffering=0) as file:
            while True:
                for _ in range(_holes(file, size)):
                    chunks += self._zeros()
                    size += CHUNK_BYTES
                file.seek(size)
                chunk = _filled(file, CHUNK_BYTES)
                if not chunk:
                    break
                digest, _ = self.session.add(CHUNK, chunk)
                chunks += digest
                size += len(chunk)
        if state.st_ctime_ns < self.now - _RACY_NS and size == state.st_size:
            self.fresh.append((self.disk, inside, *_stamp(state), chunks))
        return size, _text(chunks)

    def _zeros(self) -> bytes:
        if not self.has_zeros:
            self.session.add(CHUNK, _ZEROS)
            self.has_zeros = True
        return _ZERO_ID


class Restoring:
    """`root`: the folder that becomes the disk."""

    def __init__(self, session: Session, owner: Owner, root: bytes) -> None:
        self.session = session
        self.owner = owner
        self.root = root

    def folder(self, digest: bytes, path: bytes) -> None:
        for row in rows_of(self.session, digest):
            target = path + b"/" + os.fsencode(row[0])
            more = row[6] if len(row) > 6 else {}
            if "twin" in more and self._linked(more["twin"], target):
                continue
            if row[1] == "folder":
                os.mkdir(target, 0o700)
                self.folder(base64.b64decode(row[5]), target)
            elif row[1] == "link":
                os.symlink(os.fsencode(row[5]), target)
            elif row[1] == "fifo":
                os.mkfifo(target)
            else:
                self._file(row, target)
            owner = (more.get("owner") if os.geteuid() == 0 else None) or self.owner
            if owner:
                os.chown(target, *owner, follow_symlinks=False)
            for name, value in more.get("attributes", {}).items():
                with contextlib.suppress(OSError):  # not every file system takes every one
                    os.setxattr(target, os.fsencode(name), base64.b64decode(value), follow_symlinks=False)
            if row[1] != "link":
                os.chmod(target, row[2])  # after chown, which clears setuid
            if row[1] != "folder":
                os.utime(target, ns=(row[3], row[3]), follow_symlinks=False)

    def _linked(self, twin: str, target: bytes) -> bool:
        """One more name for a file that is there already; where that cannot be, it becomes a file of its own."""
        try:
            os.link(self.root + os.fsencode(twin), target, follow_symlinks=False)
        except OSError:
            return False
        return True

    def _file(self, row: Row, target: bytes) -> None:
        with open(target, "xb", buffering=0) as file:
            for digest in chunks_of(row):
                if digest == _ZERO_ID:
                    file.seek(CHUNK_BYTES, os.SEEK_CUR)
                    continue
                data = self.session.get(CHUNK, digest)
                if data.count(0) == len(data):
                    file.seek(len(data), os.SEEK_CUR)  # a hole stays a hole
                else:
                    file.write(data)
            file.truncate(row[4])


def _attributes(path: bytes) -> dict[str, str]:
    try:
        names = sorted(os.listxattr(path, follow_symlinks=False))
        found = [(name, os.getxattr(path, name, follow_symlinks=False)) for name in names]
    except OSError:  # none on this file system, or closed to us
        return {}
    return {name: base64.b64encode(value).decode("ascii") for name, value in found}


def _holes(file: Any, offset: int) -> int:
    """How many whole chunks from here are a hole."""
    try:
        data = os.lseek(file.fileno(), offset, os.SEEK_DATA)
    except OSError as error:
        if error.errno != errno.ENXIO:  # the file system does not tell
            return 0
        data = os.fstat(file.fileno()).st_size  # nothing but a hole from here on
    return max(0, data - offset) // CHUNK_BYTES


def _packed(rows: list[Row]) -> bytes:
    # ASCII with escapes: surrogates, which stand for bytes that are not UTF-8, survive
    return json.dumps(rows, separators=(",", ":")).encode("ascii")


def rows_of(session: Session, digest: bytes) -> list[Row]:
    rows: list[Row] = json.loads(session.get(FOLDER, digest))
    return rows


def _text(digests: bytes) -> str:
    return base64.b64encode(digests).decode("ascii")


def chunks_of(row: Row) -> list[bytes]:
    raw = base64.b64decode(row[5])
    return [raw[at : at + _DIGEST] for at in range(0, len(raw), _DIGEST)]


def below(rows: list[Row]) -> list[tuple[bytes, bool]]:
    return [(digest, row[1] == "folder") for row in rows if row[1] in ("file", "folder") for digest in chunks_of(row)]


def read_all(session: Session, folder: bytes, whole: set[bytes]) -> None:
    """Read a folder's object and all below it but what is in `whole`, to which they are added.

    Raises SnapshotMissing.
    """
    if folder in whole:
        return
    for child, is_folder in below(rows_of(session, folder)):
        if is_folder:
            read_all(session, child, whole)
        elif child not in whole:
            session.get(CHUNK, child)
            whole.add(child)
    whole.add(folder)


def _stamp(state: os.stat_result) -> tuple[int, int, int, int]:
    return state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_ino


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
