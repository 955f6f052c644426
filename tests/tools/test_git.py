"""Git addresses are judged before anything is fetched, and a clone brings files only."""

from __future__ import annotations

import ipaddress
import os
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tools.git_server import bare, git, serving
from workspaces.sandboxes.base import Sandbox
from workspaces.tools.intake.base import IntakeError, IntakeInterrupted, IntakeLimits
from workspaces.tools.intake.git import check_url, clone, is_public, resolve


@pytest.mark.parametrize(
    ("url", "word"),
    [
        ("", "not a git address"),
        ("--upload-pack=touch owned", "not a git address"),
        ("--upload-pack=/tmp/x", "dash"),
        ("-u/tmp/x", "dash"),
        ("file:///etc", "file:// addresses are not cloned"),
        ("/etc/passwd", "file://"),
        ("../repo", "file://"),
        ("ext::sh -c touch% owned", "not a git address"),
        ("ext::sh", "ext:// addresses are not cloned"),
        ("fd::17", "fd://"),
        ("ssh://git@example.org/a/b", "ssh:// addresses are not cloned"),
        ("git@example.org:a/b.git", "ssh://"),
        ("example.org:a/b.git", "ssh://"),
        ("git://example.org/a/b", "git://"),
        ("ftp://example.org/a/b", "ftp://"),
        ("http://example.org/a/b", "http://"),
        ("HTTPS+unix://x/y", "https+unix://"),
        ("https://", "host name"),
        ("https:///a/b", "host name"),
        ("https://example.org", "names no repository"),
        ("https://example.org/", "names no repository"),
        ("https://example.org/a/../b", "names no repository"),
        ("https://example.org/a b", "not a git address"),
        ("https://example.org/a\nb", "not a git address"),
        ("https://example.org/a\x00b", "not a git address"),
        ("https://example.org/\ud83d", "not a git address"),
        ("https://example.org\\@evil.org/a", "not a git address"),
        ("https://exämple.org/a/b", "host name"),
        ("https://-oProxyCommand=x/a/b", "host name"),
        ("https://example.org:99999/a/b", "port"),
        ("https://example.org:x/a/b", "port"),
        ("https://[::1/a/b", "not an address"),
        ("https://example.org/a?b=c", "? or #"),
        ("https://example.org/a#b", "? or #"),
        ("https://user:s3cret@example.org/a/b", "user name or password"),
        ("https://s3cret@example.org/a/b", "user name or password"),
        ("https://example.org/" + "a" * 3000, "not a git address"),
    ],
)
def test_an_address_that_is_none_is_refused_with_advice(url: str, word: str) -> None:
    with pytest.raises(IntakeError) as raised:
        check_url(url)
    assert word in str(raised.value)
    assert "s3cret" not in str(raised.value)
    str(raised.value).encode()


@pytest.mark.parametrize(
    ("url", "host", "port", "name"),
    [
        ("https://github.com/django/django.git", "github.com", 443, "django"),
        ("  https://gitlab.com/a/b/c/  ", "gitlab.com", 443, "c"),
        ("HTTPS://Example.org:8443/~me/x.y_z", "example.org", 8443, "x.y_z"),
        ("https://[2001:db8::1]/a/b", "2001:db8::1", 443, "b"),
    ],
)
def test_a_real_address_is_taken_apart(url: str, host: str, port: int, name: str) -> None:
    source = check_url(url)
    assert (source.host, source.port, source.name) == (host, port, name)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0",
        "224.0.0.1", "255.255.255.255", "::1", "::", "fe80::1", "fc00::1", "fec0::1", "ff02::1",
        "::ffff:127.0.0.1", "::ffff:169.254.169.254", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "2002:7f00:1::",
        "2001:0:4136:e378:8000:63bf:3fff:fdd2",
    ],
)  # fmt: skip
def test_an_address_inside_is_not_public(address: str) -> None:
    assert not is_public(ipaddress.ip_address(address))
    host = f"[{address}]" if ":" in address else address
    with pytest.raises(IntakeError, match="private network"):
        resolve(check_url(f"https://{host}/a/b"))


@pytest.mark.parametrize(
    "address", ["140.82.121.4", "2606:50c0:8000::153", "::ffff:140.82.121.4", "64:ff9b::8c52:7904"]
)
def test_an_address_outside_is_public(address: str) -> None:
    assert is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize("host", ["localhost", "2130706433", "127.1", "0x7f.1", "0177.0.0.1"])
def test_other_spellings_of_loopback_are_seen_through(host: str) -> None:
    with pytest.raises(IntakeError, match="private network"):
        resolve(check_url(f"https://{host}/a/b"))


