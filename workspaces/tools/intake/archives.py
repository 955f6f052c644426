"""Archives: zip and tar (plain, gzip, bzip2, xz) into a sandbox. Nothing is ever extracted under an entry's own name.

Refused, with the entry named: paths that leave, links that leave, devices, bombs, passwords, damage, names that are
a file and a folder. Links that stay inside become copies of what they point at; a link to nothing or to a folder
is left out and told. Empty folders do not come along: a sandbox is filled with files.
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import lzma
import mmap
import os
import posixpath
import stat
import struct
import tarfile
import threading
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Literal, cast

from workspaces.sandboxes.base import Sandbox
from workspaces.tools.intake.base import (
    CHUNK_BYTES,
    MB,
    IntakeError,
    IntakeLimits,
    IntakeReport,
    Reader,
    Staging,
    check_interrupt,
    check_ratio,
    entry_path,
    plain_name,
    shown,
    size_words,
    staging,
)

Form = Literal["zip", "tar", "tar.gz", "tar.bz2", "tar.xz"]

MAX_HEADER_BYTES = 4 * MB  # a tar header with extended names; ordinary ones have 512 bytes
XZ_MEMORY_BYTES = 256 * MB  # xz -9 needs 65 MB to unpack
MAX_LINK_HOPS = 20

_BROKEN = (
    zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, EOFError, OSError, struct.error,
    ValueError, KeyError, IndexError, OverflowError, MemoryError, NotImplementedError, RuntimeError,
)  # fmt: skip


def unpack(
    archive: Path,
    name: str,
    sandbox: Sandbox,
    *,
    into: str = "",
    limits: IntakeLimits | None = None,
    within: Path | None = None,
    interrupt: threading.Event | None = None,
) -> IntakeReport:
    """Everything in `archive` (called `name` by its owner) into the folder `into`: all of it, or nothing.

    Raises IntakeError, IntakeInterrupted, SandboxUnavailable, SandboxGone.
    """
    with staging(limits or IntakeLimits(), within=within, interrupt=interrupt) as staged:
        stage(archive, name, staged)
        return staged.deliver(sandbox, into, name)


def check(archive: Path, name: str, limits: IntakeLimits | None = None) -> None:
    """Raises IntakeError if `unpack` would refuse it for what is in it. Takes as long as unpacking."""
    with staging(limits or IntakeLimits()) as staged:
        stage(archive, name, staged)


def stage(archive: Path, name: str, staged: Staging) -> None:
    size = archive.stat().st_size
    if size > staged.limits.file_bytes:
        raise IntakeError(
            f"{shown(name)} has {size_words(size)}, more than {size_words(staged.limits.file_bytes)}. "
            "Leave out what the task does not need, or have the agent fetch it."
        )
    with archive.open("rb") as file:
        form = form_of(file)
        if form is None:
            raise IntakeError(f"{shown(name)} is not a zip or tar archive. Attach it as a plain file.")
        try:
            if form == "zip":
                _stage_zip(file, size, staged)
            else:
                _stage_tar(file, form, size, staged)
        except _BROKEN as error:
            reason = shown(str(error)) or type(error).__name__
            raise IntakeError(f"{shown(name)} is damaged or unfinished ({reason}). Pack it again.") from error
    if not staged.files:
        raise IntakeError(f"{shown(name)} holds no files. Attach another one.")


def form_of(file: BinaryIO) -> Form | None:
    """By what is in it, never by its name."""
    file.seek(0)
    head = file.read(512)
    file.seek(0)
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06", b"PK\x07\x08")):
        return "zip"
    if head.startswith(b"\x1f\x8b"):
        return "tar.gz"
    if head.startswith(b"BZh"):
        return "tar.bz2"
    if head.startswith(b"\xfd7zXZ\x00"):
        return "tar.xz"
    return "tar" if head[257:262] == b"ustar" or _old_tar(head) else None


def _old_tar(head: bytes) -> bool:
    """A header of 1979, which has no magic: its checksum tells."""
    with contextlib.suppress(ValueError):
        return len(head) == 512 and int(head[148:156].strip(b" \x00"), 8) == sum(head[:148] + b" " * 8 + head[156:])
    return False


def _stage_zip(file: BinaryIO, size: int, staged: Staging) -> None:
    # the directory is read whole into memory by zipfile: each of its entries bears this mark, so count them first
    with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        if _count(mapped, b"PK\x01\x02", 10 * staged.limits.files) > 10 * staged.limits.files:
            raise IntakeError(f"There are more than {staged.limits.files} files. Bring in a part of them.")
    links: dict[str, str] = {}
    with zipfile.ZipFile(file) as archive:
        entries = archive.infolist()
        for info in entries:
            check_interrupt(staged.interrupt)
            name = _zip_name(info)
            path = entry_path(name, backslashes=True)
            mode = info.external_attr >> 16 if info.create_system == 3 else 0
            if info.flag_bits & 0x1:
                raise IntakeError(f"The entry {shown(name)} is locked with a password. Pack it without one.")
            if info.is_dir() or name.endswith("\\"):
                if path:
                    staged.add_folder(path)
                continue
            if not path:
                raise IntakeError("An entry has no name. Pack the archive again.")
            kind = stat.S_IFMT(mode)
            if kind == stat.S_IFLNK:
                with archive.open(info) as source:
                    links[path] = source.read(4097).decode("utf-8", "surrogateescape")
                continue
            if kind not in (0, stat.S_IFREG):
                raise IntakeError(f"The entry {shown(name)} is a device or pipe. Leave it out.")
            with archive.open(info) as source:
                packed = max(1, min(info.compress_size, size))
                staged.add(path, cast(Reader, source), executable=bool(mode & 0o111), packed=packed)
            check_ratio(path, staged.total_bytes, size, staged.limits)
    _stage_links(links, staged)


def _zip_name(info: zipfile.ZipInfo) -> str:
    """The name as it was meant: without the UTF-8 flag most writers still write UTF-8, the rest the DOS page."""
    if info.flag_bits & 0x800:
        return info.filename
    with contextlib.suppress(UnicodeError):
        return info.filename.encode("cp437").decode("utf-8")
    return info.filename


def _stage_tar(file: BinaryIO, form: Form, size: int, staged: Staging) -> None:
    links: dict[str, str] = {}
    with contextlib.closing(_plain(file, form)) as plain:
        forward = _Forward(cast(BinaryIO, plain), size, staged)
        with tarfile.open(fileobj=cast(BinaryIO, forward), mode="r:", errorlevel=1) as archive:
            for member in _members(archive):
                check_interrupt(staged.interrupt)
                _stage_member(archive, member, staged, links)
            if forward.failed:
                raise forward.failed
        if not forward.saw_end():
            raise EOFError("it ends in the middle")
        while forward.read(CHUNK_BYTES):  # to its end, where the checksum of a packed one stands
            check_interrupt(staged.interrupt)
    _stage_links(links, staged)


def _stage_member(archive: tarfile.TarFile, member: tarfile.TarInfo, staged: Staging, links: dict[str, str]) -> None:
    path = entry_path(member.name)
    plain = plain_name(path)
    if plain != path:
        staged.tell(plain, "renamed: its name was not UTF-8")
    if member.isdir():
        if plain:
            staged.add_folder(plain)
    elif not plain:
        raise IntakeError("An entry has no name. Pack the archive again.")
    elif member.issym():
        links[plain] = member.linkname
    elif member.islnk():
        target = plain_name(entry_path(member.linkname))
        if target not in staged.files:
            raise IntakeError(f"The entry {shown(plain)} is a link to {shown(target)}, which does not come before it.")
        links.pop(plain, None)
        if target != plain:
            staged.add_copy(plain, target, replace=True)
    elif member.isreg():
        source = archive.extractfile(member)
        if source is None:
            raise IntakeError(f"The entry {shown(plain)} cannot be read. Pack the archive again.")
        links.pop(plain, None)
        # the last one of a name wins, as tar has it
        staged.add(plain, cast(Reader, source), executable=bool(member.mode & 0o111), replace=True)
        if staged.files[plain].size != member.size:
            raise EOFError(f"{shown(plain)} is cut off")
    else:
        raise IntakeError(f"The entry {shown(plain)} is a device or pipe. Leave it out.")


def _members(archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    while (member := archive.next()) is not None:
        archive.__dict__["members"].clear()  # it would keep every one
        yield member


def _stage_links(links: dict[str, str], staged: Staging) -> None:
    for path, target in links.items():
        aim = _aim(path, target, links)
        if aim is not None and aim in staged.files:
            staged.add_copy(path, aim)
        else:
            what = "a folder" if aim is not None and aim in staged.folders else "nothing that came along"
            staged.tell(path, f"left out: a link to {what}")


def _aim(path: str, target: str, links: dict[str, str]) -> str | None:
    """What a link finally points at, None when it goes in circles. Raises IntakeError when it leads out."""
    start = path
    for _ in range(MAX_LINK_HOPS):
        joined = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
        if target.startswith("/") or joined == ".." or joined.startswith("../") or "\x00" in target:
            raise IntakeError(
                f"The entry {shown(start)} is a link out of the archive, to {shown(target)}. "
                "Pack what it points at instead (tar -h, zip without -y)."
            )
        path = plain_name(joined)
        if path not in links:
            return path
        target = links[path]
    return None


def _count(mapped: mmap.mmap, mark: bytes, enough: int) -> int:
    found, position = 0, mapped.find(mark)
    while position >= 0 and found <= enough:
        found += 1
        position = mapped.find(mark, position + len(mark))
    return found


def _plain(file: BinaryIO, form: Form) -> BinaryIO | gzip.GzipFile | bz2.BZ2File | _Xz:
    match form:
        case "tar.gz":
            return gzip.GzipFile(fileobj=file, mode="rb")
        case "tar.bz2":
            return bz2.BZ2File(file)
        case "tar.xz":
            return _Xz(file)
        case _:
            return file


class _Xz:
    """xz with a bound on memory, which the standard library's file object does not offer."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.decompressor = lzma.LZMADecompressor(memlimit=XZ_MEMORY_BYTES)

    def read(self, size: int = -1) -> bytes:
        while True:
            if self.decompressor.eof:
                rest = (self.decompressor.unused_data or self.file.read(CHUNK_BYTES)).lstrip(b"\x00")
                if not rest:
                    return b""
                self.decompressor = lzma.LZMADecompressor(memlimit=XZ_MEMORY_BYTES)
            elif self.decompressor.needs_input:
                rest = self.file.read(64 * 1024)
                if not rest:
                    raise EOFError("it ends in the middle")
            else:
                rest = b""
            if data := self.decompressor.decompress(rest, size):
                return data

    def close(self) -> None:
        """The file is its owner's to close."""


