"""Django's Postgres backend, with statements that the server keeps ready for who repeats them.

Django puts values into the text of a statement, so that Postgres reads and plans each one anew. Within `repeating`
they are sent beside it, and a connection prepares what it has seen a few times: a step of a task makes some fifty
statements, always the same ones, whose planning took a fifth of its time. Not for pages, which ask many things once.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from django.db.backends.postgresql import base

_repeats: ContextVar[bool] = ContextVar("repeats", default=False)


@contextmanager
def repeating() -> Iterator[None]:
    """What this thread asks within it is asked again and again."""
    token = _repeats.set(True)
    try:
        yield
    finally:
        _repeats.reset(token)


class DatabaseWrapper(base.DatabaseWrapper):
    def create_cursor(self, name: str | None = None) -> Any:
        self.connection.cursor_factory = base.ServerBindingCursor if _repeats.get() else base.Cursor
        return super().create_cursor(name)
