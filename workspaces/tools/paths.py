"""Paths as models write them, made relative to the workspace. Links are judged by the sandbox, not here."""

from __future__ import annotations

from workspaces.domain.text import clean_text
from workspaces.sandboxes.base import PathRefused

ROOT = "/workspace"
MAX_PATH_CHARS = 4_000


def relative(path: str) -> str:
    """`/workspace/a/./b`, `./a/b` and `a/b` are `a/b`; the workspace itself is empty. Raises PathRefused."""
    if len(path) > MAX_PATH_CHARS or clean_text(path) != path:
        raise PathRefused("the path is too long, or holds characters that no file name has")
    inner = path.strip()
    if inner == ROOT or inner.startswith(f"{ROOT}/"):
        inner = inner[len(ROOT) :].lstrip("/")
    elif inner.startswith("/"):
        raise PathRefused(f"{path} is outside the workspace: give a path relative to {ROOT}")
    parts = [part for part in inner.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise PathRefused(f"{path} goes up with '..': give a path relative to {ROOT}")
    return "/".join(parts)
