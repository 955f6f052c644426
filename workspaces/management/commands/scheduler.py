"""Dispatches what is due, ends waits, expires questions: a loop of small queries. Any number may run.

A courier runs beside it: what is to be told goes out also while no worker answers.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandParser
from django.db import DatabaseError, InterfaceError, connection
from redis.exceptions import RedisError

from workspaces.actions import (
    budget_signals,
    budget_waits,
    mailboxes,
    metering,
    quota_sweep,
    retention,
    schedule,
    signin,
    sleep,
    terminal,
)
from workspaces.domain.states import ProcessRole
from workspaces.engine import courier
from workspaces.engine.watch import Heart, Watch
from workspaces.queries.database import is_away

logger = logging.getLogger(__name__)

TIDY_EVERY_S = 60.0


class Command(BaseCommand):
    help = "Run the scheduler: re-dispatch due tasks, end waits, expire escalations."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--every", type=float, default=1.0, help="seconds between two looks")
        parser.add_argument(
            "--again-after", type=float, default=5.0, help="seconds after which an unanswered call is repeated"
        )
        parser.add_argument("--once", action="store_true", help="look once and end")

    def handle(self, *args: Any, every: float, again_after: float, once: bool, **options: Any) -> None:
        stop = threading.Event()
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, lambda *_: stop.set())
        heart, watch = Heart(ProcessRole.SCHEDULER), Watch(None)
        if not once:
            watch.start()
            courier.start()
        try:
            self._run(heart, stop, every=every, again_after=again_after, once=once)
        finally:
            if not once:
                courier.end()
                watch.stop()
                with contextlib.suppress(DatabaseError, InterfaceError):
                    heart.beat(ending=True)
                connection.close()
                courier.join()

    def _run(self, heart: Heart, stop: threading.Event, *, every: float, again_after: float, once: bool) -> None:
        tidied_at = -TIDY_EVERY_S
        while True:
            try:
                parts = _parts(again_after)
                if time.monotonic() - tidied_at >= TIDY_EVERY_S:
                    tidied_at = time.monotonic()
                    parts = [*_tidying(), *parts]
                done = [_done(part) for part in parts]
                if all(done):
                    heart.beat()
            except (DatabaseError, InterfaceError) as error:
                logger.warning("the database does not answer the scheduler: %s", error)
            except RedisError as error:
                logger.warning("Valkey does not answer the scheduler: %s", error)
            finally:
                connection.close()
            if once or stop.wait(every):
                return


def _tidying() -> list[Callable[[], object]]:
    return [
        retention.call_housekeeping,
        metering.call_for_reading,
        budget_signals.end_periods,
        mailboxes.call_for_mail,
    ]


def _parts(again_after_s: float) -> list[Callable[[], object]]:
    return [
        quota_sweep.look,
        schedule.end_waits,
        budget_waits.wake_for_room,
        schedule.expire_due,
        lambda: schedule.redispatch_due(after_s=again_after_s),
        sleep.end_claims,
        lambda: sleep.call_next(settings.WAKES_AT_ONCE),
        sleep.call_left,
        lambda: sleep.call_idle(settings.IDLE_TIMEOUT_S),
        schedule.call_for_nodes,
        lambda: terminal.redispatch_commands(after_s=again_after_s),
        signin.forget_old_tries,
    ]


def _done(part: Callable[[], object]) -> bool:
    """What one part stumbles over must not keep the others from their work; without them no task would go on.

    Raises what says that the database, or the broker, is away: then there is nothing that the others could do.
    """
    try:
        part()
    except RedisError:
        raise
    except Exception as error:
        if is_away(error):
            raise
        logger.exception("a part of the scheduler's look failed; the others go on")
        return False
    return True