def test_one_private_address_among_public_ones_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    def answers(host: str, port: int, **_: object) -> list[tuple[int, int, int, str, tuple[str, int]]]:
        return [(2, 1, 6, "", (address, port)) for address in ("140.82.121.4", "10.0.0.8")]

    monkeypatch.setattr(socket, "getaddrinfo", answers)
    with pytest.raises(IntakeError, match="private network"):
        resolve(check_url("https://example.org/a/b"))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, list[str]]]:
    root = tmp_path_factory.mktemp("served")
    work = root / "work"
    work.mkdir()
    git(work, "init", "--quiet")
    (work / "src").mkdir()
    (work / "src" / "größe.py").write_text("print(1)\n")
    (work / "run.sh").write_text("#!/bin/sh\necho ran\n")
    (work / "run.sh").chmod(0o755)
    (work / "passwd").symlink_to("/etc/passwd")
    (work / ".gitattributes").write_text("*.py filter=evil\n")
    (work / ".gitmodules").write_text('[submodule "sub"]\n\tpath = sub\n\turl = file:///etc\n')
    git(work, "add", "-A")
    git(work, "update-index", "--add", "--cacheinfo", "160000", "1" * 40, "sub")
    git(work, "commit", "--quiet", "-m", "one")
    (work / "two.txt").write_text("2\n")
    git(work, "add", "two.txt")
    git(work, "commit", "--quiet", "-m", "two")
    git(work, "branch", "old", "HEAD~1")
    bare(work, root / "project.git")
    big = root / "big"
    big.mkdir()
    git(big, "init", "--quiet")
    (big / "blob.bin").write_bytes(os.urandom(3_000_000))
    for number in range(40):
        (big / f"{number}.txt").write_text(str(number))
    git(big, "add", "-A")
    git(big, "commit", "--quiet", "-m", "big")
    bare(big, root / "big.git")
    with serving(root) as server:
        yield server


def paths(sandbox: Sandbox) -> set[str]:
    found = sandbox.list(recursive=True, limit=10_000)
    return {entry.path for entry in found if entry.kind != "folder" and not entry.path.startswith(".git/")}


def test_a_clone_brings_the_files_and_the_history_that_was_asked_for(
    served: tuple[str, list[str]], sandbox: Sandbox
) -> None:
    url = f"{served[0]}/project.git"
    report = clone(url, sandbox, allow_http=True, allow_private=True)
    assert report.source == url
    assert paths(sandbox) == {"src/größe.py", "run.sh", "passwd", ".gitattributes", ".gitmodules", "two.txt"}
    assert sandbox.read("src/größe.py") == b"print(1)\n"
    assert next(entry for entry in sandbox.list() if entry.path == "run.sh").mode & 0o111
    told = {one.path: one.what for one in report.told}
    assert "a link" in told["passwd"]
    assert "submodule" in told["sub"]
    assert sandbox.read("passwd") == b"/etc/passwd"  # a file that holds the target, not the link
    assert not [entry for entry in sandbox.list(".git") if entry.path == ".git/hooks"]
    config = sandbox.read(".git/config").decode()
    assert "@" not in config


def test_git_works_on_the_clone_inside_the_sandbox(served: tuple[str, list[str]], sandbox: Sandbox) -> None:
    clone(f"{served[0]}/project.git", sandbox, into="repo", depth=0, allow_http=True, allow_private=True)
    done = sandbox.exec(["sh", "-c", "cd repo && git log --format=%s && git status --porcelain"], key="log")
    if done.exit_code == 127:
        pytest.fail("there is no git in this sandbox")
    assert done.exit_code == 0, done.stderr
    assert done.stdout.decode() == "two\none\n"


def test_a_branch_can_be_asked_for(served: tuple[str, list[str]], sandbox: Sandbox) -> None:
    clone(f"{served[0]}/project.git", sandbox, ref="old", allow_http=True, allow_private=True)
    assert "two.txt" not in paths(sandbox)


