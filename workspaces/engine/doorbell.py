"""Hears, from the database itself, of each commit that has something to tell. Never the only way to learn of it.

A notification comes with the commit, needs no broker and no free thread of a worker. Where none can be heard (the
database is away, or a pooler stands between) the courier's own look of once a second remains.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from workspaces.domain.alerts import CHANNEL
from workspaces.engine.keeper import outside_the_pool
from workspaces.queries.database import is_away

logger = logging.getLogger(__name__)

ENDS_WITHIN_S = 0.5
AGAIN_AFTER_S = 1.0


def listen(heard: Callable[[], None], ended: threading.Event) -> None:
    """Until `ended`, in the thread that calls it: `heard` is called for what was committed."""
    while not ended.is_set():
        try:
            _listen(heard, ended)
        except Exception as error:
            if not is_away(error):
                logger.exception("what is to be told is not heard of at once, but within a second")
            ended.wait(AGAIN_AFTER_S)


def _listen(heard: Callable[[], None], ended: threading.Event) -> None:
    own = outside_the_pool()
    try:
        with own.cursor() as cursor:
            cursor.execute(f"LISTEN {CHANNEL}")
        heard()  # of what came before
        while not ended.is_set():
            for _ in own.connection.notifies(timeout=ENDS_WITHIN_S, stop_after=1):
                heard()
    finally:
        own.close()
