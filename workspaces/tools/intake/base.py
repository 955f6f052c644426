"""What every way in shares: limits, errors, safe paths, and the staging from which a sandbox is filled.

Everything is staged outside the sandbox first, under names of our own, and judged there; only what is wholly good
is delivered. So a refused attachment leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import re
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from workspaces.domain.text import clean_text, clip
from workspaces.sandboxes.base import Entry, NotAFile, Sandbox, SandboxError, SandboxGone, SandboxUnavailable
from workspaces.tools.paths import relative

MB = 1024 * 1024
CHUNK_BYTES = MB
MAX_PART_BYTES = 255  # of one name, as Linux has it
MAX_PATH_BYTES = 2_000
MAX_DEPTH = 50
MAX_NAMED = 50  # entries named in a report


@dataclass(frozen=True, slots=True)
class IntakeLimits:
    """Sizes after unpacking, counted while they are read: a header's word is never taken."""

    file_bytes: int = 100 * MB  # one file, and one archive as it comes
    total_bytes: int = 500 * MB
    files: int = 20_000
    ratio: float = 200.0  # unpacked : packed; text packs about 1 : 10, DEFLATE ends at 1 : 1032
    ratio_free_bytes: int = 16 * MB  # small things may pack as well as they like
    git_timeout_s: float = 300.0
    git_memory_bytes: int = 3 * 1024 * MB  # address space: a small tree can name millions of files


class IntakeError(Exception):
    """An attachment that is refused. The message names the entry and says what to do."""


class IntakeInterrupted(Exception):  # an order from outside, not a fault
    """The interrupt was set. Nothing of the attachment is in the sandbox, unless it was being delivered."""


@dataclass(frozen=True, slots=True)
class Told:
    """One entry that did not come in as it was: left out, renamed, or written over an older file."""

    path: str
    what: str


@dataclass(frozen=True, slots=True)
class IntakeReport:
    """What came in. `source` is fit to be shown: it holds no password. `told` names at most MAX_NAMED entries."""

    source: str
    files: int
    bytes: int
    told: tuple[Told, ...] = ()
    told_more: int = 0

    def as_json(self) -> dict[str, Any]:
        told = [{"path": one.path, "what": one.what} for one in self.told]
        return {
            "source": self.source,
            "files": self.files,
            "bytes": self.bytes,
            "told": told,
            "told_more": self.told_more,
        }


class Reader(Protocol):
    def read(self, size: int, /) -> bytes: ...


@dataclass(slots=True)
class _File:
    host: Path
    size: int
    executable: bool


