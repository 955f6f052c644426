"""Git: clones a public https address on the host and hands the files over. Runs nothing of the repository's.

Only https (http where a flag allows it); no user names, no passwords, no other transport, no submodules, no hooks,
no filters, no redirects to other places. The host's address is looked up once, judged, and pinned for git, so
that a name cannot mean another machine a moment later. Where the environment names a proxy, the proxy connects
and it is the proxy that must refuse what is private.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import re
import signal
import socket
import stat
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from workspaces.domain.text import clean_text, clip
from workspaces.sandboxes.base import Sandbox
from workspaces.tools.intake.base import (
    IntakeError,
    IntakeLimits,
    IntakeReport,
    Staging,
    check_interrupt,
    entry_path,
    plain_name,
    shown,
    size_words,
    staging,
)

MAX_URL_CHARS = 2_000
MAX_SUBMODULES = 200
POLL_S = 0.1
MEASURE_S = 0.5
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?\.?")
_REF = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./+-]{0,199}")
_PATH = re.compile(r"/[A-Za-z0-9._~!$&'()*+,;=:@%/-]+")
_PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
_CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "GIT_SSL_CAINFO", "GIT_SSL_CAPATH")
_NAT64 = ipaddress.ip_network("64:ff9b::/96")

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True, slots=True)
class Source:
    """An address that was judged. `url` is fit to be shown: it holds no password."""

    url: str
    scheme: str
    host: str
    port: int

    @property
    def name(self) -> str:
        """The repository's own name, from the end of its path."""
        last = urlsplit(self.url).path.rstrip("/").rpartition("/")[2].removesuffix(".git")
        return re.sub(r"[^A-Za-z0-9._-]+", "-", last).strip(".-") or "repository"


def check_url(url: str, *, allow_http: bool = False) -> Source:
    """What can be said without the network. Raises IntakeError, which never repeats a password."""
    url = url.strip()
    if not url or len(url) > MAX_URL_CHARS or clean_text(url) != url or re.search(r"[\x00-\x20\x7f\\]", url):
        raise IntakeError("That is not a git address: give one like https://example.org/team/project.git.")
    if url.startswith("-"):
        raise IntakeError("A git address does not begin with a dash: give one that begins with https://.")
    scheme, split = _split(url)
    if scheme not in ("https", "http") or (scheme == "http" and not allow_http):
        named = f"{scheme}://" if re.fullmatch(r"[a-z0-9+.-]{1,20}", scheme) else "This kind"
        raise IntakeError(f"{named} addresses are not cloned here: give the https:// address of the repository.")
    if "@" in split.netloc:
        raise IntakeError(
            "The address holds a user name or password. They would be stored with the task: give the address "
            "without them. Only public repositories can be cloned here."
        )
    if split.query or split.fragment or "?" in url or "#" in url:
        raise IntakeError("The address has a part after ? or #: give it without.")
    try:
        host, port = split.hostname or "", split.port or (443 if scheme == "https" else 80)
    except ValueError:
        raise IntakeError("The address has a port that is none: give a number up to 65535.") from None
    if not (_HOST.fullmatch(host) or (":" in host and _literal(host))) or port == 0:
        raise IntakeError(f"{shown(host) or 'It'} is not a host name: give one like https://example.org/project.git.")
    if not _PATH.fullmatch(split.path) or "/../" in f"{split.path}/" or not split.path.strip("/"):
        raise IntakeError("The address names no repository: give one like https://example.org/team/project.git.")
    return Source(f"{scheme}://{split.netloc}{split.path}", scheme, host, port)


def clone(
    url: str,
    sandbox: Sandbox,
    *,
    into: str = "",
    ref: str = "",
    depth: int = 1,
    limits: IntakeLimits | None = None,
    allow_http: bool = False,
    allow_private: bool = False,
    within: Path | None = None,
    interrupt: threading.Event | None = None,
) -> IntakeReport:
    """The repository with its `.git` into the folder `into`. `ref`: a branch or tag. `depth` 0: all history.

    `allow_private`: also from loopback and private networks (an installation's own git server, tests).
    Raises IntakeError, IntakeInterrupted, SandboxUnavailable, SandboxGone.
    """
    source = check_url(url, allow_http=allow_http)
    if ref and (not _REF.fullmatch(ref) or ".." in ref):
        raise IntakeError(f"{shown(ref)} is not the name of a branch or tag.")
    limits = limits or IntakeLimits()
    pins = [] if allow_private else _pinned(source, resolve(source))
    with staging(limits, within=within, interrupt=interrupt) as staged:
        home, tree = staged.folder / "home", staged.folder / "tree"
        home.mkdir()
        options = ["--template=", "--no-recurse-submodules", "--single-branch", "--no-tags", "--no-hardlinks"]
        shallow = [f"--depth={depth}"] if depth > 0 else []
        options += ["--quiet", "--config=core.symlinks=false", *([f"--branch={ref}"] if ref else [])]
        config = [*_config(source, follow=allow_private), *pins]
        try:
            _run(["git", *config, "clone", *options, *shallow, "--", source.url, str(tree)], source, staged, home)
        except IntakeError as error:
            if not shallow or "shallow" not in str(error):
                raise
            # a server of plain files knows whole histories only
            _run(["git", *config, "clone", *options, "--", source.url, str(tree)], source, staged, home)
        modes = _run(["git", *config, "-C", str(tree), "ls-files", "-s", "-z"], source, staged, home)
        if absent := _tell_what_is_no_file(modes, staged):
            # else git, in the sandbox, would take a submodule that did not come for a deleted one
            hide = ["update-index", "--skip-worktree", "--", *absent[:MAX_SUBMODULES]]
            _run(["git", *config, "-C", str(tree), *hide], source, staged, home)
        _stage_tree(tree, staged)
        return staged.deliver(sandbox, into, source.url)


