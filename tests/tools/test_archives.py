"""Archives made to hurt: each is refused with its entry named, and leaves nothing."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import lzma
import shutil
import stat
import struct
import subprocess
import tarfile
import threading
import time
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from workspaces.sandboxes.base import Sandbox, SandboxLimits, SandboxSpec
from workspaces.tools.intake.archives import check, stage, unpack
from workspaces.tools.intake.base import (
    IntakeError,
    IntakeInterrupted,
    IntakeLimits,
    Staging,
    staging,
)

SMALL = IntakeLimits(file_bytes=1_000_000, total_bytes=3_000_000, files=50, ratio=50, ratio_free_bytes=100_000)


def zipped(path: Path, *entries: tuple[str | zipfile.ZipInfo, bytes], packed: bool = True) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED if packed else zipfile.ZIP_STORED) as archive:
        for name, data in entries:
            archive.writestr(name, data)
    return path


def unix(name: str, mode: int) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.create_system = 3
    info.external_attr = mode << 16
    return info


def tarred(
    path: Path, *entries: tuple[str, bytes | dict[str, Any]], mode: str = "w", form: int = tarfile.PAX_FORMAT
) -> Path:
    """Bytes make a file; a dict gives a TarInfo's fields."""
    with tarfile.open(path, mode, format=form, errors="surrogateescape") as archive:  # type: ignore[call-overload]
        for name, given in entries:
            member = tarfile.TarInfo(name)
            data = given if isinstance(given, bytes) else given.get("data", b"")
            for key, value in {} if isinstance(given, bytes) else given.items():  # type: ignore[union-attr]
                if key != "data":
                    setattr(member, key, value)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return path


def staged_paths(archive: Path, limits: IntakeLimits = SMALL) -> tuple[dict[str, bytes], list[str]]:
    with staging(limits) as found:
        stage(archive, archive.name, found)
        return {path: file.host.read_bytes() for path, file in found.files.items()}, [
            f"{one.path}: {one.what}" for one in found.told
        ]


def refusal(archive: Path, limits: IntakeLimits = SMALL) -> str:
    with pytest.raises(IntakeError) as raised:
        staged_paths(archive, limits)
    str(raised.value).encode()
    return str(raised.value)


def make_tree(root: Path) -> Path:
    (root / "src" / "deep").mkdir(parents=True)
    (root / "src" / "a.py").write_text("print('a')\n")
    (root / "src" / "deep" / "größe.txt").write_bytes(b"")
    (root / "run.sh").write_text("#!/bin/sh\n")
    (root / "run.sh").chmod(0o755)
    return root


EXPECTED = {"src/a.py": b"print('a')\n", "src/deep/größe.txt": b"", "run.sh": b"#!/bin/sh\n"}


@pytest.mark.parametrize("form", ["zip", "tar", "gztar", "bztar", "xztar"])
def test_an_honest_archive_comes_in_whole(tmp_path: Path, sandbox: Sandbox, form: str) -> None:
    archive = Path(shutil.make_archive(str(tmp_path / "a"), form, make_tree(tmp_path / "tree")))
    report = unpack(archive, "a.zip", sandbox, into="data")
    assert (report.files, report.bytes) == (3, 21)
    entries = {entry.path: entry for entry in sandbox.list(recursive=True) if entry.kind == "file"}
    assert {path: sandbox.read(path) for path in entries} == {f"data/{path}": raw for path, raw in EXPECTED.items()}
    assert entries["data/run.sh"].mode & 0o111
    assert not entries["data/src/a.py"].mode & 0o111


@pytest.mark.parametrize(
    "program", ["tar czf", "tar cJf", "tar --format=gnu -cf", "tar --format=v7 -cf", "tar --format=ustar -cf"]
)
def test_archives_of_the_real_tar_come_in(tmp_path: Path, program: str) -> None:
    make_tree(tmp_path / "tree")
    subprocess.run([*program.split(), str(tmp_path / "a"), "-C", str(tmp_path / "tree"), "."], check=True)
    assert staged_paths(tmp_path / "a")[0] == EXPECTED


