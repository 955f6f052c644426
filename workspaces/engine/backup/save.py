"""Makes a backup, while everything runs. Writes to its folder only.

One state of the database is dumped, then each snapshot that it names is copied: a snapshot is in the store before
the database names it, and the collector waits meanwhile. A second backup into the same folder costs what is new.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import uuid
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import cast

from django.conf import settings

from agentdesk import environment
from workspaces.engine.backup import dump, manifest
from workspaces.engine.backup.manifest import BackupError, Disks, FileProof, Manifest
from workspaces.engine.boxes import driver_named
from workspaces.models import Snapshot, Task, Workspace
from workspaces.queries.database import collector_held_off, database_now
from workspaces.sandboxes.base import SandboxError
from workspaces.sandboxes.snapshots import copies
from workspaces.sandboxes.snapshots.base import DiskStore

Lines = dict[str, dict[int, list[str]]]  # driver → workspace → refs, oldest first


def back_up(folder: Path, *, with_keys: bool = True) -> Manifest:
    """Raises BackupError; what was a whole backup before stays one."""
    folder = folder.resolve()  # a link to it is as good; whose folder it is, is looked at behind the link
    if not dump.has_tables():
        raise BackupError("There is nothing to back up: the database has no tables yet.")
    _open(folder)
    try:
        with _alone(folder):
            return _written(folder, manifest.read(folder), with_keys=with_keys)
    except OSError as error:
        raise BackupError(f"The backup could not be written: {error}") from error


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Two at once would tidy away what the other has just written."""
    with (folder / manifest.MARK).open("rb") as mark:
        try:
            fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BackupError(f"Another backup writes to {folder} now. Let it end first.") from None
        yield


def _written(folder: Path, earlier: Manifest | None, *, with_keys: bool) -> Manifest:
    with collector_held_off():
        made_at = database_now().isoformat()
        target = folder / f"database-{uuid.uuid4().hex}.dump"
        with dump.one_view() as view:
            lines = _lines()
            counts = {
                "tasks": Task.objects.count(),
                "workspaces": Workspace.objects.count(),
                "snapshots": sum(len(refs) for by_workspace in lines.values() for refs in by_workspace.values()),
            }
            dump.dump(view, target)
        os.chmod(target, 0o600)
        try:
            disks = {driver: _copied(folder, driver, found, earlier) for driver, found in lines.items()}
        except (SandboxError, OSError) as error:
            raise BackupError(f"The snapshots could not be copied: {error}") from error
    made = Manifest(
        made_at=made_at,
        product=_product(),
        postgres=dump.server_version(),
        database=manifest.proof_of(folder, target),
        key_prints=[manifest.key_print(key) for key in settings.FIELD_ENCRYPTION_KEYS],
        keys=_keys(folder) if with_keys else [],
        uploads=_uploads(folder, earlier),
        disks=disks,
        counts=counts,
    )
    made.write(folder)
    _tidy(folder, made)
    return made


def _open(folder: Path) -> None:
    """An empty folder, or one with a backup in it. Raises BackupError."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        mark = folder / manifest.MARK
        if not mark.exists():
            if any(folder.iterdir()):
                raise BackupError(f"{folder} holds something else. Give an empty folder, or an earlier backup.")
            mark.touch(mode=0o600)
        environment.make_private(folder)
    except OSError as error:
        raise BackupError(f"{folder} cannot be written: {error}") from None


def _lines() -> Lines:
    found: Lines = defaultdict(lambda: defaultdict(list))
    rows = (
        Snapshot.objects.filter(dropped_at=None).order_by("pk").values_list("workspace__driver", "workspace_id", "ref")
    )
    for driver, workspace, ref in rows:
        found[driver][workspace].append(ref)
    return found


def _copied(folder: Path, driver: str, found: dict[int, list[str]], earlier: Manifest | None) -> Disks:
    store = cast(DiskStore, driver_named(driver).snapshots)
    before = earlier.disks.get(driver) if earlier else None
    if before is not None and before.store != store.kind:
        raise BackupError(
            f"{folder} holds snapshots of a {before.store} store, these are {store.kind}: start a new one."
        )
    known = {copy.ref: copy for copy in before.copies} if before else {}
    copied = copies.copy_out(store, list(found.values()), _place(folder, driver), known)
    return Disks(store.kind, copied, [ref for refs in found.values() for ref in refs])


def _place(folder: Path, driver: str) -> Path:
    return folder / "snapshots" / driver


def _keys(folder: Path) -> list[FileProof]:
    place = folder / "keys"
    environment.make_private(place)
    texts = {"field_keys": "\n".join(settings.FIELD_ENCRYPTION_KEYS), "secret_key": settings.SECRET_KEY}
    for name, text in texts.items():
        manifest.replace_text(place / name, text + "\n")
    return [manifest.proof_of(folder, place / name) for name in texts]


def _uploads(folder: Path, earlier: Manifest | None) -> list[FileProof]:
    """Attachments, which are written once: one of the same size and time is the same."""
    source, place = Path(settings.MEDIA_ROOT), folder / "uploads"
    known = {proof.path: proof for proof in earlier.uploads} if earlier else {}
    proofs = []
    for path in sorted(source.rglob("*")) if source.is_dir() else []:
        target = place / path.relative_to(source)
        if path.is_symlink() or not path.is_file():
            continue
        was, now = (target.stat() if target.is_file() else None), path.stat()
        same = was is not None and (was.st_size, was.st_mtime_ns) == (now.st_size, now.st_mtime_ns)
        if not same:
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            shutil.copy2(path, target)
        proof = known.get(str(target.relative_to(folder))) if same else None
        proofs.append(proof or manifest.proof_of(folder, target))
    return proofs


def _tidy(folder: Path, made: Manifest) -> None:
    """What only the backup before it needed."""
    for path in folder.glob("database-*.dump"):
        if path.name != made.database.path:
            path.unlink()
    for driver, disks in made.disks.items():
        copies.forget_others(disks.store, _place(folder, driver), disks.copies)
    wanted = {folder / proof.path for proof in made.uploads}
    for path in (folder / "uploads").rglob("*"):
        if path.is_file() and path not in wanted:
            path.unlink()
    if not made.keys:
        shutil.rmtree(folder / "keys", ignore_errors=True)


def _product() -> str:
    try:
        return version("agentdesk")
    except PackageNotFoundError:
        return "source"
