"""A store of counted objects by SHA-256, in one SQLite file with the big ones beside it. Knows nothing of disks.

SQLite, because thousands of small files then cost one fsync, a crash leaves all of a snapshot or nothing, and
dropping gives the room back. An object lives as long as something counts on it. Every change happens inside
`writing()`, so that nothing is dropped while somebody is about to refer to it.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import secrets
import shutil
import sqlite3
import zlib
from collections.abc import Iterator
from pathlib import Path

from workspaces.sandboxes.base import DiskFull, SnapshotMissing

_LEAST_ROOM_BYTES = 1024 * 1024
_INLINE_BYTES = 128 * 1024  # above, a file of its own: SQLite is slower than the file system from about there
FOLDER, CHUNK = b"folder\x00", b"chunk\x00"
_PLAIN, _DEFLATED = b"\x00", b"\x01"

_TABLES = """
CREATE TABLE IF NOT EXISTS object (
    id BLOB PRIMARY KEY, refs INTEGER NOT NULL, size INTEGER NOT NULL, data BLOB
);
CREATE TABLE IF NOT EXISTS snapshot (
    ref TEXT PRIMARY KEY, root BLOB NOT NULL, total INTEGER NOT NULL, files INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS seen (
    disk TEXT NOT NULL, path BLOB NOT NULL, size INTEGER, mtime INTEGER, ctime INTEGER, inode INTEGER,
    chunks BLOB NOT NULL, PRIMARY KEY (disk, path)
) WITHOUT ROWID;
"""


def object_id(kind: bytes, data: bytes) -> bytes:
    return hashlib.sha256(kind + data).digest()


class Objects:
    """One connection a use: SQLite's are not for several threads, and opening one takes a millisecond."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(parents=True, exist_ok=True)
        (root / "big").mkdir(exist_ok=True)
        with self._connection() as db:
            db.execute("PRAGMA journal_mode=WAL")
            db.executescript(_TABLES)

    @contextlib.contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        db = sqlite3.connect(self.root / "objects.sqlite", timeout=120, isolation_level=None)
        try:
            db.execute("PRAGMA synchronous=FULL")
            yield db
        except (OSError, sqlite3.OperationalError) as error:
            if not self._is_full(error):
                raise
            hint = f"Make room in {self.root.parent}, then go on. Nothing is lost."
            raise DiskFull("there is no room left where snapshots lie.", hint=hint) from error
        finally:
            db.close()

    def _is_full(self, error: Exception) -> bool:
        """SQLite says "disk I/O error" as well when it has no room for its own files."""
        if isinstance(error, OSError):
            return error.errno in (errno.ENOSPC, errno.EDQUOT)
        return error.args[:1] == ("database or disk is full",) or shutil.disk_usage(self.root).free < _LEAST_ROOM_BYTES

    @contextlib.contextmanager
    def writing(self) -> Iterator[Session]:
        """All or nothing, alone."""
        with self._connection() as db:
            db.execute("BEGIN IMMEDIATE")
            try:
                yield Session(db, self.root)
            except BaseException:
                with contextlib.suppress(sqlite3.OperationalError):  # SQLite has rolled back by itself
                    db.execute("ROLLBACK")
                raise
            db.execute("COMMIT")

    @contextlib.contextmanager
    def reading(self) -> Iterator[Session]:
        """One consistent view."""
        with self._connection() as db:
            db.execute("BEGIN")
            yield Session(db, self.root)


class Session:
    """One transaction. `added_bytes`: what it has stored so far."""

    def __init__(self, db: sqlite3.Connection, root: Path) -> None:
        self.db = db
        self.root = root
        self.added_bytes = 0

    def has(self, digest: bytes) -> bool:
        row = self.db.execute("SELECT data IS NULL FROM object WHERE id = ?", (digest,)).fetchone()
        return bool(row) and (not row[0] or self._big(digest).exists())

    def add(self, kind: bytes, data: bytes) -> tuple[bytes, bool]:
        """The object's id, and whether it is new. A new one counts nobody yet: `count` it.

        The id covers the kind, or a file that holds the text of a folder's object could pass for one.
        """
        digest = object_id(kind, data)
        if self.has(digest):
            return digest, False
        packed = zlib.compress(data, 1)
        stored = _DEFLATED + packed if len(packed) < len(data) else _PLAIN + data
        inline = len(stored) <= _INLINE_BYTES
        if not inline:
            self._write_big(digest, stored)
        self.db.execute(
            "INSERT INTO object VALUES (?, 0, ?, ?) ON CONFLICT (id) DO UPDATE SET data = excluded.data",
            (digest, len(stored), stored if inline else None),
        )
        self.added_bytes += len(stored)
        return digest, True

    def get(self, kind: bytes, digest: bytes) -> bytes:
        """Raises SnapshotMissing when it is gone or not what it was."""
        row = self.db.execute("SELECT data FROM object WHERE id = ?", (digest,)).fetchone()
        if row is None:
            raise SnapshotMissing("a part of the snapshot is gone")
        try:
            stored = bytes(row[0]) if row[0] is not None else self._big(digest).read_bytes()
            data = zlib.decompress(stored[1:]) if stored[:1] == _DEFLATED else stored[1:]
        except (OSError, zlib.error):
            raise SnapshotMissing("a part of the snapshot cannot be read") from None
        if object_id(kind, data) != digest:
            raise SnapshotMissing("a part of the snapshot is damaged")
        return data

    def count(self, digests: list[bytes], by: int) -> None:
        self.db.executemany("UPDATE object SET refs = refs + ? WHERE id = ?", [(by, d) for d in digests])

    def unused(self, digest: bytes) -> bool:
        row = self.db.execute("SELECT refs FROM object WHERE id = ?", (digest,)).fetchone()
        return bool(row) and row[0] <= 0

    def delete(self, digest: bytes) -> None:
        self.db.execute("DELETE FROM object WHERE id = ?", (digest,))
        self._big(digest).unlink(missing_ok=True)

    def _big(self, digest: bytes) -> Path:
        name = digest.hex()
        return self.root / "big" / name[:2] / name

    def _write_big(self, digest: bytes, stored: bytes) -> None:
        path = self._big(digest)
        path.parent.mkdir(exist_ok=True)
        fresh = path.with_name(f".{secrets.token_hex(6)}")
        with fresh.open("wb") as file:
            file.write(stored)
            file.flush()
            os.fsync(file.fileno())
        fresh.rename(path)
