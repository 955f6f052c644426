"""Compares and counts real folders, by their metadata. Follows no link and reads content only to settle a doubt."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from workspaces.sandboxes.base import FileChange

_CHUNK_BYTES = 1024 * 1024


def tally(folder: Path) -> tuple[int, int]:
    """Bytes in regular files, and how many entries are not folders."""
    total = files = 0
    pending = [os.fspath(folder)]
    while pending:
        with os.scandir(pending.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    pending.append(entry.path)
                else:
                    files += 1
                    total += entry.stat(follow_symlinks=False).st_size if not entry.is_symlink() else 0
    return total, files


def read_all(folder: Path, met: set[tuple[int, ...]]) -> None:
    """Read every regular file once; `met` remembers those that other snapshots share. Raises OSError."""
    for place, _, names in os.walk(folder, onerror=_raise):
        for name in names:
            path = os.path.join(place, name)
            state = os.lstat(path)
            mark = (state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns)
            if not stat.S_ISREG(state.st_mode) or mark in met:
                continue
            with open(path, "rb", buffering=0) as file:
                while file.read(_CHUNK_BYTES):
                    pass
            met.add(mark)


def _raise(error: OSError) -> None:
    raise error


def compare(before: Path, after: Path, limit: int) -> list[FileChange]:
    """What differs, in path order, at most `limit`. Folders themselves are not changes; what is in them is."""
    old, new = _index(before), _index(after)
    found: list[FileChange] = []
    for path in sorted(old.keys() | new.keys()):
        was, now = old.get(path), new.get(path)
        if was and now and _same(os.path.join(before, path), was, os.path.join(after, path), now):
            continue
        kind = "changed" if was and now else ("removed" if was else "added")
        found.append(
            FileChange(
                path,
                kind,  # type: ignore[arg-type]
                was.st_size if was else None,
                now.st_size if now else None,
            )
        )
        if len(found) >= limit:
            break
    return found


def _index(root: Path) -> dict[str, os.stat_result]:
    found: dict[str, os.stat_result] = {}
    if not root.is_dir():
        return found
    pending = [""]
    while pending:
        prefix = pending.pop()
        with os.scandir(os.path.join(root, prefix)) as entries:
            for entry in entries:
                path = f"{prefix}{entry.name}"
                if entry.is_dir(follow_symlinks=False):
                    pending.append(f"{path}/")
                else:
                    found[path] = entry.stat(follow_symlinks=False)
    return found


def _same(old_path: str, was: os.stat_result, new_path: str, now: os.stat_result) -> bool:
    if was.st_mode != now.st_mode or was.st_size != now.st_size:
        return False
    if (was.st_ino, was.st_mtime_ns, was.st_ctime_ns) == (now.st_ino, now.st_mtime_ns, now.st_ctime_ns):
        return True
    if stat.S_ISLNK(was.st_mode):
        return os.readlink(old_path) == os.readlink(new_path)
    if not stat.S_ISREG(was.st_mode):
        return True
    with open(old_path, "rb") as old, open(new_path, "rb") as new:
        while True:
            left, right = old.read(_CHUNK_BYTES), new.read(_CHUNK_BYTES)
            if left != right:
                return False
            if not left:
                return True
