"""For commands: a database that does not answer is told in words, with a status that says nothing of what is stored."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.core.management.base import CommandError
from django.db import DatabaseError

from workspaces.queries.database import is_away

NOT_ASKED = 2  # the status: what was to be done was not, or not to its end


@contextmanager
def answering_database() -> Iterator[None]:
    """Raises CommandError when the database is away or goes away."""
    try:
        yield
    except DatabaseError as error:
        if not is_away(error):
            raise
        raise CommandError(
            f"The database does not answer: {str(error).strip()}. Start agentdesk, or look at DATABASE_URL.",
            returncode=NOT_ASKED,
        ) from error