@dataclass(slots=True)
class Staging:
    """Files on their way in: content under numbers in a folder of ours, names only in memory."""

    folder: Path
    limits: IntakeLimits
    interrupt: threading.Event | None = None
    files: dict[str, _File] = field(default_factory=dict)
    folders: set[str] = field(default_factory=set)
    told: list[Told] = field(default_factory=list)
    total_bytes: int = 0
    _number: int = 0

    def add(
        self, path: str, source: Reader, *, executable: bool = False, replace: bool = False, packed: int = 0
    ) -> None:
        """Read `source` to its end as the file `path`. `packed`: bytes it had packed, 0 when not known.

        Raises IntakeError, IntakeInterrupted.
        """
        self._claim(path, replace)
        self._number += 1
        host = self.folder / f"{self._number:07d}"
        size = 0
        with host.open("xb", buffering=0) as file:
            while chunk := source.read(CHUNK_BYTES):
                check_interrupt(self.interrupt)
                size += len(chunk)
                self.total_bytes += len(chunk)
                self._check_sizes(path, size, packed)
                try:
                    file.write(chunk)
                except OSError as error:  # ours, not the attachment's
                    raise IntakeError(f"The server has no room for {shown(path)}: {error.strerror}.") from error
        self.files[path] = _File(host, size, executable)

    def add_copy(self, path: str, of: str, *, replace: bool = False) -> None:
        """One more name for a staged file."""
        with self.files[of].host.open("rb") as source:
            self.add(path, source, executable=self.files[of].executable, replace=replace)

    def add_folder(self, path: str) -> None:
        """A folder that holds nothing yet: only what stands in its way is checked."""
        if path in self.files:
            raise IntakeError(f"{shown(path)} is there twice, as a file and as a folder. Rename one of them.")
        for parent in _parents(path):
            if parent in self.files:
                raise IntakeError(f"{shown(parent)} is there twice, as a file and as a folder. Rename one of them.")
        self._add_folders([*_parents(path), path])

    def tell(self, path: str, what: str) -> None:
        self.told.append(Told(shown(path), what))

    def deliver(self, sandbox: Sandbox, into: str, source: str) -> IntakeReport:
        """Write everything below the folder `into`. Conflicts and room are looked at before the first write.

        The contract has no delete, so a disk that breaks in the middle leaves what was written: the error says
        how much, and the caller restores the snapshot from before. Raises IntakeError, IntakeInterrupted,
        SandboxUnavailable, SandboxGone.
        """
        written = 0
        try:
            base = relative(into)
            prefix = f"{base}/" if base else ""
            plan = {f"{prefix}{path}": file for path, file in sorted(self.files.items())}
            self._check_room(sandbox)
            for path in _conflicts(sandbox, plan):
                self.tell(path, "written over the file that was there")
            for path, file in plan.items():
                check_interrupt(self.interrupt)
                sandbox.write(path, file.host.read_bytes(), executable=file.executable)
                written += 1
        except (SandboxUnavailable, SandboxGone):
            raise
        except SandboxError as error:
            done = f" {written} of {len(self.files)} files were written before that." if written else ""
            hint = f" {error.hint}." if error.hint else ""
            raise IntakeError(f"{shown(source)} could not be brought in: {error}.{hint}{done}") from error
        more = max(0, len(self.told) - MAX_NAMED)
        named = tuple(self.told[:MAX_NAMED])
        return IntakeReport(shown(source), len(self.files), self.total_bytes, named, more)

    def _check_room(self, sandbox: Sandbox) -> None:
        used, limit = sandbox.usage().disk_bytes or 0, sandbox.spec.limits.disk_bytes
        if used + self.total_bytes > limit:
            free = size_words(max(0, limit - used))
            raise IntakeError(
                f"The workspace has {free} left on its disk, this needs {size_words(self.total_bytes)}. "
                "Delete files, or raise the workspace's disk limit."
            )

    def _claim(self, path: str, replace: bool) -> None:
        if path in self.folders or any(parent in self.files for parent in _parents(path)):
            raise IntakeError(f"{shown(path)} is there twice, as a file and as a folder. Rename one of them.")
        if path in self.files:
            if not replace:
                raise IntakeError(f"{shown(path)} is there twice. Leave one of the two out.")
            old = self.files.pop(path)
            self.total_bytes -= old.size
            old.host.unlink()
        if len(self.files) >= self.limits.files:
            raise IntakeError(f"There are more than {self.limits.files} files. Bring in a part of them.")
        self._add_folders(_parents(path))

    def _add_folders(self, paths: list[str]) -> None:
        self.folders.update(paths)
        if len(self.folders) > self.limits.files:
            raise IntakeError(f"There are more than {self.limits.files} folders. Bring in a part of them.")

    def _check_sizes(self, path: str, size: int, packed: int) -> None:
        if size > self.limits.file_bytes:
            raise IntakeError(
                f"{shown(path)} has more than {size_words(self.limits.file_bytes)}, the limit for one file. "
                "Split it, or have the agent fetch it."
            )
        if self.total_bytes > self.limits.total_bytes:
            raise IntakeError(
                f"Together the files have more than {size_words(self.limits.total_bytes)} (reached at "
                f"{shown(path)}). Bring in a part of them."
            )
        check_ratio(path, size, packed, self.limits)


@contextlib.contextmanager
def staging(
    limits: IntakeLimits, *, within: Path | None = None, interrupt: threading.Event | None = None
) -> Iterator[Staging]:
    """A staging that is gone afterwards. `within`: where there is room for `limits.total_bytes`."""
    with tempfile.TemporaryDirectory(prefix="agentdesk-intake-", dir=within) as folder:
        yield Staging(Path(folder), limits, interrupt)