def test_a_server_of_plain_files_is_cloned_with_its_whole_history(
    served: tuple[str, list[str]], tmp_path: Path, sandbox: Sandbox
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    git(work, "init", "--quiet")
    (work / "a.txt").write_text("a")
    git(work, "add", "-A")
    git(work, "commit", "--quiet", "-m", "a")
    bare(work, tmp_path / "plain.git")
    with serving(tmp_path, dumb=True) as (address, _):
        clone(f"{address}/plain.git", sandbox, allow_http=True, allow_private=True)
    assert paths(sandbox) == {"a.txt"}


@pytest.mark.parametrize(
    ("path", "more", "word"),
    [
        ("/none.git", {}, "not found"),
        ("/private/x.git", {}, "only public repositories"),
        ("/project.git", {"ref": "nobranch"}, "name of the branch"),
        ("/project.git", {"ref": "--upload-pack=x"}, "not the name of a branch"),
        ("/slow/x.git", {"limits": IntakeLimits(git_timeout_s=1)}, "more than 1 s"),
        ("/big.git", {"limits": IntakeLimits(total_bytes=2_000_000)}, "too large"),
        ("/big.git", {"limits": IntakeLimits(total_bytes=4_000_000)}, "more than 3.8 MB"),
        ("/big.git", {"limits": IntakeLimits(file_bytes=1_000_000)}, "blob.bin has more than"),
        ("/big.git", {"limits": IntakeLimits(files=10)}, "more than 10 files"),
    ],
)
def test_a_clone_that_fails_says_why_and_leaves_nothing(
    served: tuple[str, list[str]], sandbox: Sandbox, path: str, more: dict[str, object], word: str
) -> None:
    started = time.monotonic()
    with pytest.raises(IntakeError) as raised:
        clone(f"{served[0]}{path}", sandbox, allow_http=True, allow_private=True, **more)  # type: ignore[arg-type]
    assert word in str(raised.value)
    assert paths(sandbox) == set()
    assert time.monotonic() - started < 15


def test_a_private_host_is_refused_before_it_is_asked_anything(served: tuple[str, list[str]], sandbox: Sandbox) -> None:
    before = len(served[1])
    with pytest.raises(IntakeError, match="private network"):
        clone(f"{served[0]}/project.git", sandbox, allow_http=True)
    assert len(served[1]) == before


def test_a_name_that_turns_private_after_it_was_judged_leads_nowhere(
    served: tuple[str, list[str]], sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`localhost` is judged as a public address: git must go to that one, not to what the name means to it."""

    def answers(host: str, port: int, **_: object) -> list[tuple[int, int, int, str, tuple[str, int]]]:
        return [(2, 1, 6, "", ("198.51.100.7", port))]

    monkeypatch.setattr(socket, "getaddrinfo", answers)
    monkeypatch.setattr("workspaces.tools.intake.git.is_public", lambda _: True)
    before = len(served[1])
    url = f"{served[0].replace('127.0.0.1', 'localhost')}/project.git"
    with pytest.raises(IntakeError):
        clone(url, sandbox, allow_http=True, limits=IntakeLimits(git_timeout_s=3))
    assert len(served[1]) == before


def test_a_redirect_is_not_followed_but_told(
    served: tuple[str, list[str]], sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workspaces.tools.intake.git.is_public", lambda _: True)
    before = len(served[1])
    with pytest.raises(IntakeError, match="give the address that it leads to"):
        clone(f"{served[0]}/moved.git", sandbox, allow_http=True)
    assert not [path for path in served[1][before:] if path.startswith("/project")]


def test_an_interrupt_ends_the_clone_and_its_processes(served: tuple[str, list[str]], sandbox: Sandbox) -> None:
    interrupt = threading.Event()
    threading.Timer(0.5, interrupt.set).start()
    started = time.monotonic()
    with pytest.raises(IntakeInterrupted):
        clone(f"{served[0]}/slow/x.git", sandbox, allow_http=True, allow_private=True, interrupt=interrupt)
    assert time.monotonic() - started < 3
    running = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert f"{served[0]}/slow/x.git" not in running


def test_nothing_of_the_workers_own_settings_reaches_git(
    served: tuple[str, list[str]], sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    hooks = tmp_path / "hooks"
    home.mkdir()
    hooks.mkdir()
    (hooks / "post-checkout").write_text(f"#!/bin/sh\ntouch {tmp_path}/owned\n")
    (hooks / "post-checkout").chmod(0o755)
    (home / ".gitconfig").write_text(
        f'[core]\n\thooksPath = {hooks}\n[filter "evil"]\n\tsmudge = touch {tmp_path}/owned; cat\n'
        f"[credential]\n\thelper = !touch {tmp_path}/owned\n"
    )
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "core.hooksPath")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", str(hooks))
    clone(f"{served[0]}/project.git", sandbox, allow_http=True, allow_private=True)
    assert not (tmp_path / "owned").exists()


def test_a_tree_that_names_millions_of_files_ends_at_its_limits(tmp_path: Path, sandbox: Sandbox) -> None:
    """Ten folders in ten folders, six deep: a repository of some kilobytes with a million files."""
    work = tmp_path / "work"
    work.mkdir()
    git(work, "init", "--quiet")
    (work / "blob").write_text("x")
    blob = git(work, "hash-object", "-w", "blob")
    entries = "".join(f"100644 blob {blob}\tf{number}\n" for number in range(10))
    for _ in range(6):
        made = subprocess.run(
            ["git", "-C", str(work), "mktree"], input=entries, capture_output=True, check=True, text=True
        ).stdout.strip()
        entries = "".join(f"040000 tree {made}\td{number}\n" for number in range(10))
    commit = git(work, "commit-tree", "-m", "bomb", made)
    git(work, "update-ref", "refs/heads/main", commit)
    bare(work, tmp_path / "bomb.git")
    started = time.monotonic()
    with serving(tmp_path) as (address, _), pytest.raises(IntakeError):
        clone(f"{address}/bomb.git", sandbox, allow_http=True, allow_private=True, limits=IntakeLimits(files=500))
    assert time.monotonic() - started < 30
    assert paths(sandbox) == set()
