"""Snapshots: what comes back is what was, and an unchanged file costs nothing. Both stores, on every driver."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.harness import eventually
from tests.sandboxes.conftest import sh
from workspaces.sandboxes.base import (
    FileTooLarge,
    NotAFile,
    PathRefused,
    SandboxSpec,
    SnapshotMissing,
)

MESS = r"""
set -e
git init -q nested && cd nested && git config user.email a@b && git config user.name a
echo one >file && git add . && git commit -qm one && cd ..
mkdir -p empty/inner closed && echo secret >closed/file && chmod 000 closed/file && chmod 500 closed
echo run >script && chmod 755 script
echo set >setuid && chmod 4755 setuid && chmod 1777 empty
ln -s script link && ln -s /nowhere dangling && ln -s empty folderlink
echo twice >hard1 && ln hard1 hard2
mkfifo pipe
printf raw >"$(printf 'bad\377name')"
: >'a "quoted" $name'
head -c 10000000 /dev/zero >zeros && head -c 9000000 /dev/urandom >random
truncate -s 50M sparse
touch -d '2001-02-03 04:05:06.789' old
echo mine >$HOME/.profile
"""


def picture(folder: Path) -> dict[str, Any]:
    """All that must come back, by path."""
    found: dict[str, Any] = {}
    for place, folders, files in os.walk(folder):
        for name in folders + files:
            path = Path(place, name)
            state = path.lstat()
            what: Any = None
            if stat.S_ISREG(state.st_mode):
                attributes = {name: os.getxattr(path, name) for name in os.listxattr(path)}
                what = (hash(path.read_bytes()), state.st_mtime_ns, state.st_nlink, attributes)
            elif stat.S_ISLNK(state.st_mode):
                what = os.readlink(path)
            found[os.fspath(path.relative_to(folder))] = (
                stat.filemode(state.st_mode),
                state.st_uid,
                state.st_gid,
                what,
            )
    return found


def disk_of(driver: Any, sandbox: Any) -> Path:
    return driver.store.path(sandbox.spec.key)


def test_everything_comes_back_after_the_shell_has_raged(driver: Any, sandbox: Any, shell: Any) -> None:
    assert shell(MESS).exit_code == 0
    files = disk_of(driver, sandbox) / "files"
    if os.geteuid() == 0:  # as root in the container would leave them
        (files / "foreign").mkdir()
        (files / "foreign" / "file").write_text("of somebody else")
        for path in (files / "foreign", files / "foreign" / "file"):
            os.chown(path, 12345, 54321)
    with contextlib.suppress(OSError):  # a file system without them
        os.setxattr(files / "script", "user.note", b"kept")
    before = picture(disk_of(driver, sandbox))
    assert len(before) > 40
    info = sandbox.snapshot()
    assert info.files > 30
    assert info.total_bytes > 60_000_000
    shell(
        "chmod -R u+rwx . 2>/dev/null; rm -f hard1; echo other >hard2; rm -rf nested/.git empty closed link pipe;"
        "echo bad >script; chmod 644 setuid; mkdir link;"
        "echo x >>hard1; rm $HOME/.profile; echo new >new; touch old; cd nested && git init -q . && echo x >file"
    )
    assert picture(disk_of(driver, sandbox)) != before
    sandbox.restore(info.ref)
    assert picture(disk_of(driver, sandbox)) == before
    assert sandbox.state() == "running"
    result = shell("git -C nested status --porcelain && git -C nested log --oneline | wc -l; cat ~/.profile")
    assert result.stdout.split() == [b"1", b"mine"]


def test_names_of_one_file_stay_one_file(driver: Any, sandbox: Any, shell: Any) -> None:
    shell("mkdir -p d/e; echo one >d/e/first; ln d/e/first second; ln second d/third; sleep 0.2")
    ref = sandbox.snapshot().ref
    shell("rm -r d second")
    sandbox.restore(ref)
    shell("echo two >d/third")
    assert shell("cat d/e/first second d/third").stdout == b"two\n" * 3
    assert driver.snapshots.read(ref, "second") == b"one\n"
    again = sandbox.snapshot().ref
    assert {change.path for change in driver.snapshots.changes(ref, again)} == {"d/e/first", "d/third", "second"}


def test_a_huge_file_of_holes_costs_only_what_is_in_it(driver: Any, sandbox: Any, shell: Any) -> None:
    shell("truncate -s 40G huge; printf begin | dd of=huge conv=notrunc 2>/dev/null; sleep 0.2")
    shell("printf middle | dd of=huge bs=1M seek=20001 conv=notrunc 2>/dev/null; sleep 0.2")
    info = sandbox.snapshot()
    assert info.added_bytes < 5_000_000
    shell("rm huge")
    sandbox.restore(info.ref)
    path = disk_of(driver, sandbox) / "files" / "huge"
    assert path.stat().st_size == 40 * 1024**3
    assert path.stat().st_blocks * 512 < 20_000_000
    with path.open("rb") as file:
        assert file.read(6) == b"begin\0"
        file.seek(20001 * 1024**2)
        assert file.read(7) == b"middle\0"


def test_a_restored_disk_can_be_saved_and_restored_again(driver: Any, sandbox: Any, shell: Any) -> None:
    shell("echo 1 >file")
    first = sandbox.snapshot()
    shell("echo 2 >file; mkdir d; echo x >d/x")
    second = sandbox.snapshot()
    sandbox.restore(first.ref)
    assert driver.snapshots.changes(first.ref, sandbox.snapshot().ref) == []
    sandbox.restore(second.ref)
    assert sandbox.read("file") == b"2\n"
    assert driver.snapshots.changes(second.ref, sandbox.snapshot().ref) == []


def test_an_unchanged_file_costs_nothing(driver: Any, sandbox: Any, shell: Any) -> None:
    shell("mkdir big; for i in 1 2 3 4 5; do head -c 3000000 /dev/urandom >big/$i; done; sleep 0.2")
    first = sandbox.snapshot()
    assert first.added_bytes >= 15_000_000
    assert sandbox.snapshot().added_bytes == 0
    shell("head -c 50000 /dev/urandom >small")
    third = sandbox.snapshot()
    assert 50_000 <= third.added_bytes < 100_000
    assert third.total_bytes == first.total_bytes + 50_000
    held = driver.store.used_bytes(sandbox.spec.key)
    assert held >= 15_000_000


def test_a_change_that_keeps_size_and_time_is_seen(driver: Any, sandbox: Any, shell: Any) -> None:
    shell("echo aaaa >file; touch -d 2020-01-01 file; sleep 0.2")
    first = sandbox.snapshot()
    shell("echo bbbb >file; touch -d 2020-01-01 file")
    second = sandbox.snapshot()
    (change,) = driver.snapshots.changes(first.ref, second.ref)
    assert (change.path, change.kind) == ("file", "changed")
    assert driver.snapshots.read(second.ref, "file") == b"bbbb\n"


def test_quick_successive_edits_are_each_saved(driver: Any, sandbox: Any) -> None:
    refs = []
    for number in range(8):
        sandbox.write("file", b"%d" % number)
        refs.append(sandbox.snapshot().ref)
    assert [driver.snapshots.read(ref, "file") for ref in refs] == [b"%d" % n for n in range(8)]


def test_what_cannot_be_put_back_is_named(driver: Any, sandbox: Any, shell: Any) -> None:
    shell("mkdir -p d/e; echo 1 >d/e/file; ln -s /nowhere link; mkfifo pipe; chmod 000 d/e/file")
    refs = [sandbox.snapshot().ref, sandbox.snapshot().ref]
    assert driver.snapshots.problems(refs) == {}
    driver.snapshots.drop(refs[0])
    assert set(driver.snapshots.problems([*refs, "f" * 32, "../x"])) == {refs[0], "f" * 32, "../x"}


def test_a_fork_starts_from_another_workspaces_snapshot(
    driver: Any, make_sandbox: Callable[..., Any], sandbox: Any
) -> None:
    sh(sandbox, "echo shared >file; echo tool >~/tool")
    ref = sandbox.snapshot().ref
    fork = make_sandbox()
    fork.restore(ref)
    assert sh(fork, "cat file ~/tool; echo fork >file").stdout == b"shared\ntool\n"
    assert sandbox.read("file") == b"shared\n"
    fork.destroy()
    assert driver.snapshots.read(ref, "file") == b"shared\n"


def test_a_sandbox_that_sleeps_can_be_saved_and_restored(driver: Any, sandbox: Any, shell: Any) -> None:
    shell("echo 1 >file")
    sandbox.stop()
    ref = sandbox.snapshot().ref
    sandbox.write("file", b"2")
    sandbox.restore(ref)
    assert sandbox.state() == "stopped"
    sandbox.start()
    assert shell("cat file").stdout == b"1\n"


def test_a_ref_that_is_gone_is_missing_and_harms_nothing(driver: Any, sandbox: Any, shell: Any) -> None:
    shell("echo kept >file; sleep 30 &", key="before")
    ref = sandbox.snapshot().ref
    driver.snapshots.drop(ref)
    driver.snapshots.drop(ref)
    for gone in (ref, "0" * 32, "../../etc", ""):
        with pytest.raises(SnapshotMissing):
            sandbox.restore(gone)
        with pytest.raises(SnapshotMissing):
            driver.snapshots.read(gone, "file")
        with pytest.raises(SnapshotMissing):
            driver.snapshots.changes(gone, gone)
    assert sandbox.is_known("before")
    assert sandbox.read("file") == b"kept\n"


def test_dropping_one_keeps_what_others_share(driver: Any, sandbox: Any, shell: Any) -> None:
    shell("mkdir d; echo shared >d/shared; head -c 9000000 /dev/urandom >big; sleep 0.2")
    first = sandbox.snapshot()
    shell("echo two >d/two; cp big big2")
    second = sandbox.snapshot()
    shell("rm -r d big big2")
    third = sandbox.snapshot()
    driver.snapshots.drop(first.ref)
    assert driver.snapshots.read(second.ref, "d/shared") == b"shared\n"
    sandbox.restore(second.ref)
    assert shell("cmp big big2 && cat d/*").stdout == b"shared\ntwo\n"
    driver.snapshots.drop(second.ref)
    sandbox.restore(third.ref)
    assert sandbox.list() == []


def test_changes_are_told_in_path_order_with_sizes(driver: Any, sandbox: Any, shell: Any) -> None:
    shell("mkdir -p d/e gone; echo 1 >d/e/f; echo 1 >a; echo 1 >same; echo 1 >mode; echo x >gone/x; echo 1 >swap")
    before = sandbox.snapshot().ref
    shell(
        "echo 12 >d/e/f; rm a; touch same; chmod 600 mode; rm -r gone; rm swap; mkdir swap;touch swap/in new; ln -s a l"
    )
    after = sandbox.snapshot().ref
    changes = driver.snapshots.changes(before, after)
    assert [(c.path, c.kind, c.before_bytes, c.after_bytes) for c in changes] == [
        ("a", "removed", 2, None),
        ("d/e/f", "changed", 2, 3),
        ("gone/x", "removed", 2, None),
        ("l", "added", None, changes[3].after_bytes),
        ("mode", "changed", 2, 2),
        ("new", "added", None, 0),
        ("swap", "removed", 2, None),
        ("swap/in", "added", None, 0),
    ]
    assert [c.path for c in driver.snapshots.changes(before, after, limit=2)] == ["a", "d/e/f"]
    assert driver.snapshots.changes(after, after) == []


def test_a_saved_state_is_read_without_a_sandbox(driver: Any, sandbox: Any, shell: Any) -> None:
    shell("mkdir -p d/e; echo in >d/e/f; ln -s d/e short; ln -s /etc/passwd out; ln -s ../../../etc up; mkfifo pipe")
    ref = sandbox.snapshot().ref
    sandbox.destroy()
    store = driver.snapshots
    assert store.read(ref, "d/e/f") == store.read(ref, "short/f") == store.read(ref, "/workspace/d/e/f") == b"in\n"
    assert [(e.path, e.kind) for e in store.list(ref, "d")] == [("d/e", "folder")]
    assert [e.path for e in store.list(ref)] == ["d", "out", "pipe", "short", "up"]
    for path in ("out", "up/passwd", "../x", "/etc/passwd"):
        with pytest.raises(PathRefused):
            store.read(ref, path)
    for path in ("d", "pipe", "missing"):
        with pytest.raises(NotAFile):
            store.read(ref, path)
    with pytest.raises(NotAFile):
        store.list(ref, "d/e/f")
    with pytest.raises(FileTooLarge):
        store.read(ref, "d/e/f", limit_bytes=2)


def test_destroy_leaves_nothing_but_the_snapshots(driver: Any, sandbox: Any, shell: Any) -> None:
    shell("echo x >file; setsid sleep 1000 &")
    ref = sandbox.snapshot().ref
    sandbox.destroy()
    assert sandbox.state() == "absent"
    assert not disk_of(driver, sandbox).exists()
    assert driver.snapshots.read(ref, "file") == b"x\n"
    again = driver.open(SandboxSpec(sandbox.spec.key))
    assert again.list() == []
    again.destroy()


def test_the_sandbox_is_saved_as_of_one_moment(driver: Any, sandbox: Any, shell: Any) -> None:
    shell("(i=0; while :; do i=$((i+1)); echo $i >a; echo $i >b; done) & sleep 0.3")
    for _ in range(5):
        ref = sandbox.snapshot().ref
        one, two = (driver.snapshots.read(ref, name) for name in "ab")
        assert not one or not two or 0 <= int(one) - int(two) <= 1


def test_a_snapshot_tells_whether_something_could_change_the_disk_after_it(sandbox: Any, shell: Any) -> None:
    assert sandbox.snapshot().quiet, "nothing has run yet"
    shell("echo done > file")
    eventually(lambda: sandbox.snapshot().quiet, within_s=30)
    shell("(while [ ! -e go ]; do sleep 0.05; done) >/dev/null 2>&1 &")
    assert not sandbox.snapshot().quiet
    sandbox.freeze()
    assert not sandbox.snapshot().quiet, "it goes on when it is thawed"
    sandbox.thaw()
    sandbox.write("go", b"")
    eventually(lambda: sandbox.snapshot().quiet, within_s=30)
    shell("sleep 600 >/dev/null 2>&1 &")
    sandbox.stop()
    assert sandbox.snapshot().quiet, "it has ended with the sandbox"


def test_a_restore_ends_what_runs_before_it_puts_files_back(sandbox: Any, shell: Any) -> None:
    ref = sandbox.snapshot().ref
    shell('(while true; do echo x >> "$PWD/bg"; sleep 0.01; done) >/dev/null 2>&1 &')
    eventually(lambda: sandbox.list(), within_s=30)
    sandbox.restore(ref)
    assert sandbox.snapshot().quiet
    assert sandbox.list() == []
