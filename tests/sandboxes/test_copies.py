"""Copies of saved states outside the installation: whole, incremental, checked, and the same when put back."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from workspaces.sandboxes.base import SandboxUnavailable, SnapshotMissing
from workspaces.sandboxes.snapshots.base import DiskStore
from workspaces.sandboxes.snapshots.btrfs import BtrfsStore
from workspaces.sandboxes.snapshots.content import ContentStore
from workspaces.sandboxes.snapshots.copies import check, copy_in, copy_out, forget_others

quiet = contextlib.nullcontext
GIB = 1024**3


def opened(kind: str, root: Path) -> DiskStore:
    root.mkdir()
    if kind == "content":
        return ContentStore(root)
    try:
        return BtrfsStore(root, size_bytes=GIB)
    except SandboxUnavailable as error:
        pytest.skip(f"no btrfs: {error}")


@pytest.fixture(params=["content", "btrfs"])
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[DiskStore, DiskStore]]:
    """Here, and in the other installation."""
    here = opened(request.param, tmp_path / "here")
    there = opened(request.param, tmp_path / "there")
    yield here, there
    here.close()
    there.close()


def fill(files: Path) -> None:
    (files / "sub" / "empty").mkdir(parents=True)
    (files / "sub" / "tool").write_bytes(b"#!/bin/sh\n")
    (files / "sub" / "tool").chmod(0o4755)
    (files / "link").symlink_to("sub/tool")
    (files / os.fsdecode(b"caf\xe9")).write_bytes(os.urandom(400_000))
    os.utime(files / "sub" / "tool", ns=(1_000_000_007, 1_000_000_007))


def picture(root: Path) -> dict[str, tuple[object, ...]]:
    found: dict[str, tuple[object, ...]] = {}
    for place, folders, names in os.walk(root):
        for name in (*folders, *names):
            path = Path(place, name)
            state = path.lstat()
            content = path.read_bytes() if stat.S_ISREG(state.st_mode) else b""
            target = os.readlink(path) if path.is_symlink() else ""
            when = 0 if path.is_dir() and not path.is_symlink() else state.st_mtime_ns
            found[str(path.relative_to(root))] = (state.st_mode, content, target, when)
    return found


def test_a_copy_gives_every_state_back_and_a_second_one_costs_what_is_new(
    stores: tuple[DiskStore, DiskStore], tmp_path: Path
) -> None:
    here, there = stores
    copy = tmp_path / "copy"
    files = here.open("a", GIB) / "files"
    fill(files)
    refs = [here.save("a", quiet).ref]
    pictures = [picture(here.path("a"))]
    first = copy_out(here, [refs], copy, {})
    size = used(copy)

    (files / "sub" / "more").write_bytes(b"more")
    (files / "link").unlink()
    refs.append(here.save("a", quiet).ref)
    pictures.append(picture(here.path("a")))
    here.open("b", GIB)
    other = here.save("b", quiet).ref
    second = copy_out(here, [refs, [other]], copy, {one.ref: one for one in first})
    assert {one.ref for one in second} == {*refs, other}
    assert used(copy) - size < 150_000, "what had not changed was copied again"

    check(here.kind, copy, second)
    copy_in(there, copy, second, {*refs, other})
    for ref, wanted in zip(refs, pictures, strict=True):
        there.open("anew", GIB)
        there.put_back("anew", ref, GIB)
        assert picture(there.path("anew")) == wanted
    assert there.problems([*refs, other]) == {}


def test_a_state_that_is_gone_from_the_store_leaves_the_copy_when_nothing_needs_it(
    stores: tuple[DiskStore, DiskStore], tmp_path: Path
) -> None:
    here, there = stores
    copy = tmp_path / "copy"
    fill(here.open("a", GIB) / "files")
    refs = [here.save("a", quiet).ref for _ in range(3)]
    known = {one.ref: one for one in copy_out(here, [refs], copy, {})}
    here.drop(refs[0])
    here.drop(refs[2])
    kept = copy_out(here, [refs[1:2]], copy, known)
    forget_others(here.kind, copy, kept)
    check(here.kind, copy, kept)
    copy_in(there, copy, kept, {refs[1]})
    assert there.problems([refs[1]]) == {}
    assert set(there.problems([refs[0], refs[2]])) == {refs[0], refs[2]}
    with pytest.raises(SnapshotMissing):
        copy_out(here, [[refs[2]]], tmp_path / "another", {})


def test_damage_is_found_before_anything_is_restored(stores: tuple[DiskStore, DiskStore], tmp_path: Path) -> None:
    here, _ = stores
    copy = tmp_path / "copy"
    fill(here.open("a", GIB) / "files")
    copies = copy_out(here, [[here.save("a", quiet).ref]], copy, {})
    check(here.kind, copy, copies)
    hurt = next(path for path in copy.rglob("*") if path.is_file() and path.stat().st_size > 390_000)
    data = hurt.read_bytes()
    hurt.write_bytes(data[:300_000] + bytes([data[300_000] ^ 1]) + data[300_001:])
    with pytest.raises(SnapshotMissing):
        check(here.kind, copy, copies)
    hurt.unlink()
    with pytest.raises(SnapshotMissing):
        check(here.kind, copy, copies)


def used(folder: Path) -> int:
    return sum(
        path.stat().st_size for path in folder.rglob("*") if path.is_file() and path.suffix not in (".sqlite-shm",)
    )