@pytest.mark.parametrize(
    "name", ["../x", "a/../../x", "/etc/x", "//x", "a/..", "..", "a\nb", "a\x1bb", "a" * 300, "a/" * 60 + "x"]
)
def test_a_name_that_leaves_or_lies_is_refused(tmp_path: Path, name: str) -> None:
    for archive in (
        zipped(tmp_path / "a.zip", ("ok", b"1"), (name, b"x")),
        tarred(tmp_path / "a.tar", ("ok", b"1"), (name, b"x")),
    ):
        assert "The entry " in refusal(archive)


@pytest.mark.parametrize("name", ["..\\x", "a\\..\\..\\x", "C:\\x", "c:/x", "\\\\server\\x"])
def test_windows_ways_out_of_a_zip_are_refused(tmp_path: Path, name: str) -> None:
    assert "The entry " in refusal(zipped(tmp_path / "a.zip", (name, b"x")))


def test_backslashes_in_a_zip_are_folders(tmp_path: Path) -> None:
    found, _ = staged_paths(zipped(tmp_path / "a.zip", ("dir\\sub\\a.txt", b"x"), ("dir\\empty\\", b"")))
    assert found == {"dir/sub/a.txt": b"x"}


@pytest.mark.parametrize("target", ["/etc/passwd", "../outside", "a/../../outside", "sub/../../../x"])
def test_a_link_that_leads_out_is_refused(tmp_path: Path, target: str) -> None:
    link = (unix("d/link" if target == "sub/../../../x" else "link", stat.S_IFLNK | 0o777), target.encode())
    assert "link out of the archive" in refusal(zipped(tmp_path / "a.zip", link, ("a", b"1")))
    name = link[0].filename
    entry = (name, {"type": tarfile.SYMTYPE, "linkname": target})
    assert "link out of the archive" in refusal(tarred(tmp_path / "a.tar", entry, ("b", b"1")))


def test_a_hard_link_out_is_refused(tmp_path: Path) -> None:
    for target in ("/etc/passwd", "../x"):
        refusal(tarred(tmp_path / "a.tar", ("l", {"type": tarfile.LNKTYPE, "linkname": target}), ("b", b"1")))
    told = refusal(tarred(tmp_path / "a.tar", ("l", {"type": tarfile.LNKTYPE, "linkname": "later"}), ("later", b"1")))
    assert "does not come before" in told


def test_a_file_written_through_a_link_goes_nowhere_else(tmp_path: Path) -> None:
    """The old trick: a link to a folder outside, then a file below the link's name."""
    archive = tarred(
        tmp_path / "a.tar",
        ("x", {"type": tarfile.SYMTYPE, "linkname": "/tmp"}),
        ("x/owned", b"1"),
    )
    assert "link out of the archive" in refusal(archive)
    inside = tarred(
        tmp_path / "b.tar", ("real/a", b"1"), ("x", {"type": tarfile.SYMTYPE, "linkname": "real"}), ("x/b", b"2")
    )
    found, told = staged_paths(inside)
    assert found == {"real/a": b"1", "x/b": b"2"}  # the link is not made, so there is nothing to go through
    assert told == ["x: left out: a link to a folder"]


def test_links_that_stay_inside_become_copies_and_others_are_told(tmp_path: Path) -> None:
    archive = tarred(
        tmp_path / "a.tar",
        ("src/a", b"data"),
        ("soft", {"type": tarfile.SYMTYPE, "linkname": "src/a"}),
        ("src/up", {"type": tarfile.SYMTYPE, "linkname": "../soft"}),
        ("hard", {"type": tarfile.LNKTYPE, "linkname": "src/a"}),
        ("folder", {"type": tarfile.SYMTYPE, "linkname": "src"}),
        ("dangling", {"type": tarfile.SYMTYPE, "linkname": "nothing"}),
        ("round", {"type": tarfile.SYMTYPE, "linkname": "round"}),
    )
    found, told = staged_paths(archive)
    assert found == dict.fromkeys(["src/a", "soft", "src/up", "hard"], b"data")
    assert [line.split(":")[0] for line in told] == ["folder", "dangling", "round"]


