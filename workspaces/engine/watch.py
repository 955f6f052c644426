"""A thread of every worker process and of the scheduler's: it says that its process lives, and looks at what is
watched for alerts. So a look is taken while any of them lives, and each can tell that the others do not.

It has a connection of its own, and waits for nobody: what it finds is told by the courier. A worker's heart beats
here; the scheduler's beats in its own loop, after a round in which every part did its work.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable

from django.db import DatabaseError, InterfaceError, connection, connections

from agentdesk.health import broker_answers
from workspaces.actions import alert_watches, heartbeats
from workspaces.domain.states import ProcessRole
from workspaces.engine.keeper import outside_the_pool
from workspaces.queries.database import is_away

logger = logging.getLogger(__name__)

BEAT_S = 5.0
LOOK_S = 1.0
FORGET_S = 3_600.0


class Heart:
    """Of one process. `beat` may be called as often as one likes: it writes every five seconds, and when it ends."""

    def __init__(self, role: ProcessRole) -> None:
        self.role = role
        self.host = socket.gethostname()
        self.pid = os.getpid()
        self.key = f"{self.host}:{self.pid}:{secrets.token_hex(4)}"
        self._beaten_at = float("-inf")
        self._forgotten_at = float("-inf")
        self._told = False

    def beat(self, *, ending: bool = False) -> None:
        """Raises DatabaseError."""
        now = time.monotonic()
        if now - self._beaten_at < BEAT_S and ending == self._told:
            return
        heartbeats.beat(self.key, self.role, host=self.host, pid=self.pid, ending=ending)
        self._beaten_at, self._told = now, ending
        if now - self._forgotten_at > FORGET_S:
            self._forgotten_at = now
            heartbeats.forget_old()


class Watch:
    """`heart`: None where somebody else beats it."""

    def __init__(self, heart: Heart | None) -> None:
        self._heart = heart
        self._ending = False
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end_soon(self) -> None:
        """The process was told to end. Safe in a signal's handler; it beats and looks until the process is gone."""
        self._ending = True

    def stop(self, within_s: float = 10.0) -> None:
        self._stop.set()
        self._thread.join(within_s)

    def _run(self) -> None:
        connections["default"] = outside_the_pool()
        told = False
        try:
            while not self._stop.is_set():
                away = _away(self._once)
                if away is not None:
                    if not told:
                        logger.warning("the database does not answer the watch: %s", away)
                    connection.close()
                told = away is not None
                self._stop.wait(LOOK_S)
        finally:
            connection.close()

    def _once(self) -> None:
        if self._heart is not None:
            self._heart.beat(ending=self._ending)
        alert_watches.look(broker_answers=broker_answers)


def _away(part: Callable[[], None]) -> Exception | None:
    """What said that the database is away, if it is. Anything else is logged: the next look may do better."""
    try:
        part()
    except (DatabaseError, InterfaceError) as error:
        if is_away(error):
            return error
        logger.exception("the watch stumbled")
        connection.close()
    except Exception:
        logger.exception("the watch stumbled")
    return None


_of_worker: list[Watch] = []


def start_in_worker() -> None:
    _of_worker.append(Watch(Heart(ProcessRole.WORKER)))
    _of_worker[-1].start()


def worker_ends() -> None:
    for watch in _of_worker:
        watch.end_soon()
