"""What counts as a database that is away, and what is a real fault that a person has to hear of."""

from __future__ import annotations

import os

import psycopg
import pytest
from django.db import DataError, IntegrityError, connection, transaction
from django.db.utils import InterfaceError, OperationalError, ProgrammingError
from psycopg_pool import ConnectionPool, PoolTimeout

from workspaces.engine.patience import patiently, when_back
from workspaces.queries.database import is_away


def raised(statement: str) -> Exception:
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(statement)
    except Exception as error:  # noqa: BLE001 - that is what is asked for
        return error
    raise AssertionError("nothing was raised")


@pytest.mark.django_db(transaction=True)
def test_a_connection_that_is_cut_off_is_away_and_a_bad_statement_is_not() -> None:
    assert not is_away(raised("SELECT 1/0"))
    assert not is_away(raised("SELECT nothing"))
    assert not is_away(raised("SET LOCAL statement_timeout = 1; SELECT pg_sleep(1)")), "too slow is not away"
    assert is_away(raised("SELECT pg_terminate_backend(pg_backend_pid())"))
    connection.close()


def test_no_server_no_connection_no_lock_to_give_and_no_more_room_are_away() -> None:
    with pytest.raises(psycopg.OperationalError) as refused:
        psycopg.connect("host=/nowhere dbname=x", connect_timeout=2)
    assert is_away(refused.value)
    with (
        ConnectionPool(os.environ["DATABASE_URL"], min_size=1, max_size=1, open=True) as pool,
        pool.connection(),
        pytest.raises(PoolTimeout) as none_left,
    ):
        pool.getconn(timeout=0.1)
    assert is_away(none_left.value)
    for kind in (psycopg.errors.TooManyConnections, psycopg.errors.CannotConnectNow, psycopg.errors.DiskFull):
        assert is_away(wrapped(OperationalError, kind("x")))
    assert is_away(InterfaceError("connection already closed"))
    for kind in (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected):
        assert is_away(wrapped(OperationalError, kind("x")))
    for error in (IntegrityError("x"), DataError("x"), ProgrammingError("x"), ValueError("x"), OSError("x"), None):
        assert not is_away(error)


def wrapped(kind: type[Exception], cause: Exception) -> Exception:
    error = kind("x")
    error.__cause__ = cause
    return error


@pytest.mark.django_db(transaction=True)
def test_what_was_written_although_the_answer_was_lost_is_not_written_again() -> None:
    written: list[int] = []

    def commit_and_lose_the_answer() -> None:
        written.append(1)
        raise OperationalError("server closed the connection unexpectedly")

    patiently(commit_and_lose_the_answer, written=lambda: bool(written))
    assert written == [1]

    tries: list[int] = []

    def fail_twice() -> None:
        tries.append(1)
        if len(tries) < 3:
            raise OperationalError("connection refused")

    patiently(fail_twice, written=lambda: False)
    assert len(tries) == 3


@pytest.mark.django_db(transaction=True)
def test_patience_ends_and_has_none_for_faults() -> None:
    def away() -> None:
        raise OperationalError("connection refused")

    with pytest.raises(OperationalError):
        when_back(away, for_s=0.3)
    with pytest.raises(ZeroDivisionError):
        patiently(lambda: 1 / 0, written=lambda: False)
