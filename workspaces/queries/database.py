"""About the database server itself: what time it is, and whether an error says that it is away. Reads no table."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

import psycopg
from django.db import Error as DjangoError
from django.db import InterfaceError, OperationalError, connection

# Classes of SQLSTATE (Postgres manual, appendix A): no connection; too few resources, its own disk among them
AWAY_CLASSES = ("08", "53")
AWAY_STATES = ("57P01", "57P02", "57P03", "57P05", "25006")  # stops, crashed, starts, cut off; a standby for now
BUSY_STATES = ("40001", "40P01", "55P03")  # it lost to another transaction, a deadlock, a lock not given in time

COLLECTOR_LOCK = 7_411_905  # the advisory lock of whoever drops snapshots (exclusive) or needs them all (shared)


@contextmanager
def collector_held_off() -> Iterator[None]:
    """No snapshot is dropped from the store meanwhile. Waits for a collection that is under way."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_lock_shared(%s)", [COLLECTOR_LOCK])
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_unlock_shared(%s)", [COLLECTOR_LOCK])


@contextmanager
def collecting() -> Iterator[bool]:
    """Leave to drop snapshots from the stores; False while a backup copies them, or another worker collects."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_lock(%s)", [COLLECTOR_LOCK])
        mine = bool(cursor.fetchone()[0])
    try:
        yield mine
    finally:
        if mine:
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_advisory_unlock(%s)", [COLLECTOR_LOCK])


def database_now() -> datetime:
    """The database's clock, aware UTC: the one clock that every process of an installation shares."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        now: datetime = cursor.fetchone()[0]
    return now


def is_away(error: BaseException | None) -> bool:
    """Whether it only says that the database cannot answer now: nothing is wrong with what was asked of it.

    Also a connection that broke in mid-question, a pool that has none to give, and a lock that somebody else had for
    too long. Not a statement that was too slow: it would be so again.
    """
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if isinstance(error, psycopg.Error) and error.sqlstate:
            return error.sqlstate[:2] in AWAY_CLASSES or error.sqlstate in AWAY_STATES + BUSY_STATES
        if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
            return True  # the client's own words: refused, broken, closed, none in the pool
        cause = error.__cause__
        if cause is None and isinstance(error, OperationalError | InterfaceError):
            return True  # Django's own: the connection is closed
        error = cause if isinstance(cause, psycopg.Error | DjangoError) else None
    return False