def check_ratio(path: str, size: int, packed: int, limits: IntakeLimits) -> None:
    if packed and size > limits.ratio_free_bytes and size > packed * limits.ratio:
        raise IntakeError(
            f"{shown(path)} unpacks to more than {limits.ratio:g} times its size, as a bomb does. "
            "Bring the file in as it is."
        )


def check_interrupt(interrupt: threading.Event | None) -> None:
    if interrupt is not None and interrupt.is_set():
        raise IntakeInterrupted("the intake was interrupted")


def entry_path(name: str, *, backslashes: bool = False) -> str:
    """An entry's name as a path inside; empty for the root itself. Raises IntakeError.

    `backslashes` are separators too (archives made on Windows).
    """
    inner = name.replace("\\", "/") if backslashes else name
    if inner.startswith("/") or re.match(r"[A-Za-z]:/", inner):
        raise IntakeError(f"The entry {shown(name)} has an absolute path. Pack the folder with relative paths.")
    parts = [part for part in inner.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise IntakeError(f"The entry {shown(name)} leaves the archive with '..'. Pack it without.")
    path = "/".join(parts)
    if re.search(r"[\x00-\x1f\x7f]", path):
        raise IntakeError(f"The entry {shown(name)} has a control character in its name. Rename it.")
    raw_parts = [part.encode("utf-8", "surrogateescape") for part in parts]
    if any(len(part) > MAX_PART_BYTES for part in raw_parts) or sum(map(len, raw_parts)) > MAX_PATH_BYTES:
        raise IntakeError(f"The entry {shown(name)} has too long a name. Rename it.")
    if len(parts) > MAX_DEPTH:
        raise IntakeError(f"The entry {shown(name)} is deeper than {MAX_DEPTH} folders. Move it up.")
    return path


def plain_name(name: str) -> str:
    """Bytes that are no UTF-8 (surrogates here) as %XX, so that nothing is lost and every store can hold it."""
    if clean_text(name) == name:
        return name
    raw = name.encode("utf-8", "surrogateescape") if _escapable(name) else clean_text(name).encode()
    return "".join(
        char if not "\udc80" <= char <= "\udcff" else f"%{ord(char) - 0xDC00:02X}"
        for char in raw.decode("utf-8", "surrogateescape")
    )


def shown(text: str) -> str:
    """A name in a message: one line, no control characters, bounded."""
    plain = re.sub(r"[\x00-\x1f\x7f]", "?", clean_text(text))
    return clip(plain, 200)


def size_words(size: int) -> str:
    return f"{size / MB:.0f} MB" if size >= 10 * MB else f"{size / MB:.1f} MB" if size >= MB // 10 else f"{size} bytes"


def _escapable(name: str) -> bool:
    try:
        name.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    return True


def _parents(path: str) -> list[str]:
    parts = path.split("/")[:-1]
    return ["/".join(parts[: index + 1]) for index in range(len(parts))]


def _conflicts(sandbox: Sandbox, plan: dict[str, _File]) -> list[str]:
    """Planned files that would replace one. Raises IntakeError where a write could not succeed."""
    folders = {parent for path in plan for parent in _parents(path)}
    known: dict[str, dict[str, Entry]] = {}

    def there(path: str) -> Entry | None:
        parent = path.rpartition("/")[0]
        if parent not in known:
            above = there(parent) if parent else None
            listed: list[Entry] = []
            if not parent or (above and above.kind == "folder"):
                with contextlib.suppress(NotAFile):
                    listed = sandbox.list(parent, limit=100_000)
            known[parent] = {entry.path: entry for entry in listed}
        return known[parent].get(path)

    for folder in sorted(folders):
        entry = there(folder)
        if entry and entry.kind != "folder":
            raise IntakeError(f"{shown(folder)} is no folder in the workspace. Rename it there, or bring in elsewhere.")
    replaced = []
    for path in plan:
        entry = there(path)
        if entry and entry.kind != "file":
            raise IntakeError(
                f"{shown(path)} is a {entry.kind} in the workspace. Rename it there, or bring in elsewhere."
            )
        if entry:
            replaced.append(path)
    return replaced
