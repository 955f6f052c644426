"""Makes an installation from a backup. Only into an empty one: it never writes over anything.

Everything is checked before the first change. Afterwards no lease and no sandbox is assumed to be there.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections import Counter
from pathlib import Path
from typing import cast

from django.conf import settings
from django.core.management import call_command
from django.db import connection

from agentdesk import environment
from workspaces.actions.restored import alerts_restored, task_restored, unfinished_tasks, workspaces_restored
from workspaces.engine.backup import dump, manifest
from workspaces.engine.backup.manifest import BackupError, Manifest
from workspaces.engine.boxes import driver_named, sandbox_for
from workspaces.models import Snapshot, Task, Workspace
from workspaces.queries.disks import SavedDisk, saved_disk
from workspaces.sandboxes.base import SandboxError, SandboxUnavailable
from workspaces.sandboxes.docker import SANDBOX_UID
from workspaces.sandboxes.snapshots import copies
from workspaces.sandboxes.snapshots.base import DiskStore
from workspaces.sandboxes.snapshots.choose import choose_store

logger = logging.getLogger(__name__)

OTHER_NAME = "agentdesk restore"  # of this process' connections: any other of the product's is in the way


def restore(folder: Path) -> Counter[str]:
    """Counts of what is there now. Raises BackupError; before the first change unless it says otherwise."""
    folder = folder.absolute()
    made = manifest.read(folder)
    if made is None:
        raise BackupError(f"{folder} holds no whole backup: there is no {manifest.NAME} in it.")
    cut_short = settings.AGENTDESK_HOME / environment.RESTORING
    if cut_short.exists():
        raise BackupError(
            f"A restore into {settings.AGENTDESK_HOME} was cut short, and what is there is not whole. Remove that "
            "folder (and empty the database that DATABASE_URL names), then restore again. Nothing was changed."
        )
    _refuse_unless_empty()
    _check_keys(made)
    manifest.check_files(folder, made)
    try:
        for driver, disks in made.disks.items():
            copies.check(disks.store, folder / "snapshots" / driver, disks.copies)
            _empty_store(driver, disks.store)
    except SandboxError as error:
        raise BackupError(f"{error} {error.hint}".strip()) from error
    settings.AGENTDESK_HOME.mkdir(mode=0o700, parents=True, exist_ok=True)
    manifest.replace_text(cut_short, "until the restore has come to its end, nothing may start here\n")
    _put_keys(folder, made)
    dump.load(folder / made.database.path)
    call_command("migrate", interactive=False, verbosity=0)
    try:
        for driver, disks in made.disks.items():
            store = cast(DiskStore, driver_named(driver).snapshots)
            copies.copy_in(store, folder / "snapshots" / driver, disks.copies, set(disks.named))
        if (folder / "uploads").is_dir():
            shutil.copytree(folder / "uploads", settings.MEDIA_ROOT, dirs_exist_ok=True)
        counts = _settle(made)
    except (SandboxError, OSError) as error:
        raise BackupError(
            f"The database is restored, the disks are not: {error}. Empty the installation, then try again."
        ) from error
    cut_short.unlink()
    return counts


def _refuse_unless_empty() -> None:
    with connection.cursor() as cursor:
        if dump.has_tables():
            cursor.execute("SELECT EXISTS (SELECT FROM workspaces_user) OR EXISTS (SELECT FROM workspaces_workspace)")
            if cursor.fetchone()[0]:
                raise BackupError(
                    "This installation is not empty: there are users or workspaces in its database. Restore into a new "
                    "one, with an AGENTDESK_HOME (and DATABASE_URL) of its own. Nothing was changed."
                )
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE datname = current_database() AND application_name = 'agentdesk'"
        )
        if cursor.fetchone()[0]:
            raise BackupError("agentdesk runs on this database. Stop it first. Nothing was changed.")


def _check_keys(made: Manifest) -> None:
    """Without the keys that sealed them, providers' keys are lost: better told now."""
    if made.keys and not environment.words("AGENTDESK_FIELD_KEYS"):
        return  # they come with it
    here = {manifest.key_print(key) for key in settings.FIELD_ENCRYPTION_KEYS}
    if not set(made.key_prints) <= here:
        raise BackupError(
            "The encryption keys here are not those that sealed the stored provider keys. Set AGENTDESK_FIELD_KEYS to "
            "the keys of the installation that was backed up"
            + (", or unset it: the backup brings them." if made.keys else ": this backup was made without them.")
        )


def _put_keys(folder: Path, made: Manifest) -> None:
    given = {"field_keys": "AGENTDESK_FIELD_KEYS", "secret_key": "AGENTDESK_SECRET_KEY"}
    for proof in made.keys:
        name = Path(proof.path).name
        if not environment.text(given[name]):
            environment.make_private(settings.AGENTDESK_HOME / "keys")
            manifest.replace_text(settings.AGENTDESK_HOME / "keys" / name, (folder / proof.path).read_text())


def _empty_store(driver: str, kind: str) -> None:
    """The store that the snapshots need, with nothing in it. From now on `auto` stays with it."""
    if driver == "docker" and settings.SANDBOX_STORE not in ("auto", kind):
        raise BackupError(
            f"The backup's snapshots are of a {kind} store and AGENTDESK_SANDBOX_STORE is {settings.SANDBOX_STORE}: "
            f"unset it, or set it to {kind}."
        )
    root = Path(settings.SANDBOX_ROOT) / driver
    if kind == "content" and (root / "btrfs.img").exists():
        raise BackupError(f"{root} is a btrfs store, the backup's snapshots are not: remove that folder first.")
    owner = (SANDBOX_UID, SANDBOX_UID) if driver == "docker" and os.geteuid() == 0 else None
    store, _ = choose_store(root, owner, kind)
    if any(place.is_dir() for place in store.path("x").parent.iterdir()):
        raise BackupError(f"There are disks in {root}: restore into a new AGENTDESK_HOME. Nothing was changed.")


def _settle(made: Manifest) -> Counter[str]:
    counts: Counter[str] = Counter()
    found: dict[int, SavedDisk] = {}
    disks: dict[int, Snapshot] = {}
    for workspace in Workspace.objects.select_related("slept_snapshot", "held_by__disk_restore").order_by("pk"):
        state = found[workspace.pk] = saved_disk(workspace)
        if state.snapshot is not None:
            _put_back(workspace, state.snapshot)
            disks[workspace.pk] = state.snapshot
    workspaces_restored(disks)
    alerts_restored()
    holders = dict(Workspace.objects.exclude(held_by=None).values_list("held_by", "pk"))
    for task_id in unfinished_tasks():
        state = found[holders[task_id]] if task_id in holders else SavedDisk(None)
        task_restored(task_id, made_at=made.made_at, snapshot=state.snapshot, undone=state.undone)
        counts["unfinished tasks"] += 1
    counts["tasks"] = Task.objects.count()
    counts["workspaces"] = len(found)
    counts["disks put back"] = len(disks)
    counts["snapshots"] = sum(len(disks.named) for disks in made.disks.values())
    return counts


def _put_back(workspace: Workspace, snapshot: Snapshot) -> None:
    try:
        sandbox_for(workspace).restore(snapshot.ref)
    except SandboxUnavailable as error:  # no engine here yet: then nothing runs on the disk either
        logger.info("the engine does not answer, the disk is put back all the same: %s", error)
        store = cast(DiskStore, driver_named(workspace.driver).snapshots)
        store.put_back(workspace.sandbox_key, snapshot.ref, workspace.disk_bytes)
