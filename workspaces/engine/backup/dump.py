"""The database's part: Postgres' own pg_dump and pg_restore, of the embedded package or from PATH."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from django.conf import settings
from django.db import connection, transaction

from agentdesk.embedded.postgres import binaries
from agentdesk.embedded.process import StartError
from workspaces.engine.backup.manifest import BackupError


@contextmanager
def one_view() -> Iterator[str]:
    """What is read in the block is one state of the database; gives its name, by which `dump` sees the same."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        cursor.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
        cursor.execute("SELECT pg_export_snapshot()")
        yield cursor.fetchone()[0]


def dump(view: str, target: Path) -> None:
    """Raises BackupError."""
    _run("pg_dump", "--format=custom", "--no-owner", "--no-privileges", f"--snapshot={view}", f"--file={target}")


def load(source: Path) -> None:
    """Into the database, whose own (empty) tables go. Raises BackupError."""
    with connection.cursor() as cursor:
        cursor.execute("DROP SCHEMA public CASCADE")
        cursor.execute("CREATE SCHEMA public")
    connection.close()
    _run(
        "pg_restore",
        *("--no-owner", "--no-privileges", "--exit-on-error", "--single-transaction"),
        f"--dbname={settings.DATABASE['NAME']}",
        str(source),
    )


def has_tables() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT to_regclass('workspaces_user') IS NOT NULL")
        return bool(cursor.fetchone()[0])


def server_version() -> str:
    with connection.cursor() as cursor:
        cursor.execute("SHOW server_version")
        return str(cursor.fetchone()[0]).split()[0]


def _run(program: str, *arguments: str) -> None:
    command = [str(_found(program)), "--no-password", *arguments]
    done = subprocess.run(command, env=_environment(), stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if done.returncode:
        words = done.stderr.decode(errors="replace").strip().splitlines()
        raise BackupError(f"{program} failed: {' | '.join(words[-3:])}")


def _found(program: str) -> Path:
    """One that is not older than the server."""
    wanted = int(server_version().partition(".")[0])
    places: list[Path] = []
    with contextlib.suppress(StartError):  # the package is not installed: the server is somebody else's
        places.append(binaries() / program)
    if on_path := shutil.which(program):
        places.append(Path(on_path))
    for place in places:
        told = subprocess.run([place, "--version"], capture_output=True, text=True, check=False).stdout.split()
        if told and int(told[2].partition(".")[0]) >= wanted:
            return place
    raise BackupError(
        f"There is no {program} of Postgres {wanted} or newer: install the client programs, or put them on PATH."
    )


def _environment() -> dict[str, str]:
    """libpq's variables: a password is in no command line."""
    told = settings.DATABASE
    given = {
        "PGHOST": told["HOST"],
        "PGPORT": told["PORT"],
        "PGUSER": told["USER"],
        "PGPASSWORD": told["PASSWORD"],
        "PGDATABASE": connection.settings_dict["NAME"],
        "PGSSLMODE": told["OPTIONS"].get("sslmode", ""),
        "PGSSLROOTCERT": told["OPTIONS"].get("sslrootcert", ""),
    }
    return {**os.environ, **{name: str(value) for name, value in given.items() if value}}
