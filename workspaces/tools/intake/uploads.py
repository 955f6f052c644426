"""Uploads: plain files into a sandbox, under names that are made safe. Never opens what is in them."""

from __future__ import annotations

import re
import threading
import unicodedata
from collections.abc import Collection, Iterable
from pathlib import Path

from workspaces.domain.text import clean_text
from workspaces.sandboxes.base import Sandbox
from workspaces.tools.intake.base import (
    IntakeError,
    IntakeLimits,
    IntakeReport,
    Reader,
    shown,
    size_words,
    staging,
)

MAX_NAME_BYTES = 200
_MEANT_FOR_PROGRAMS = frozenset({".git", ".agentdesk"})  # as a file, the first one redirects git


def place(
    files: Iterable[tuple[str, Reader]],
    sandbox: Sandbox,
    *,
    into: str = "",
    limits: IntakeLimits | None = None,
    within: Path | None = None,
    interrupt: threading.Event | None = None,
) -> IntakeReport:
    """Every (name, open file) into the folder `into`: all of them, or none.

    Raises IntakeError, IntakeInterrupted, SandboxUnavailable, SandboxGone.
    """
    with staging(limits or IntakeLimits(), within=within, interrupt=interrupt) as staged:
        for name, source in files:
            path = safe_name(name, taken=staged.files)
            if path != name:
                staged.tell(path, f"renamed: it was called {shown(name)}")
            staged.add(path, source)
        if not staged.files:
            raise IntakeError("No file was attached. Choose one.")
        first = next(iter(staged.files))
        source_name = first if len(staged.files) == 1 else f"{first} and {len(staged.files) - 1} more"
        return staged.deliver(sandbox, into, source_name)


def check_size(name: str, size: int, limits: IntakeLimits | None = None) -> None:
    """Raises IntakeError for a file whose size is known before it is read."""
    most = (limits or IntakeLimits()).file_bytes
    if size > most:
        raise IntakeError(
            f"{shown(name)} has {size_words(size)}, more than {size_words(most)}, the limit for one file. "
            "Split it, or have the agent fetch it."
        )


def safe_name(name: str, taken: Collection[str] = ()) -> str:
    """A single file name: no folders, no control characters, no leading dash, at most MAX_NAME_BYTES, not taken."""
    last = re.split(r"[/\\]", clean_text(name))[-1]
    plain = unicodedata.normalize("NFC", last)
    # also the marks that turn the direction of writing: they make an .exe look like a .txt
    plain = "".join(char for char in plain if unicodedata.category(char) not in ("Cc", "Cf", "Zl", "Zp"))
    plain = plain.strip().rstrip(".")
    if plain.startswith("-") or plain.casefold() in _MEANT_FOR_PROGRAMS:
        plain = f"_{plain}"
    stem, dot, ending = plain.rpartition(".")
    if not stem or len(ending) > 20:
        stem, dot, ending = plain, "", ""
    stem = _cut(stem, MAX_NAME_BYTES - len(f"{dot}{ending}".encode())) or "file"
    found, number = f"{stem}{dot}{ending}", 2
    while found in taken:
        found, number = f"{stem} ({number}){dot}{ending}", number + 1
    return found


def _cut(text: str, most_bytes: int) -> str:
    return text.encode()[:most_bytes].decode("utf-8", "ignore")
