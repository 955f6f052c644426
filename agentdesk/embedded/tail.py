"""Reads what is new in a log file and picks what an operator should see. Never holds the file open."""

from __future__ import annotations

import re
from pathlib import Path

from agentdesk.embedded.process import rotate

_IMPORTANT = re.compile(r" (WARNING|ERROR|CRITICAL) ")
SHOWN_AT_ONCE = 10
WIDTH = 300


class Tail:
    """What a log says from `start` (a place in bytes) on."""

    def __init__(self, log: Path, start: int = 0) -> None:
        self._log = log
        self._at = start

    def news(self) -> list[str]:
        """The important lines since the last call, shortened; a flood is cut with a note."""
        rotate(self._log)
        try:
            size = self._log.stat().st_size
            if size < self._at:  # rotated
                self._at = 0
            with self._log.open("rb") as file:
                file.seek(self._at)
                text = file.read()
        except FileNotFoundError:
            return []
        whole, newline, _ = text.rpartition(b"\n")
        self._at += len(whole) + len(newline)
        lines = [line for line in whole.decode(errors="replace").splitlines() if _IMPORTANT.search(line)]
        shown = [line if len(line) <= WIDTH else f"{line[:WIDTH]} …" for line in lines[:SHOWN_AT_ONCE]]
        if len(lines) > SHOWN_AT_ONCE:
            shown.append(f"… and {len(lines) - SHOWN_AT_ONCE} more lines like these in {self._log}")
        return shown
