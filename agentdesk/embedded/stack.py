"""The product as processes on one machine: servers, web, worker, scheduler. For `make up` and for tests.

    with Stack(home, parts={"postgres", "valkey"}) as stack:
        os.environ |= stack.environment

A part whose address is given (`DATABASE_URL`, `VALKEY_URL`) is not started.
"""

from __future__ import annotations

import errno
import os
import signal
import socket
import sys
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from agentdesk import environment
from agentdesk.embedded.lock import HomeLock
from agentdesk.embedded.postgres import Postgres
from agentdesk.embedded.process import Child, StartError
from agentdesk.embedded.valkey import Valkey

SERVERS = ("postgres", "valkey")
PROGRAMS = ("web", "worker", "scheduler")
ADDRESSES = {"postgres": "DATABASE_URL", "valkey": "VALKEY_URL"}
STOP_S = 12.0  # for an end in order, after what a worker gives to the phases that it runs


class Stack:
    """A context manager. `environment` is what a process needs to belong to it."""

    def __init__(
        self,
        home: Path,
        parts: Collection[str] = (*SERVERS, *PROGRAMS),
        *,
        port: int = 0,
        bind: str = "127.0.0.1",
        durable: bool = True,
        extra_environment: Mapping[str, str] | None = None,
        say: Callable[[str, str], None] = lambda part, words: None,
    ) -> None:
        self.home = home.absolute()
        self.run = environment.run_dir(self.home)
        self.parts = set(parts)
        self.bind = bind
        self.port = port
        self.servers: dict[str, Postgres | Valkey] = {}
        self.programs: dict[str, Child] = {}
        self.environment: dict[str, str] = {"AGENTDESK_HOME": str(self.home), **(extra_environment or {})}
        self._durable = durable
        self._say = say
        self._socket: socket.socket | None = None
        self._closing = ExitStack()

    def __enter__(self) -> Self:
        try:
            self.open()
            self.start_servers()
            for name in PROGRAMS:
                if name in self.parts:
                    self.start_program(name)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def open(self) -> None:
        """Take the home and the port; nothing runs yet."""
        try:
            for folder in (self.home, self.home / "log", self.run):
                environment.make_private(folder)
            environment.secret_key(self.home)
            environment.field_keys(self.home)
        except OSError as error:
            raise StartError(
                f"{self.home} cannot be used ({error}): point AGENTDESK_HOME at a folder of your own."
            ) from None
        self._closing.enter_context(HomeLock(self.home))
        if "web" in self.parts:
            self._socket = self._closing.enter_context(bound_socket(self.bind, self.port))
            self.port = self._socket.getsockname()[1]
            self.environment["AGENTDESK_PORT"] = str(self.port)

    def start_servers(self) -> None:
        kinds: dict[str, type[Postgres] | type[Valkey]] = {"postgres": Postgres, "valkey": Valkey}
        for name, kind in kinds.items():
            given = self.environment.get(ADDRESSES[name]) or environment.text(ADDRESSES[name])
            if given:
                self.environment[ADDRESSES[name]] = given
                self._say(name, f"yours, by {ADDRESSES[name]}")
            elif name in self.parts:
                server = kind(self.home, self.run, durable=self._durable)
                self.servers[name] = server
                server.start()
                self.environment[ADDRESSES[name]] = server.url
                self._say(name, f"runs (pid {server.child.pid})")

    def start_program(self, name: str) -> Child:
        child = self.programs[name] = self._program(name)
        child.start()
        return child

    def stop_programs(self) -> list[str]:
        """Side by side; gives the names that had to be killed."""
        forced = []
        limit_s = self._drain_s() + STOP_S
        for child in self.programs.values():
            child.ask_to_stop()
        for name in PROGRAMS:
            if name in self.programs and not self.programs.pop(name).stop(limit_s):
                forced.append(name)
        return forced

    def close(self) -> list[str]:
        """Stop everything: programs, then the servers. Gives the names that had to be killed."""
        forced = self.stop_programs()
        for name in reversed(SERVERS):
            if name in self.servers and not self.servers.pop(name).stop():
                forced.append(name)
        self._closing.close()
        self._socket = None
        return forced

    def children(self) -> dict[str, Child]:
        return {name: server.child for name, server in self.servers.items()} | self.programs

    def _drain_s(self) -> float:
        given = self.environment.get("AGENTDESK_DRAIN_S")
        return float(given) if given else environment.number("AGENTDESK_DRAIN_S", 30)

    def _program(self, name: str) -> Child:
        env = dict(os.environ) | self.environment
        pass_fds: list[int] = []
        manage = str(environment.REPO / "manage.py")
        if name == "web":
            if self._socket is None:
                raise StartError("The web server needs its port first.")
            pass_fds = [self._socket.fileno()]
            argv = [sys.executable, "-m", "agentdesk.serve", "--fd", str(self._socket.fileno())]
        elif name == "worker":
            threads = environment.number("AGENTDESK_WORKER_CONCURRENCY", 64, least=1)
            env.setdefault("AGENTDESK_DB_POOL_MAX", str(threads + 4))  # a thread, a connection
            argv = [sys.executable, "-m", "celery", "-A", "agentdesk", "worker", "--pool", "threads"]
            argv += ["--concurrency", str(threads), "--without-gossip", "--without-mingle"]
        else:
            argv = [sys.executable, manage, name]
        return Child(
            name,
            argv,
            run=self.run,
            log=self.home / "log" / f"{name}.log",
            env=env,
            cwd=environment.REPO,
            pass_fds=pass_fds,
            stop_signal=signal.SIGTERM,
            death_signal=signal.SIGKILL,  # nobody is left to wait for an orderly end
        )


def bound_socket(bind: str, port: int) -> socket.socket:
    """The web server's address, taken before anything else starts. Port 0 takes any free one."""
    family = socket.AF_INET6 if ":" in bind else socket.AF_INET
    taken = socket.socket(family, socket.SOCK_STREAM)
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        taken.bind((bind, port))
        taken.listen(1) if port else None
    except OSError as error:
        taken.close()
        raise StartError(_why_not(bind, port, error)) from None
    return taken


def _why_not(bind: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"Port {port} is in use. Stop what uses it, or take another: AGENTDESK_PORT={port + 1} make up"
    if error.errno == errno.EACCES:
        return f"Port {port} needs root. Take one above 1024: AGENTDESK_PORT=8700 make up"
    return f"Cannot listen on {bind}: {error.strerror}. Set AGENTDESK_BIND to an address of this machine."