def resolve(source: Source) -> list[Address]:
    """Every address of the host, all of them public. Raises IntakeError."""
    try:
        found = socket.getaddrinfo(source.host, source.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        if _proxy_for(source):
            return []  # behind a proxy only the proxy knows names
        raise IntakeError(f"The host {source.host} is not known. Check the address.") from None
    addresses = list(dict.fromkeys(ipaddress.ip_address(str(item[4][0]).split("%")[0]) for item in found))
    if not addresses or not all(is_public(address) for address in addresses):
        raise IntakeError(f"The host {source.host} is on a private network. Only public hosts are cloned from.")
    return addresses


def is_public(address: Address) -> bool:
    """Reachable by everyone, also when an IPv4 address is wrapped in an IPv6 one (RFC 4291, 3056, 6052)."""
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if address in _NAT64:
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is not None:
            return is_public(inner)
        if address.is_site_local or address.teredo is not None:
            return False
    return address.is_global and not address.is_multicast and not address.is_reserved


def _split(url: str) -> tuple[str, SplitResult]:
    """The scheme and the parts; what has no `scheme://` is named by what it looks like."""
    scheme, separator, _ = url.partition("://")
    if not separator:
        transport = re.match(r"([a-z0-9]+)::", url)
        return (transport[1] if transport else "ssh" if re.match(r"[^/]+:", url) else "file"), urlsplit("")
    try:
        return scheme.lower(), urlsplit(url)
    except ValueError:
        raise IntakeError("That is not an address: give one like https://example.org/team/project.git.") from None


def _literal(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _pinned(source: Source, addresses: list[Address]) -> list[str]:
    if not addresses:
        return []
    listed = ",".join(f"[{one}]" if one.version == 6 else str(one) for one in addresses)
    return ["-c", f"http.curloptResolve={source.host}:{source.port}:{listed}"]


def _proxy_for(source: Source) -> bool:
    names = (f"{source.scheme}_proxy", "all_proxy")
    return any(os.environ.get(name) or os.environ.get(name.upper()) for name in names)


def _config(source: Source, *, follow: bool) -> list[str]:
    settings = {
        "protocol.allow": "never",
        f"protocol.{source.scheme}.allow": "always",
        "core.hooksPath": os.devnull,
        "core.symlinks": "false",  # a link comes as a small file that holds its target
        "core.fsmonitor": "false",
        "credential.helper": "",
        "http.followRedirects": "initial" if follow else "false",
        "http.lowSpeedLimit": "1000",
        "http.lowSpeedTime": "30",
        "submodule.recurse": "false",
        "gc.auto": "0",
        "safe.directory": "*",
        "pack.threads": "1",
        "advice.detachedHead": "false",
        "init.defaultBranch": "main",
    }
    return [part for key, value in settings.items() for part in ("-c", f"{key}={value}")]


def _environment(source: Source, home: Path) -> dict[str, str]:
    """Nothing of the worker's own environment but the way to the network: no keys, no settings of its user."""
    kept = {name: os.environ[name] for name in _CERTIFICATES if name in os.environ}
    for name in (*_PROXIES, *(proxy.upper() for proxy in _PROXIES)):
        if name in os.environ and name != "HTTP_PROXY":  # curl ignores that one, too (CVE-2016-5385)
            kept[name] = os.environ[name]
    return {
        **kept,
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(home),
        "LC_ALL": "C",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_ALLOW_PROTOCOL": source.scheme,
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "true",
        "SSH_ASKPASS": "true",
        "GIT_LFS_SKIP_SMUDGE": "1",
    }


def _run(argv: list[str], source: Source, staged: Staging, home: Path) -> bytes:
    """Run git to its end, or end it: at the interrupt, the timeout, or when the folder grows past the limits."""
    limits = staged.limits
    # the shell sets limits on memory and on one file's size, then becomes git
    limited = ["sh", "-c", 'ulimit -v "$1" && ulimit -f "$2" && ulimit -c 0 && shift 2 && exec "$@"', "sh"]
    limited += [str(limits.git_memory_bytes // 1024), str(limits.total_bytes // 512 + 1), *argv]
    out, err = home.parent / "out", home.parent / "err"
    try:
        with out.open("wb") as stdout, err.open("wb") as stderr:
            child = subprocess.Popen(
                limited,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                env=_environment(source, home),
                cwd=home,
                start_new_session=True,
            )
    except OSError as error:
        raise IntakeError("git could not be started on the server. Install git there.") from error
    try:
        _watch(child, source, staged)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)  # also what git left behind
        child.wait()
    if child.returncode != 0:
        raise IntakeError(_failure(err.read_bytes()[:20_000], child.returncode, source))
    return out.read_bytes()


def _watch(child: subprocess.Popen[bytes], source: Source, staged: Staging) -> None:
    started = measured = time.monotonic()
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(POLL_S)
            _measure(staged)
            return
        check_interrupt(staged.interrupt)
        now = time.monotonic()
        if now - started > staged.limits.git_timeout_s:
            raise IntakeError(
                f"Cloning {source.url} took more than {staged.limits.git_timeout_s:g} s. Try again, or attach "
                "an archive of it."
            )
        if now - measured > MEASURE_S:
            measured = now
            _measure(staged)


def _measure(staged: Staging) -> None:
    """Raises IntakeError when the clone is larger than may come in. What vanishes meanwhile is not counted."""
    limits, files, size = staged.limits, 0, 0
    for folder, _, names in os.walk(staged.folder):
        files += len(names)
        for name in names:
            with contextlib.suppress(OSError):
                size += os.lstat(os.path.join(folder, name)).st_size
        if size > limits.total_bytes:
            raise IntakeError(
                f"The repository has more than {size_words(limits.total_bytes)}. Attach an archive of a part of it."
            )
        if files > limits.files + 10:  # our own, and git's locks
            raise IntakeError(f"The repository has more than {limits.files} files. Attach an archive of a part of it.")


def _failure(stderr: bytes, code: int, source: Source) -> str:
    words = re.sub(r"//[^/@\s]*@", "//", clean_text(stderr.decode("utf-8", "replace")))
    lines = [line for line in words.splitlines() if line.startswith(("fatal:", "error:"))] or words.splitlines()
    said = clip(shown(lines[0].partition(": ")[2] or lines[0]), 200) if lines else f"git ended with {code}"
    advice = "Check the address."
    if re.search(r"error: 30[1278]|redirect", words):
        advice = "It redirects elsewhere: give the address that it leads to (often with .git at its end)."
    elif re.search(r"error: 40[13]|could not read (Username|Password)|Authentication failed", words):
        advice = "It asks for a password: only public repositories can be cloned here. Attach an archive instead."
    elif "Remote branch" in words:
        advice = "Check the name of the branch or tag."
    elif re.search(r"out of memory|mmap failed|unable to create thread|File too large|index-pack", words):
        advice = "It is too large to be cloned here, or the connection broke. Attach an archive of a part of it."
    elif re.search(r"resolve|connect|timed out|Operation too slow", words):
        advice = "The host does not answer. Try again later, or attach an archive."
    return f"{source.url} could not be cloned: {said}. {advice}"


def _tell_what_is_no_file(listed: bytes, staged: Staging) -> list[str]:
    """Links came as files that hold their target, submodules not at all: both are told. The submodules.

    `listed`: what `git ls-files -s -z` says.
    """
    absent = []
    for line in listed.split(b"\x00"):
        mode, _, rest = line.partition(b" ")
        path = rest.partition(b"\t")[2].decode("utf-8", "surrogateescape")
        if mode == b"120000":
            staged.tell(plain_name(path), "a link: it came as a file that holds the link's target")
        elif mode == b"160000":
            staged.tell(plain_name(path), "left out: a submodule")
            absent.append(path)
    return absent


def _stage_tree(tree: Path, staged: Staging) -> None:
    for folder, _, names in os.walk(tree):
        for name in sorted(names):
            host = os.path.join(folder, name)
            path = plain_name(entry_path(os.path.relpath(host, tree)))
            if name.endswith(".lock") and path.startswith(".git/"):
                continue
            handle = os.open(host, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            with os.fdopen(handle, "rb") as file:
                found = os.fstat(file.fileno())
                if not stat.S_ISREG(found.st_mode):
                    raise IntakeError(f"The entry {shown(path)} is a device or pipe. It cannot be brought in.")
                staged.add(path, file, executable=bool(found.st_mode & 0o100))
