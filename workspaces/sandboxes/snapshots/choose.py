"""Chooses where disks lie, by trying. Says why, so that nobody wonders where the disk limit went."""

from __future__ import annotations

from pathlib import Path

from workspaces.sandboxes.base import SandboxUnavailable
from workspaces.sandboxes.snapshots.base import DiskStore, Owner
from workspaces.sandboxes.snapshots.btrfs import DEFAULT_SIZE_BYTES, BtrfsStore
from workspaces.sandboxes.snapshots.content import ContentStore


def choose_store(root: Path, owner: Owner, kind: str, size_bytes: int | None = None) -> tuple[DiskStore, str]:
    """`kind` is `auto`, `btrfs` or `content`. `auto` stays with what the root folder already holds.

    Raises SandboxUnavailable when `btrfs` is asked for, or already in use here, and does not work.
    """
    if kind not in ("auto", "btrfs", "content"):
        raise ValueError(f"{kind!r} is no snapshot store: auto, btrfs or content")
    root.mkdir(parents=True, exist_ok=True)
    if kind == "content":
        return ContentStore(root, owner), "content-addressed store, as set"
    if kind == "auto" and (root / "content").exists() and not (root / "btrfs.img").exists():
        return ContentStore(root, owner), "content-addressed store, as the disks here already use it"
    try:
        return BtrfsStore(root, owner, size_bytes or DEFAULT_SIZE_BYTES), "btrfs subvolumes"
    except SandboxUnavailable as error:
        if kind == "btrfs" or (root / "btrfs.img").exists():
            raise
        reason = f"content-addressed store, no disk limit: {error}"
        return ContentStore(root, owner), reason