@pytest.mark.parametrize("kind", [tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE])
def test_devices_and_pipes_are_refused(tmp_path: Path, kind: bytes) -> None:
    assert "device or pipe" in refusal(tarred(tmp_path / "a.tar", ("dev", {"type": kind}), ("b", b"1")))
    assert "device or pipe" in refusal(zipped(tmp_path / "a.zip", (unix("dev", stat.S_IFIFO | 0o644), b"")))


class TestBombs:
    def test_one_entry_that_unpacks_without_measure(self, tmp_path: Path) -> None:
        told = refusal(zipped(tmp_path / "a.zip", ("zeros.bin", bytes(900_000))))
        assert "zeros.bin unpacks to more than 50 times" in told

    @pytest.mark.parametrize("suffix", ["gz", "bz2", "xz"])
    def test_a_packed_tar_that_unpacks_without_measure(self, tmp_path: Path, suffix: str) -> None:
        archive = tarred(tmp_path / "a.tar", ("zeros.bin", bytes(900_000)), mode=f"w:{suffix}")
        assert "50 times its size" in refusal(archive)

    def test_a_file_past_the_limit(self, tmp_path: Path) -> None:
        data = bytes(range(256)) * 5000
        for archive in (
            zipped(tmp_path / "a.zip", ("big.bin", data), packed=False),
            tarred(tmp_path / "a.tar", ("big.bin", data)),
        ):
            limits = IntakeLimits(file_bytes=1_000_000, total_bytes=9_000_000)
            assert "more than" in refusal(archive, limits)

    def test_many_files_past_the_total(self, tmp_path: Path) -> None:
        data = b"".join(b"%d " % number for number in range(150_000))[:900_000]
        archive = zipped(tmp_path / "a.zip", *[(f"f{number}", data) for number in range(3)])
        assert "Together" in refusal(archive, IntakeLimits(file_bytes=1_000_000, total_bytes=2_000_000))

    def test_more_files_than_the_limit(self, tmp_path: Path) -> None:
        many: list[tuple[str, bytes]] = [(f"f{number}", b"") for number in range(51)]
        for archive in (zipped(tmp_path / "a.zip", *many), tarred(tmp_path / "a.tar", *many)):
            assert "more than 50 files" in refusal(archive)

    def test_a_directory_of_a_million_names_is_not_read_into_memory(self, tmp_path: Path) -> None:
        many: list[tuple[str, bytes]] = [(f"f{number}", b"") for number in range(2000)]
        archive = zipped(tmp_path / "a.zip", *many, packed=False)
        started = time.monotonic()
        assert "more than 50 files" in refusal(archive)
        assert time.monotonic() - started < 1

    def test_more_folders_than_the_limit(self, tmp_path: Path) -> None:
        many: list[tuple[str, dict[str, Any]]] = [(f"d{number}", {"type": tarfile.DIRTYPE}) for number in range(51)]
        assert "folders" in refusal(tarred(tmp_path / "a.tar", *many, ("f", {})))

    def test_a_header_that_claims_gigabytes_of_name(self, tmp_path: Path) -> None:
        member = tarfile.TarInfo("././@LongLink")
        member.type = tarfile.GNUTYPE_LONGNAME
        member.size = 2_000_000_000
        raw = member.tobuf(tarfile.GNU_FORMAT) + bytes(100_000)
        (tmp_path / "a.tar").write_bytes(raw)
        assert "header is larger" in refusal(tmp_path / "a.tar")

    def test_an_entry_that_lies_about_its_size(self, tmp_path: Path) -> None:
        archive = zipped(tmp_path / "a.zip", ("a.bin", bytes(900_000)))
        raw = bytearray(archive.read_bytes())
        at = raw.find(b"PK\x01\x02")
        raw[at + 24 : at + 28] = struct.pack("<I", 10)  # the directory says 10 bytes
        archive.write_bytes(raw)
        refusal(archive)

    def test_a_zip_whose_entries_share_their_bytes(self, tmp_path: Path) -> None:
        """Many directory entries that point at one body: small to send, large to unpack."""
        archive = zipped(tmp_path / "a.zip", ("aaaa", b"".join(b"%d " % n for n in range(60_000))))
        raw = archive.read_bytes()
        start, end = raw.find(b"PK\x01\x02"), raw.find(b"PK\x05\x06")
        one = raw[start:end]
        directory = b"".join(one.replace(b"aaaa", b"a%03d" % number) for number in range(40))
        tail = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 40, 40, len(directory), start, 0)
        archive.write_bytes(raw[:start] + directory + tail)
        refusal(archive)

    def test_a_sparse_file_of_zeros(self, tmp_path: Path) -> None:
        with (tmp_path / "sparse").open("wb") as file:
            file.truncate(50_000_000)
        subprocess.run(["tar", "-S", "-cf", str(tmp_path / "a.tar"), "-C", str(tmp_path), "sparse"], check=True)
        assert (tmp_path / "a.tar").stat().st_size < 100_000
        assert "sparse has more than" in refusal(tmp_path / "a.tar")

    def test_an_xz_that_wants_all_memory(self, tmp_path: Path) -> None:
        tarred(tmp_path / "plain.tar", ("a", b"1"))
        packer = lzma.LZMACompressor(filters=[{"id": lzma.FILTER_LZMA2, "dict_size": 4096}])
        raw = bytearray(packer.compress((tmp_path / "plain.tar").read_bytes()) + packer.flush())
        # block header: the dictionary's size is one byte of the filter's properties; 36 stands for 1 GiB
        at = raw.index(b"\x21\x01\x00", 12)
        raw[at + 2] = 36
        size = (raw[12] + 1) * 4
        raw[12 + size - 4 : 12 + size] = struct.pack("<I", zlib.crc32(raw[12 : 12 + size - 4]))
        (tmp_path / "a.tar.xz").write_bytes(raw)
        assert "Memory" in refusal(tmp_path / "a.tar.xz")


