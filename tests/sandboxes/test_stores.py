"""What each snapshot store must do beyond the contract: be shared by processes, and notice damage."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from pathlib import Path

import pytest

from workspaces.sandboxes.base import SandboxUnavailable, SnapshotMissing
from workspaces.sandboxes.snapshots.btrfs import BtrfsStore
from workspaces.sandboxes.snapshots.choose import choose_store
from workspaces.sandboxes.snapshots.content import ContentStore
from workspaces.sandboxes.snapshots.objects import Objects

quiet = contextlib.nullcontext
GIB = 1024**3


@pytest.fixture
def content(tmp_path: Path) -> ContentStore:
    store = ContentStore(tmp_path)
    (store.open("a", 0) / "files" / "file").write_bytes(b"content" * 100)
    return store


def objects_left(store: ContentStore) -> int:
    with contextlib.closing(sqlite3.connect(store.objects.root / "objects.sqlite")) as db:
        rows: int = db.execute("SELECT count(*) FROM object").fetchone()[0]
        return rows + sum(len(files) for _, _, files in os.walk(store.objects.root / "big"))


def test_a_dropped_snapshot_gives_all_its_room_back(content: ContentStore) -> None:
    files = content.path("a") / "files"
    (files / "big").write_bytes(os.urandom(5_000_000))
    refs = [content.save("a", quiet).ref]
    (files / "twin").write_bytes((files / "big").read_bytes())
    (files / "sub").mkdir()
    (files / "sub" / "copy").write_bytes((files / "file").read_bytes())
    refs += [content.save("a", quiet).ref, content.save("a", quiet).ref]
    assert objects_left(content) > 6
    for ref in refs:
        content.drop(ref)
    assert objects_left(content) == 0
    assert content.read(content.save("a", quiet).ref, "file") == b"content" * 100


def test_a_file_that_holds_a_folders_own_record_is_only_a_file(content: ContentStore) -> None:
    files = content.path("a") / "files"
    ref = content.save("a", quiet).ref
    with content.objects.reading() as session:
        root = session.db.execute("SELECT root FROM snapshot WHERE ref = ?", (ref,)).fetchone()[0]
        record = session.get(b"folder\x00", bytes(root))
    (files / "trap").write_bytes(record)
    trapped = content.save("a", quiet).ref
    content.drop(trapped)
    content.put_back("b", ref, 0)
    assert (content.path("b") / "files" / "file").read_bytes() == b"content" * 100


def test_damage_is_noticed_and_the_disk_left_alone(content: ContentStore) -> None:
    ref = content.save("a", quiet).ref
    with contextlib.closing(sqlite3.connect(content.objects.root / "objects.sqlite")) as db:
        db.execute("UPDATE object SET data = zeroblob(length(data))")
        db.commit()
    assert list(content.problems([ref])) == [ref]
    with pytest.raises(SnapshotMissing, match=r"damaged|cannot be read"):
        content.put_back("a", ref, 0)
    assert (content.path("a") / "files" / "file").read_bytes() == b"content" * 100
    assert os.listdir(content.root / "disks") == ["a"]


def test_a_save_that_fails_leaves_nothing(content: ContentStore) -> None:
    @contextlib.contextmanager
    def broken() -> object:
        yield
        raise RuntimeError("the machine went away")

    with pytest.raises(RuntimeError):
        content.save("a", broken)  # type: ignore[arg-type]
    assert objects_left(content) == 0


def test_an_object_is_what_its_id_says(tmp_path: Path) -> None:
    objects = Objects(tmp_path)
    with objects.writing() as session:
        first, new = session.add(b"a\x00", b"data")
        assert new
        assert session.add(b"a\x00", b"data") == (first, False)
        assert session.add(b"b\x00", b"data")[0] != first
        assert session.get(b"a\x00", first) == b"data"
        with pytest.raises(SnapshotMissing):
            session.get(b"b\x00", first)


@pytest.fixture
def btrfs(tmp_path: Path) -> object:
    try:
        store = BtrfsStore(tmp_path, size_bytes=GIB)
    except SandboxUnavailable as error:
        pytest.skip(f"no btrfs: {error}")
    yield store
    store.close()


def test_a_second_process_uses_the_mount_and_leaves_it(btrfs: BtrfsStore) -> None:
    second = BtrfsStore(btrfs.root, size_bytes=GIB)
    second.open("a", GIB)
    second.close()
    assert os.path.ismount(btrfs.mount)
    assert btrfs.exists("a")


def test_what_was_saved_is_there_after_a_restart(btrfs: BtrfsStore) -> None:
    (btrfs.open("a", GIB) / "files" / "file").write_text("kept")
    ref = btrfs.save("a", quiet).ref
    btrfs.close()
    assert not os.path.ismount(btrfs.mount)
    again = BtrfsStore(btrfs.root)
    assert again.read(ref, "file") == b"kept"
    again.close()


def test_at_a_stop_the_host_gets_its_mount_back_from_whoever_finds_it_and_disks_in_use_keep_it(
    btrfs: BtrfsStore,
) -> None:
    (btrfs.open("a", GIB) / "files" / "file").write_text("kept")
    other = BtrfsStore(btrfs.root)  # it mounted nothing
    with (btrfs.path("a") / "files" / "file").open():
        other.detach()
        assert os.path.ismount(btrfs.mount)
    other.detach()
    assert not os.path.ismount(btrfs.mount)
    again = BtrfsStore(btrfs.root)
    assert (again.path("a") / "files" / "file").read_text() == "kept"
    again.close()


def test_a_subvolume_made_inside_a_disk_does_not_keep_it_from_being_deleted(btrfs: BtrfsStore) -> None:
    disk = btrfs.open("a", GIB)
    os.system(f"btrfs -q subvolume create {disk}/files/own && btrfs -q subvolume create {disk}/files/own/inner")
    btrfs.delete("a")
    assert not disk.exists()
    assert btrfs.tidy() >= 1
    assert list((btrfs.mount / "gone").iterdir()) == []


def test_the_room_of_what_was_dropped_is_given_back_and_the_limit_holds_afterwards(btrfs: BtrfsStore) -> None:
    files = btrfs.open("a", 64 * 1024**2) / "files"
    for number in range(40):
        (files / f"{number}").write_bytes(os.urandom(1024**2))
    refs = [btrfs.save("a", quiet).ref for _ in range(3)]
    btrfs.put_back("a", refs[0], 64 * 1024**2)
    for ref in refs[1:]:
        btrfs.drop(ref)
        with pytest.raises(SnapshotMissing):
            btrfs.read(ref, "1")
    assert btrfs.tidy() >= 3
    assert btrfs.tidy() == 0
    assert len(list((btrfs.mount / "snapshots").glob("*/*"))) == 1
    assert len(btrfs.read(refs[0], "1")) == 1024**2
    assert 40 * 1024**2 <= (btrfs.used_bytes("a") or 0) < 50 * 1024**2
    threshold = next(Path("/sys/fs/btrfs").glob("*/qgroups/drop_subtree_threshold"), None)
    if threshold is not None:
        assert threshold.read_text().strip() != "0"  # elsewhere, deleted trees are counted as before
    with pytest.raises(OSError, match="quota exceeded"):
        fill(btrfs.path("a") / "files" / "more", 60)


def fill(path: Path, megabytes: int) -> None:
    with path.open("wb") as file:
        for _ in range(megabytes):
            file.write(os.urandom(1024**2))
            file.flush()
            os.fsync(file.fileno())


def test_the_sparse_file_takes_only_what_is_stored(btrfs: BtrfsStore) -> None:
    assert (btrfs.root / "btrfs.img").stat().st_blocks * 512 < 100_000_000


def test_the_choice_stays_and_says_why(tmp_path: Path) -> None:
    store, reason = choose_store(tmp_path, None, "content")
    assert (store.kind, "as set" in reason) == ("content", True)
    store, reason = choose_store(tmp_path, None, "auto")
    assert (store.kind, "already" in reason) == ("content", True)
    with pytest.raises(ValueError, match="auto, btrfs or content"):
        choose_store(tmp_path, None, "zfs")


def test_without_its_programs_btrfs_is_not_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    store, reason = choose_store(tmp_path / "root", None, "auto")
    assert store.kind == "content"
    assert "no disk limit" in reason
    with pytest.raises(SandboxUnavailable):
        choose_store(tmp_path / "root", None, "btrfs")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything, so nothing is closed to it")
def test_what_its_owner_has_closed_is_saved_and_stays_closed(content: ContentStore) -> None:
    closed = content.path("a") / "files" / "closed"
    closed.mkdir()
    (closed / "file").write_text("secret")
    (closed / "file").chmod(0)
    closed.chmod(0)
    ref = content.save("a", quiet).ref
    assert closed.stat().st_mode & 0o777 == 0
    content.put_back("a", ref, 0)
    assert closed.stat().st_mode & 0o777 == 0
    assert content.read(ref, "closed/file") == b"secret"