class _Forward(io.RawIOBase):
    """The unpacked stream as tarfile reads it: forward only, counted, and no header larger than it may be.

    tarfile takes some errors of a stream for the end of the archive: the first one is kept and raised again.
    """

    def __init__(self, source: BinaryIO, packed: int, staged: Staging) -> None:
        self.source = source
        self.packed = packed
        self.limits = staged.limits
        self.position = 0
        self.last = b""
        self.failed: BaseException | None = None

    def read(self, size: int = -1) -> bytes:
        try:
            if not 0 <= size <= MAX_HEADER_BYTES:
                raise IntakeError("An entry's name or header is larger than any real one. Pack the archive again.")
            parts: list[bytes] = []
            while size > 0 and (part := self.source.read(size)):
                size -= len(part)
                parts.append(part)
            data = b"".join(parts)
        except BaseException as error:
            self.failed = self.failed or error
            raise
        self.position += len(data)
        self.last = (self.last + data)[-1024:]
        room = self.limits.total_bytes + self.limits.files * 2048 + MB
        if self.position > room:
            self.failed = IntakeError(
                f"It unpacks to more than {size_words(self.limits.total_bytes)}. Bring in a part of it."
            )
            raise self.failed
        check_ratio("The archive", self.position, self.packed, self.limits)
        return data

    def seek(self, position: int, whence: int = os.SEEK_SET) -> int:
        if whence != os.SEEK_SET or position < self.position:
            raise IntakeError("It cannot be read from front to end. Pack the archive again.")
        while self.position < position:
            if not self.read(min(CHUNK_BYTES, position - self.position)):
                break
        return self.position

    def tell(self) -> int:
        return self.position

    def saw_end(self) -> bool:
        """Whether the archive ended as tar ends: with empty blocks, or at least at a block's end."""
        return self.position > 0 and self.position % 512 == 0 and self.last.endswith(bytes(512))
