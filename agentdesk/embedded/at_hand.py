"""The embedded Postgres for a command that is run by hand: the one that runs, or one for as long as it takes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from agentdesk import environment
from agentdesk.connections import embedded_database_url
from agentdesk.embedded.stack import Stack


@contextmanager
def postgres_at_hand(*, alone: bool) -> Iterator[None]:
    """Does nothing where DATABASE_URL names a server. `alone`: raises StartError when agentdesk runs here."""
    home = environment.home()
    if environment.text("DATABASE_URL") or (not alone and _answers(embedded_database_url(environment.run_dir(home)))):
        yield
        return
    with Stack(home, {"postgres"}):
        yield


def _answers(url: str) -> bool:
    try:
        psycopg.connect(url, connect_timeout=5).close()
    except psycopg.OperationalError:
        return False
    return True
