"""Uploaded files: safe names, sizes counted while they are read."""

from __future__ import annotations

import io
import tracemalloc
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workspaces.sandboxes.base import Sandbox
from workspaces.tools.intake.base import MB, IntakeError, IntakeLimits
from workspaces.tools.intake.uploads import MAX_NAME_BYTES, check_size, place, safe_name


class Endless:
    """An upload that says nothing of its size: `total` bytes of nothing."""

    def __init__(self, total: int) -> None:
        self.left = total

    def read(self, size: int = -1, /) -> bytes:
        taken = min(size, self.left)
        self.left -= taken
        return bytes(taken)


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("report.pdf", "report.pdf"),
        ("Größe 1.txt", "Größe 1.txt"),
        ("../../etc/passwd", "passwd"),
        ("C:\\Users\\me\\a.txt", "a.txt"),
        ("/", "file"),
        ("", "file"),
        ("..", "file"),
        (" . ", "file"),
        ("-rf", "_-rf"),
        (".git", "_.git"),
        (".GIT", "_.GIT"),
        (".env", ".env"),
        ("a\x00b\nc.txt", "a\N{REPLACEMENT CHARACTER}bc.txt"),
        ("invoice\u202efdp.exe", "invoicefdp.exe"),
        ("e\u0301.txt", "é.txt"),
        ("a.tar.gz", "a.tar.gz"),
        ("x" * 500 + ".txt", "x" * (MAX_NAME_BYTES - 4) + ".txt"),
    ],
)
def test_names_are_made_safe(name: str, safe: str) -> None:
    assert safe_name(name) == safe


@given(st.text(st.characters()), st.sets(st.text(max_size=3)))
def test_a_safe_name_is_one_name_whatever_was_given(name: str, taken: set[str]) -> None:
    found = safe_name(name, taken)
    assert found not in taken
    assert found not in ("", ".", "..")
    assert "/" not in found
    assert "\x00" not in found
    assert not found.startswith("-")
    assert len(found.encode()) <= 255


def test_files_come_in_and_double_names_are_told_apart(sandbox: Sandbox) -> None:
    files = [("a.txt", io.BytesIO(b"1")), ("x/a.txt", io.BytesIO(b"2")), ("b", io.BytesIO(b"\x00\xff"))]
    report = place(files, sandbox, into="in")
    assert report.source == "a.txt and 2 more"
    assert {entry.path: sandbox.read(entry.path) for entry in sandbox.list("in")} == {
        "in/a.txt": b"1",
        "in/a (2).txt": b"2",
        "in/b": b"\x00\xff",
    }
    assert [(one.path, one.what) for one in report.told] == [("a (2).txt", "renamed: it was called x/a.txt")]


def test_a_file_of_200_mb_is_refused_while_it_is_read(sandbox: Sandbox) -> None:
    upload = Endless(200 * MB)
    tracemalloc.start()
    try:
        with pytest.raises(IntakeError, match=r"big\.bin has more than 100 MB"):
            place([("first.txt", io.BytesIO(b"1")), ("big.bin", upload)], sandbox)
        assert tracemalloc.get_traced_memory()[1] < 20 * MB
    finally:
        tracemalloc.stop()
    assert upload.left >= 90 * MB
    assert sandbox.list() == []


def test_a_size_that_is_known_is_refused_before_it_is_read() -> None:
    check_size("a.bin", 100 * MB)
    with pytest.raises(IntakeError, match="200 MB, more than 100 MB"):
        check_size("a.bin", 200 * MB)


def test_the_files_together_have_a_limit(sandbox: Sandbox) -> None:
    def files() -> Iterator[tuple[str, Endless]]:
        for number in range(4):
            yield f"f{number}", Endless(900_000)

    with pytest.raises(IntakeError, match="Together"):
        place(files(), sandbox, limits=IntakeLimits(file_bytes=MB, total_bytes=3 * MB))
    assert sandbox.list() == []


def test_no_file_is_no_attachment(sandbox: Sandbox) -> None:
    with pytest.raises(IntakeError, match="No file"):
        place([], sandbox)