class TestDamage:
    def test_a_zip_with_a_password(self, tmp_path: Path) -> None:
        archive = zipped(tmp_path / "a.zip", ("secret.txt", b"x"))
        raw = bytearray(archive.read_bytes())
        raw[6] |= 1
        raw[raw.find(b"PK\x01\x02") + 8] |= 1
        archive.write_bytes(raw)
        assert "secret.txt is locked with a password" in refusal(archive)

    @pytest.mark.parametrize("form", ["zip", "tar", "gztar", "bztar", "xztar"])
    @pytest.mark.parametrize("part", [0.2, 0.5, 0.9])
    def test_an_archive_that_was_cut_off(self, tmp_path: Path, form: str, part: float) -> None:
        tree = make_tree(tmp_path / "tree")
        for number in range(5):
            (tree / f"f{number}").write_bytes(bytes((number * 7 + i * i) % 251 for i in range(3000)))
        archive = Path(shutil.make_archive(str(tmp_path / "a"), form, tree))
        raw = archive.read_bytes()
        archive.write_bytes(raw[: int(len(raw) * (part if form != "tar" else part * 0.7))])
        assert "damaged" in refusal(archive)

    @pytest.mark.parametrize("form", ["zip", "gztar", "bztar", "xztar"])
    def test_a_flipped_bit_is_noticed(self, tmp_path: Path, form: str) -> None:
        tree = make_tree(tmp_path / "tree")
        (tree / "noise").write_bytes(bytes((i * i * 31 + i) % 251 for i in range(20_000)))
        archive = Path(shutil.make_archive(str(tmp_path / "a"), form, tree))
        raw = bytearray(archive.read_bytes())
        raw[len(raw) // 3] ^= 0x10
        archive.write_bytes(raw)
        refusal(archive)

    def test_a_broken_header_in_the_middle_is_not_taken_for_the_end(self, tmp_path: Path) -> None:
        archive = tarred(tmp_path / "a.tar", ("a", b"1"), ("b", b"2"), ("c", b"3"), form=tarfile.USTAR_FORMAT)
        raw = bytearray(archive.read_bytes())
        raw[1024 + 10] ^= 0xFF  # in the header of b
        archive.write_bytes(raw)
        assert "damaged" in refusal(archive)

    @pytest.mark.parametrize(
        "raw",
        [b"", b"hello", b"PK\x03\x04", b"\x1f\x8b", b"BZh9", b"\xfd7zXZ\x00", bytes(1024), b"PK\x05\x06" + bytes(18)],
    )
    def test_what_is_no_archive(self, tmp_path: Path, raw: bytes) -> None:
        (tmp_path / "a.zip").write_bytes(raw)
        assert "a.zip" in refusal(tmp_path / "a.zip")

    @settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(
        form=st.sampled_from(["zip", "tar", "gztar", "bztar", "xztar"]),
        changes=st.lists(st.tuples(st.floats(0, 0.999), st.integers(0, 255)), min_size=1, max_size=8),
    )
    def test_whatever_is_broken_it_is_refused_or_read_never_a_crash(
        self, tmp_path: Path, form: str, changes: list[tuple[float, int]]
    ) -> None:
        whole = tmp_path / f"whole-{form}"
        if not whole.exists():
            tree = tmp_path / "tree"
            if not tree.exists():
                make_tree(tree)
            shutil.copy(shutil.make_archive(str(tmp_path / "made"), form, tree), whole)
        raw = bytearray(whole.read_bytes())
        for place, value in changes:
            raw[int(place * len(raw))] = value
        (tmp_path / "broken").write_bytes(raw)
        with contextlib.suppress(IntakeError):
            staged_paths(tmp_path / "broken")

    @pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
    def test_a_packed_file_that_is_no_tar(self, tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
        (tmp_path / "a.gz").write_bytes(pack(b"only text " * 200))
        assert "damaged" in refusal(tmp_path / "a.gz")


class TestNames:
    def test_a_name_that_is_file_and_folder(self, tmp_path: Path) -> None:
        for archive in (
            zipped(tmp_path / "a.zip", ("x", b"1"), ("x/y", b"2")),
            zipped(tmp_path / "b.zip", ("x/y", b"2"), ("x", b"1")),
            tarred(tmp_path / "a.tar", ("x", b"1"), ("x/y", b"2")),
            tarred(tmp_path / "b.tar", ("x", b"1"), ("x", {"type": tarfile.DIRTYPE})),
        ):
            assert "x" in (told := refusal(archive))
            assert "as a file and as a folder" in told

    @pytest.mark.filterwarnings("ignore:Duplicate name")
    def test_a_zip_with_one_name_twice_is_refused_and_a_tar_means_the_last(self, tmp_path: Path) -> None:
        assert "there twice" in refusal(zipped(tmp_path / "a.zip", ("x", b"1"), ("x", b"2")))
        assert staged_paths(tarred(tmp_path / "a.tar", ("x", b"1"), ("./x", b"2")))[0] == {"x": b"2"}

    def test_names_that_are_not_utf8_are_kept_readable(self, tmp_path: Path) -> None:
        archive = tarred(tmp_path / "a.tar", ("gr\udcf6\udcdfe", b"1"), form=tarfile.GNU_FORMAT)
        found, told = staged_paths(archive)
        assert found == {"gr%F6%DFe": b"1"}
        assert "not UTF-8" in told[0]

    def test_a_zip_that_does_not_say_utf8_but_is(self, tmp_path: Path) -> None:
        archive = zipped(tmp_path / "a.zip", ("gr__e", b"1"))
        archive.write_bytes(archive.read_bytes().replace(b"gr__e", "grße".encode()))
        assert staged_paths(archive)[0] == {"grße": b"1"}


class TestDelivery:
    def test_a_refused_archive_leaves_the_workspace_as_it_was(self, tmp_path: Path, sandbox: Sandbox) -> None:
        sandbox.write("mine.txt", b"old")
        archive = zipped(tmp_path / "a.zip", ("mine.txt", b"new"), ("z/../../x", b"x"))
        with pytest.raises(IntakeError):
            unpack(archive, "a.zip", sandbox)
        assert [entry.path for entry in sandbox.list()] == ["mine.txt"]
        assert sandbox.read("mine.txt") == b"old"

    def test_a_conflict_with_the_workspace_is_seen_before_the_first_write(
        self, tmp_path: Path, sandbox: Sandbox
    ) -> None:
        sandbox.write("src/inner/x", b"a folder is here")
        sandbox.write("lib", b"a file is here")
        for name in ("src/inner", "lib/b.py"):
            with pytest.raises(IntakeError, match="in the workspace"):
                unpack(zipped(tmp_path / "a.zip", ("a-first", b"1"), (name, b"2")), "a.zip", sandbox)
            assert "a-first" not in {entry.path for entry in sandbox.list()}

    def test_nothing_is_written_through_a_link_in_the_workspace(self, tmp_path: Path, sandbox: Sandbox) -> None:
        assert sandbox.exec(["sh", "-c", "mkdir real; ln -s real link; ln -s /tmp out"], key="links").exit_code == 0
        for name in ("link/x", "out/x", "link"):
            with pytest.raises(IntakeError, match="in the workspace"):
                unpack(zipped(tmp_path / "a.zip", (name, b"2")), "a.zip", sandbox)

    def test_a_replaced_file_is_told(self, tmp_path: Path, sandbox: Sandbox) -> None:
        sandbox.write("d/a.txt", b"old")
        report = unpack(zipped(tmp_path / "a.zip", ("d/a.txt", b"new"), ("d/b.txt", b"2")), "a.zip", sandbox)
        assert [(one.path, one.what) for one in report.told] == [("d/a.txt", "written over the file that was there")]
        assert sandbox.read("d/a.txt") == b"new"

    def test_a_disk_without_room_is_seen_before_the_first_write(self, tmp_path: Path, driver: Any) -> None:
        sandbox = driver.open(SandboxSpec("tools-small-disk", limits=SandboxLimits(disk_bytes=64 * 1024 * 1024)))
        try:
            data = bytes(range(256)) * 4096 * 40
            archive = zipped(tmp_path / "a.zip", ("a", data), ("b", data), packed=False)
            with pytest.raises(IntakeError, match="left on its disk"):
                unpack(archive, "a.zip", sandbox)
            assert sandbox.list() == []
        finally:
            sandbox.destroy()

    def test_an_interrupt_ends_it_with_nothing_written(self, tmp_path: Path, sandbox: Sandbox) -> None:
        interrupt = threading.Event()
        interrupt.set()
        with pytest.raises(IntakeInterrupted):
            unpack(zipped(tmp_path / "a.zip", ("a", b"1")), "a.zip", sandbox, interrupt=interrupt)
        assert sandbox.list() == []

    def test_a_path_to_deliver_to_cannot_leave(self, tmp_path: Path, sandbox: Sandbox) -> None:
        for into in ("../x", "/etc"):
            with pytest.raises(IntakeError):
                unpack(zipped(tmp_path / "a.zip", ("a", b"1")), "a.zip", sandbox, into=into)

    def test_staging_is_gone_afterwards(self, tmp_path: Path) -> None:
        within = tmp_path / "staging"
        within.mkdir()
        with staging(SMALL, within=within) as found:
            assert isinstance(found, Staging)
            stage(zipped(tmp_path / "a.zip", ("a", b"1")), "a.zip", found)
            assert list(within.iterdir())
        assert list(within.iterdir()) == []

    def test_an_archive_is_judged_without_a_sandbox(self, tmp_path: Path) -> None:
        check(zipped(tmp_path / "a.zip", ("a", b"1")), "a.zip")
        with pytest.raises(IntakeError):
            check(zipped(tmp_path / "b.zip", ("../a", b"1")), "b.zip")

    def test_a_large_archive_is_refused_by_its_size_alone(self, tmp_path: Path) -> None:
        with (tmp_path / "a.zip").open("wb") as file:
            file.truncate(200 * 1024 * 1024)
        assert "200 MB, more than 100 MB" in refusal(tmp_path / "a.zip", IntakeLimits())
