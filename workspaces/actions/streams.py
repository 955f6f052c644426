"""Passing text for those who watch: at most 10 messages a second each, never stored."""

from __future__ import annotations

import time
from collections.abc import Callable

from workspaces import live
from workspaces.domain.text import clean_text, decode_output

INTERVAL_S = 0.1
TAIL_CHARS = 4_000


class TextStream:
    """The end of a running model call's reply, sent each time, so that a late watcher sees it too."""

    def __init__(self, task_id: int, model_call_id: int) -> None:
        self._ids = (task_id, model_call_id)
        self._text = ""
        self._sent_at = 0.0

    def __call__(self, delta: str) -> None:
        self._text = (self._text + delta)[-TAIL_CHARS:]
        now = time.monotonic()
        if now - self._sent_at >= INTERVAL_S:
            self._sent_at = now
            live.text_delta(*self._ids, clean_text(self._text))


class OutputStream:
    """The newest output of a running tool call (ids: task, call), or of an operator's command (workspace, command)."""

    def __init__(self, *ids: int, send: Callable[[int, int, str], None] = live.output_delta) -> None:
        self._first, self._second = ids
        self._send = send
        self._tail = b""
        self._sent_at = 0.0

    def __call__(self, _stream: str, chunk: bytes) -> None:
        self._tail = (self._tail + chunk)[-TAIL_CHARS:]
        now = time.monotonic()
        if now - self._sent_at >= INTERVAL_S:
            self._sent_at = now
            self._send(self._first, self._second, decode_output(self._tail))


def command_stream(workspace_id: int, command_id: int) -> OutputStream:
    return OutputStream(workspace_id, command_id, send=live.command_output)
