"""Copies of saved states outside the installation, in the form of the store that made them. Restores no disk.

Content store: another set of objects; what is there already costs nothing, whatever is copied is checked against
its id. Btrfs: a file a snapshot, as `btrfs send` writes it against the snapshot before; a file is written once.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import sqlite3
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from workspaces.sandboxes.base import SandboxUnavailable, SnapshotMissing
from workspaces.sandboxes.snapshots.base import DiskStore, check_ref
from workspaces.sandboxes.snapshots.btrfs import BtrfsStore
from workspaces.sandboxes.snapshots.content import ContentStore, drop_from
from workspaces.sandboxes.snapshots.objects import CHUNK, FOLDER, Objects, Session
from workspaces.sandboxes.snapshots.trees import below, read_all, rows_of

_READ_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Copy:
    """One snapshot of a copy. `proof`: the top object's id, or the SHA-256 of the file; `parent`: see `btrfs send`."""

    ref: str
    proof: str
    parent: str = ""


def copy_out(store: DiskStore, lines: Sequence[Sequence[str]], folder: Path, known: dict[str, Copy]) -> list[Copy]:
    """Bring `folder` to hold every ref. `lines`: the refs of each workspace, oldest first. `known`: what it holds.

    Gives all that has to stay there, parents before children. Raises SnapshotMissing, SandboxUnavailable, OSError.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if isinstance(store, BtrfsStore):
        return _send(store, lines, folder, known)
    assert isinstance(store, ContentStore)
    return _copy_objects(store.objects, Objects(folder), [ref for line in lines for ref in line])


def check(kind: str, folder: Path, copies: Sequence[Copy]) -> None:
    """Read everything. Raises SnapshotMissing when a part is gone or is not what it was."""
    if kind == "btrfs":
        for copy in copies:
            if not _file(folder, copy.ref).is_file() or _sha256(_file(folder, copy.ref)) != copy.proof:
                raise SnapshotMissing(f"the copy of snapshot {copy.ref} is gone or damaged")
        return
    whole: set[bytes] = set()
    try:
        with Objects(folder).reading() as session:
            for copy in copies:
                row = session.db.execute("SELECT root FROM snapshot WHERE ref = ?", (copy.ref,)).fetchone()
                if row is None or bytes(row[0]).hex() != copy.proof:
                    raise SnapshotMissing(f"the copy of snapshot {copy.ref} is gone or another one")
                read_all(session, bytes(row[0]), whole)
    except sqlite3.Error as error:
        raise SnapshotMissing(f"the copy of the snapshots cannot be read: {error}") from error


def copy_in(store: DiskStore, folder: Path, copies: Sequence[Copy], wanted: set[str]) -> None:
    """Give the store the wanted snapshots of a checked copy. Raises SnapshotMissing, SandboxUnavailable."""
    if isinstance(store, BtrfsStore):
        _receive(store, folder, copies, wanted)
        return
    assert isinstance(store, ContentStore)
    _copy_objects(Objects(folder), store.objects, sorted(wanted))


def forget_others(kind: str, folder: Path, copies: Sequence[Copy]) -> None:
    """Give back the room of what no longer has to stay. Only when the manifest that names the rest is written."""
    keep = {copy.ref for copy in copies}
    if kind == "btrfs":
        for path in folder.glob("*.send"):
            if path.stem not in keep:
                path.unlink()
        return
    objects = Objects(folder)
    with objects.reading() as session:
        there = [row[0] for row in session.db.execute("SELECT ref FROM snapshot")]
    for ref in there:
        if ref not in keep:
            drop_from(objects, ref)


def _copy_objects(source: Objects, target: Objects, refs: Sequence[str]) -> list[Copy]:
    done = []
    for ref in refs:
        with source.reading() as there:
            row = there.db.execute(
                "SELECT root, total, files FROM snapshot WHERE ref = ?", (check_ref(ref),)
            ).fetchone()
            if row is None:
                raise SnapshotMissing(f"the store has no snapshot {ref}")
            root = bytes(row[0])
            with target.writing() as here:
                known = here.db.execute("SELECT root FROM snapshot WHERE ref = ?", (ref,)).fetchone()
                if known is None:
                    _copy_folder(there, here, root)
                    here.count([root], 1)
                    here.db.execute("INSERT INTO snapshot VALUES (?, ?, ?, ?)", (ref, root, row[1], row[2]))
        done.append(Copy(ref, root.hex()))
    return done


def _copy_folder(there: Session, here: Session, digest: bytes) -> None:
    """Children first: a folder that is there has all that is below it."""
    if here.has(digest):
        return
    children = below(rows_of(there, digest))
    for child, is_folder in children:
        if is_folder:
            _copy_folder(there, here, child)
        elif not here.has(child):
            here.add(CHUNK, there.get(CHUNK, child))
    here.add(FOLDER, there.get(FOLDER, digest))
    here.count([child for child, _ in children], 1)


def _send(store: BtrfsStore, lines: Sequence[Sequence[str]], folder: Path, known: dict[str, Copy]) -> list[Copy]:
    done: dict[str, Copy] = {}

    def keep(copy: Copy) -> None:
        """With its parents, also those whose snapshot is gone by now."""
        if copy.ref in done:
            return
        if copy.parent:
            keep(known[copy.parent])
        done[copy.ref] = copy

    for line in lines:
        before = ""
        for ref in line:
            copy = known.get(ref)
            if copy is None or not _file(folder, ref).is_file():
                known[ref] = copy = Copy(ref, _send_one(store.saved(ref), before, store, folder), before)
            keep(copy)
            before = ref
    return list(done.values())


def _send_one(saved: Path, parent: str, store: BtrfsStore, folder: Path) -> str:
    """The file's SHA-256."""
    argv: list[str | Path] = ["btrfs", "send", "-q"]
    argv += ["-p", store.saved(parent), saved] if parent else [saved]
    draft = folder / f".{secrets.token_hex(6)}"
    try:
        with draft.open("wb") as file:
            done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.PIPE, check=False)
            file.flush()
            os.fsync(file.fileno())
        if done.returncode:
            raise SandboxUnavailable(f"btrfs send failed: {done.stderr.decode(errors='replace').strip()[-300:]}")
        proof = _sha256(draft)
        draft.rename(_file(folder, saved.name))
    finally:
        draft.unlink(missing_ok=True)
    return proof


def _receive(store: BtrfsStore, folder: Path, copies: Sequence[Copy], wanted: set[str]) -> None:
    """Every file, as children need their parents; then the parents that nobody asked for go."""
    for copy in copies:
        place = store.mount / "snapshots" / copy.ref[:2]
        place.mkdir(exist_ok=True)
        with _file(folder, copy.ref).open("rb") as file:
            done = subprocess.run(["btrfs", "receive", "-q", place], stdin=file, capture_output=True, check=False)
        if done.returncode:
            words = done.stderr.decode(errors="replace").strip()[-300:]
            raise SandboxUnavailable(f"btrfs receive failed: {words}")
    for copy in copies:
        if copy.ref not in wanted:
            store.drop(copy.ref)


def _file(folder: Path, ref: str) -> Path:
    return folder / f"{check_ref(ref)}.send"


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
