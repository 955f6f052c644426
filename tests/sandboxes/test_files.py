"""Files: what is read and written from outside never leaves the workspace, whatever the sandbox does meanwhile."""

from __future__ import annotations

import ctypes
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from workspaces.sandboxes.base import FileTooLarge, NotAFile, PathRefused
from workspaces.sandboxes.confined import Confined

_HERE, _EXCHANGE = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
OUTSIDE = ["../secret", "a/../../secret", "/etc/passwd", "/workspace/../etc/passwd", "/workspaces/x", "/"]


def test_what_is_written_is_seen_inside_and_the_other_way_round(sandbox: Any, shell: Any) -> None:
    sandbox.write("deep/er/tool", b"#!/bin/sh\necho ran\n", executable=True)
    assert shell("./deep/er/tool && echo more >>deep/er/tool && touch deep/er/mine").stdout == b"ran\n"
    assert sandbox.read("deep/er/tool").endswith(b"more\n")
    assert sandbox.read("/workspace/deep/./er/../er/tool") == sandbox.read("deep/er/tool")


def test_writing_keeps_the_mode_and_replaces_whole(sandbox: Any, shell: Any) -> None:
    shell("echo old >script; chmod 750 script; ln script other")
    sandbox.write("script", b"new")
    assert sandbox.list()[1].mode == 0o750
    assert sandbox.read("other") == b"old\n"
    assert [entry.path for entry in sandbox.list()] == ["other", "script"]


@pytest.mark.parametrize("path", OUTSIDE)
def test_paths_out_of_the_workspace_are_refused(sandbox: Any, path: str) -> None:
    with pytest.raises(PathRefused):
        sandbox.read(path)
    with pytest.raises(PathRefused):
        sandbox.write(path, b"x")
    with pytest.raises(PathRefused):
        sandbox.list(path)


@pytest.mark.parametrize("path", ["nul\x00byte", "half \ud83d pair", "x" * 300])
def test_names_that_cannot_be_are_refused(sandbox: Any, path: str) -> None:
    with pytest.raises(PathRefused):
        sandbox.write(path, b"x")


@pytest.mark.parametrize("target", ["/etc", "/", "..", "../../../../../../etc", "/workspace/../etc"])
def test_links_out_are_refused(sandbox: Any, shell: Any, target: str) -> None:
    shell(f"ln -s {target} out; ln -s {target}/passwd file; ln -s out chain")
    for path in ("out/passwd", "file", "chain/passwd"):
        with pytest.raises(PathRefused):
            sandbox.read(path)
        with pytest.raises(PathRefused):
            sandbox.write(path, b"x")
    with pytest.raises(PathRefused):
        sandbox.list("out")
    with pytest.raises(PathRefused):
        sandbox.write("out/new/file", b"x")
    assert {entry.kind for entry in sandbox.list(recursive=True)} == {"link"}


def test_links_inside_are_followed_as_the_sandbox_means_them(sandbox: Any, shell: Any) -> None:
    shell("mkdir -p a/b; echo in >a/b/file; ln -s ../a/b a/rel; ln -s /workspace/a/b abs; ln -s b/file a/f")
    assert sandbox.read("a/rel/file") == sandbox.read("abs/file") == sandbox.read("a/f") == b"in\n"
    sandbox.write("abs/new", b"x")
    assert sandbox.read("a/b/new") == b"x"
    assert [entry.path for entry in sandbox.list("abs")] == ["a/b/file", "a/b/new"]


def test_a_circle_of_links_ends(sandbox: Any, shell: Any) -> None:
    shell("ln -s two one; ln -s one two")
    with pytest.raises(PathRefused):
        sandbox.read("one")


def test_only_regular_files_are_read_and_replaced(sandbox: Any, shell: Any) -> None:
    shell("mkdir folder; mkfifo pipe; touch closed; python3 -c \"import socket;socket.socket(1).bind('sock')\"")
    for path in ("folder", "pipe", "sock", "missing", "closed/below", ""):
        with pytest.raises(NotAFile):
            sandbox.read(path)
    for path in ("folder", "pipe", "closed/below", "sock", ""):
        with pytest.raises(NotAFile):
            sandbox.write(path, b"x")
    with pytest.raises(NotAFile):
        sandbox.list("closed")
    with pytest.raises(NotAFile):
        sandbox.list("missing")


def test_a_file_over_the_limit_is_not_read(sandbox: Any, shell: Any) -> None:
    shell("truncate -s 100G huge; head -c 11 /dev/zero >small")
    with pytest.raises(FileTooLarge):
        sandbox.read("huge")
    with pytest.raises(FileTooLarge):
        sandbox.read("small", limit_bytes=10)
    assert sandbox.read("small", limit_bytes=11) == bytes(11)


def test_names_that_are_not_utf8_can_be_listed_and_read(sandbox: Any, shell: Any) -> None:
    shell("printf raw >\"$(printf 'bad\\377name')\"")
    (entry,) = sandbox.list()
    assert entry.path == "bad\udcffname"
    assert sandbox.read(entry.path) == b"raw"
    sandbox.write(entry.path, b"new")
    assert sandbox.read(entry.path) == b"new"


def test_a_listing_is_in_order_and_limited(sandbox: Any, shell: Any) -> None:
    shell("mkdir b b/x; touch c a b/x/deep b/y")
    assert [e.path for e in sandbox.list()] == ["a", "b", "c"]
    assert [e.path for e in sandbox.list(recursive=True)] == ["a", "b", "b/x", "b/x/deep", "b/y", "c"]
    assert [e.path for e in sandbox.list(recursive=True, limit=3)] == ["a", "b", "b/x"]


def test_swapping_a_folder_for_a_link_leads_nowhere_else(tmp_path: Path) -> None:
    outside, inside = tmp_path / "outside", tmp_path / "inside"
    for folder, text in ((outside, "secret"), (inside, "fine"), (inside / "real", "fine")):
        folder.mkdir()
        (folder / "file").write_text(text)
    (inside / "link").symlink_to(outside)
    stop = threading.Event()

    libc = ctypes.CDLL(None, use_errno=True)
    real, link = os.fsencode(inside / "real"), os.fsencode(inside / "link")

    def swap() -> None:
        while not stop.is_set():
            libc.renameat2(_HERE, real, _HERE, link, _EXCHANGE)

    thread = threading.Thread(target=swap)
    thread.start()
    confined = Confined(inside)
    outcomes = set()
    try:
        for number in range(3000):
            try:
                outcomes.add(confined.read("real/file", limit_bytes=100))
                confined.write(f"real/new{number % 7}", b"x")
            except (PathRefused, NotAFile) as error:
                outcomes.add(type(error).__name__)
    finally:
        stop.set()
        thread.join()
    assert b"fine" in outcomes
    assert "PathRefused" in outcomes, "the race was never lost: nothing was tested"
    assert b"secret" not in outcomes
    assert os.listdir(outside) == ["file"]
