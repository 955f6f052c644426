"""Remembers, on the host, when a sandbox was frozen by order, so that frozen time costs a command nothing.

The file outlives the worker: a task paused over night goes on with the timeout it had left.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import time
from pathlib import Path


class FrozenTime:
    """`spans`: finished (from, to) pairs; `since`: the start of the one that lasts. Seconds since the epoch."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def active(self) -> bool:
        return self._load()[1] is not None

    def begin(self) -> None:
        spans, since = self._load()
        if since is None:
            self._save(spans, time.time())

    def end(self) -> None:
        spans, since = self._load()
        if since is not None:
            self._save([*spans, (since, time.time())], None)

    def overlap(self, start: float, end: float) -> float:
        """Seconds of [start, end] that were frozen."""
        spans, since = self._load()
        if since is not None:
            spans = [*spans, (since, end)]
        return sum(max(0.0, min(end, to) - max(start, begun)) for begun, to in spans)

    def clear(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            self.path.unlink()

    def _load(self) -> tuple[list[tuple[float, float]], float | None]:
        try:
            data = json.loads(self.path.read_text())
        except (FileNotFoundError, ValueError):
            return [], None
        return [(float(a), float(b)) for a, b in data["spans"]], data["since"]

    def _save(self, spans: list[tuple[float, float]], since: float | None) -> None:
        fresh = self.path.with_name(f"{self.path.name}.{secrets.token_hex(4)}")
        fresh.write_text(json.dumps({"spans": spans, "since": since}))
        os.replace(fresh, self.path)
