"""Questions to the database server itself: what time it is. Reads no table."""

from __future__ import annotations

from datetime import datetime

from django.db import connection


def database_now() -> datetime:
    """The database's clock, aware UTC: the one clock that every process of an installation shares."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        now: datetime = cursor.fetchone()[0]
    return now
