"""Patience with a database that is away: what is in hand (a paid reply, a result) is stored once it is back.

Everything else is given up and done again from the last finished phase, which costs nothing. Asks no person.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TypeVar

from django.db import connection

from workspaces.queries.database import is_away

logger = logging.getLogger(__name__)

PATIENCE_S = 120.0  # longer than a lease: the fence tells whether somebody else went on meanwhile
FIRST_WAIT_S, LONGEST_WAIT_S = 0.1, 1.0

T = TypeVar("T")


def patiently(write: Callable[[], object], *, written: Callable[[], bool], for_s: float = PATIENCE_S) -> None:
    """Do `write`, again while the database is away. Raises what `write` raises, and in the end that it is away.

    A commit may have been done although its answer was lost: `written` is asked before each repetition.
    """

    def again() -> None:
        if not written():
            write()

    try:
        write()
    except Exception as error:
        if not is_away(error):
            raise
        logger.warning("the database is away, what is in hand waits for it: %s", error)
        when_back(again, for_s=for_s)


def when_back(what: Callable[[], T], *, for_s: float = PATIENCE_S) -> T:
    """`what`, as soon as the database answers. Raises that it is away after `for_s` seconds."""
    until = time.monotonic() + for_s
    wait_s = FIRST_WAIT_S
    while True:
        connection.close()  # the one at hand is dead
        time.sleep(wait_s)
        try:
            return what()
        except Exception as error:
            if not is_away(error) or time.monotonic() > until:
                raise
        wait_s = min(wait_s * 2, LONGEST_WAIT_S)
