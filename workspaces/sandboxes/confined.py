"""Reads and writes files of a folder that somebody hostile is changing meanwhile. Never follows a link out of it.

Every path is walked one name at a time on open folders (`dir_fd`, `O_NOFOLLOW`), and links are resolved here,
never by the kernel, so that swapping a folder for a link at any moment leads nowhere else. An absolute link is
read as the sandbox means it: below the folder's own name inside (`/workspace`) it stays, else it is refused.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from workspaces.sandboxes.base import DiskFull, Entry, FileTooLarge, NotAFile, PathRefused

Entries = list[Entry]  # a class with a method `list` cannot name the type in itself
Names = list[str]
Handles = list[int]
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_MAX_LINKS = 40
_MAX_DEPTH = 200
_FULL = (errno.ENOSPC, errno.EDQUOT)


class Confined:
    """The files under `folder`, which the sandbox calls `inside`. `owner` (uid, gid) gets what is written."""

    def __init__(self, folder: Path, *, inside: str = "/workspace", owner: tuple[int, int] | None = None) -> None:
        self.folder = folder
        self.inside = [part for part in inside.split("/") if part]
        self.owner = owner

    def read(self, path: str, *, limit_bytes: int) -> bytes:
        """Raises PathRefused, NotAFile, FileTooLarge."""
        with self._target(path) as (parent, name):
            if name is None:
                raise NotAFile(f"{path or '.'} is a folder")
            with _os_errors(path):
                # looked at before it is opened: opening a device can do something
                if not stat.S_ISREG(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
                    raise NotAFile(f"{path} is not a regular file")
                handle = os.open(name, _FILE, dir_fd=parent)
        with os.fdopen(handle, "rb") as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise NotAFile(f"{path} is not a regular file")
            if found.st_size > limit_bytes:
                raise FileTooLarge(f"{path} has {found.st_size} bytes, more than {limit_bytes}")
            data = file.read(limit_bytes + 1)
        if len(data) > limit_bytes:
            raise FileTooLarge(f"{path} has more than {limit_bytes} bytes")
        return data

    def write(self, path: str, data: bytes, *, executable: bool = False) -> None:
        """A whole file, or nothing. Raises PathRefused, NotAFile, DiskFull."""
        with self._target(path, make=True) as (parent, name), _os_errors(path):
            if name is None:
                raise NotAFile(f"{path or '.'} is a folder")
            mode = 0o755 if executable else 0o644
            with contextlib.suppress(FileNotFoundError):
                found = os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
                if not stat.S_ISREG(found):
                    raise NotAFile(f"{path} is not a regular file")
                mode = stat.S_IMODE(found) & 0o777 | (mode & 0o111)
            temporary = f".agentdesk-{secrets.token_hex(8)}.tmp"
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            handle = os.open(temporary, flags, 0o600, dir_fd=parent)
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(data)
                    file.flush()
                    if self.owner:
                        os.fchown(file.fileno(), *self.owner)
                    os.fchmod(file.fileno(), mode)
                os.rename(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(temporary, dir_fd=parent)
                raise

    def list(self, path: str = "", *, recursive: bool = False, limit: int = 2000) -> Entries:
        """Raises PathRefused, NotAFile (not a folder)."""
        found: Entries = []
        with self._folder(path) as (handle, parts), _os_errors(path):
            self._collect(handle, "/".join(parts), recursive, limit, found, depth=0)
        return found

    def check_folder(self, path: str) -> str:
        """The path of an existing folder, links resolved, relative to the root. Raises PathRefused, NotAFile."""
        with self._folder(path) as (_, parts):
            return "/".join(parts)

    def _collect(self, folder: int, prefix: str, recursive: bool, limit: int, found: Entries, depth: int) -> None:
        for name in sorted(os.listdir(folder)):
            if len(found) >= limit:
                return
            try:
                state = os.stat(name, dir_fd=folder, follow_symlinks=False)
            except FileNotFoundError:
                continue
            path = f"{prefix}/{name}" if prefix else name
            found.append(entry_of(path, state))
            if recursive and stat.S_ISDIR(state.st_mode) and depth < _MAX_DEPTH:
                try:
                    inner = os.open(name, _FOLDER, dir_fd=folder)
                except OSError:
                    continue  # gone, swapped for a link, or closed to us: it stays a name in the list
                try:
                    self._collect(inner, path, recursive, limit, found, depth + 1)
                finally:
                    os.close(inner)

    @contextlib.contextmanager
    def _folder(self, path: str) -> Iterator[tuple[int, Names]]:
        with self._walk(path, make=False) as (stack, parts, name):
            if name is not None:
                raise NotAFile(f"{path} is not a folder")
            yield stack[-1], parts

    @contextlib.contextmanager
    def _target(self, path: str, *, make: bool = False) -> Iterator[tuple[int, str | None]]:
        with self._walk(path, make=make) as (stack, _, name):
            yield stack[-1], name

    @contextlib.contextmanager
    def _walk(self, path: str, *, make: bool) -> Iterator[tuple[Handles, Names, str | None]]:
        """Open folders from the root to the last one, their names, and the last name if it is no folder."""
        if "\x00" in path:
            raise PathRefused("a path cannot hold a NUL byte")
        try:
            os.fsencode(path)
        except UnicodeEncodeError:
            raise PathRefused("a path cannot hold half a surrogate pair") from None
        pending = deque(self._parts(path))
        depth = 0
        for part in pending:
            # told before any folder is made or missed on the way
            depth += -1 if part == ".." else 1
            if depth < 0:
                raise PathRefused(f"{path} leaves the workspace")
        stack: Handles = []
        parts: Names = []
        name: str | None = None
        links = 0
        with _os_errors(path):
            stack.append(os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        try:
            with _os_errors(path):
                while pending:
                    part = pending.popleft()
                    if part == "..":
                        if not parts:
                            raise PathRefused(f"{path} leaves the workspace")
                        os.close(stack.pop())
                        parts.pop()
                        continue
                    try:
                        mode = os.stat(part, dir_fd=stack[-1], follow_symlinks=False).st_mode
                    except FileNotFoundError:
                        if not pending:
                            name = part
                            break
                        if not make:
                            raise
                        self._make_folder(part, stack[-1])
                        pending.appendleft(part)
                        continue
                    if stat.S_ISLNK(mode):
                        links += 1
                        if links > _MAX_LINKS:
                            raise PathRefused(f"{path} goes through too many links")
                        target = os.readlink(part, dir_fd=stack[-1])
                        if target.startswith("/"):
                            while len(stack) > 1:
                                os.close(stack.pop())
                            parts.clear()
                        pending.extendleft(reversed(self._parts(target, link=path)))
                    elif stat.S_ISDIR(mode):
                        if len(stack) > _MAX_DEPTH:
                            raise PathRefused(f"{path[:80]}… is too deep")
                        try:
                            stack.append(os.open(part, _FOLDER, dir_fd=stack[-1]))
                        except OSError as error:
                            if error.errno not in (errno.ELOOP, errno.ENOTDIR):
                                raise
                            links += 1  # swapped under our hands: look again, a bounded number of times
                            if links > _MAX_LINKS:
                                raise PathRefused(f"{path} keeps changing") from None
                            pending.appendleft(part)
                            continue
                        parts.append(part)
                    else:
                        if pending:
                            raise NotAFile(f"{path} goes through a file")
                        name = part
            yield stack, parts, name
        finally:
            for handle in stack:
                os.close(handle)

    def _make_folder(self, name: str, parent: int) -> None:
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, 0o755, dir_fd=parent)
            if self.owner:
                handle = os.open(name, _FOLDER, dir_fd=parent)
                try:
                    os.fchown(handle, *self.owner)
                finally:
                    os.close(handle)

    def _parts(self, path: str, *, link: str = "") -> Names:
        parts = [part for part in path.split("/") if part not in ("", ".")]
        if path.startswith("/"):
            if parts[: len(self.inside)] != self.inside:
                raise PathRefused(
                    f"{link} is a link out of the workspace" if link else f"{path} is outside the workspace"
                )
            return parts[len(self.inside) :]
        return parts


def entry_of(path: str, state: os.stat_result) -> Entry:
    kind: Literal["file", "folder", "link", "other"] = "other"
    if stat.S_ISREG(state.st_mode):
        kind = "file"
    elif stat.S_ISDIR(state.st_mode):
        kind = "folder"
    elif stat.S_ISLNK(state.st_mode):
        kind = "link"
    size = state.st_size if kind in ("file", "link") else 0
    return Entry(path, kind, size, stat.S_IMODE(state.st_mode), state.st_mtime)


@contextlib.contextmanager
def _os_errors(path: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise NotAFile(f"there is no {path}") from None
    except PermissionError:
        raise NotAFile(f"{path} may not be opened") from None
    except OSError as error:
        if error.errno in _FULL:
            raise DiskFull(
                "there is no room left on the workspace's disk", hint="delete files or raise the limit"
            ) from None
        if error.errno == errno.ENAMETOOLONG:
            raise PathRefused(f"{path[:80]}… is too long a path") from None
        raise NotAFile(f"{path}: {os.strerror(error.errno or 0)}") from None
