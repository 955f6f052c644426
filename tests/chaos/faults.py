"""What goes wrong, and when: a schedule that a seed makes, the same each time. Knows nothing of the work."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import docker.errors
import psycopg
import redis
import requests.exceptions

from agentdesk.connections import embedded_database_url, embedded_valkey_url
from agentdesk.embedded.process import is_running
from tests.chaos.engine import Engine
from tests.chaos.product import Product

KILLS = [
    *("worker", "worker", "worker2", "worker2", "scheduler", "web", "valkey", "postgres", "postgres"),
    *("dockerd", "container", "container", "container", "container"),
]
STOPS = ["worker", "worker2", "scheduler", "web", "valkey", "postgres", "dockerd"]
ENGINE_AWAY_S = 1.0
CUTS = ["broker emptied", "broker connections dropped", "database connections dropped"]


@dataclass(frozen=True, slots=True)
class Fault:
    """`at` in seconds from the beginning. `pick` (0 to 1) chooses among what there is then."""

    at: float
    how: str  # kill, stop, cut
    what: str
    pick: float


def schedule(seed: int, *, kills: int, stops: int, cuts: int, gap_s: tuple[float, float]) -> list[Fault]:
    rng = random.Random(f"faults {seed}")

    def some(of: list[str], count: int) -> list[str]:
        deck: list[str] = []
        while len(deck) < count:
            deck += rng.sample(of, len(of))
        return deck[:count]

    chosen = [("kill", what) for what in some(KILLS, kills)]
    chosen += [("stop", what) for what in some(STOPS, stops)] + [("cut", what) for what in some(CUTS, cuts)]
    rng.shuffle(chosen)
    at, faults = 3.0, []
    for how, what in chosen:
        at += rng.uniform(*gap_s)
        faults.append(Fault(round(at, 2), how, what, rng.random()))
    return faults


class Saboteur:
    """Carries a schedule out. `done` tells what really happened, `missed` what found nothing to harm."""

    def __init__(self, product: Product, engine: Engine, faults: list[Fault], *, stop_s: float) -> None:
        self.product = product
        self.engine = engine
        self.faults = faults
        self.stop_s = stop_s
        self.done: list[Fault] = []
        self.missed: list[Fault] = []
        self._stopped: list[threading.Thread] = []
        self._engine_again: float | None = None

    def run(self, tell: Callable[[str], None], enough: Callable[[], bool]) -> None:
        """Until the schedule or the work is at its end; everything that was stopped goes on then."""
        began = time.monotonic()
        for fault in self.faults:
            while time.monotonic() - began < fault.at:
                if enough():
                    break
                self.keep_up()
                time.sleep(0.1)
            if enough():
                break
            happened = self._apply(fault)
            (self.done if happened else self.missed).append(fault)
            tell(f"{time.monotonic() - began:6.1f} s  {fault.how} {fault.what}{'' if happened else ' (nothing there)'}")
        for thread in self._stopped:
            thread.join()

    def keep_up(self) -> None:
        """Start again what was killed and has no supervisor. From the main thread: its end is what ends them."""
        self.product.keep_up()
        if self._engine_again is not None and time.monotonic() > self._engine_again:
            self._engine_again = None
            self.engine.start()

    def _apply(self, fault: Fault) -> bool:
        with contextlib.suppress(
            ProcessLookupError,
            psycopg.Error,
            redis.RedisError,
            docker.errors.DockerException,
            requests.exceptions.RequestException,
        ):
            match fault.how, fault.what:
                case "kill", "container":
                    return self._kill_container(fault.pick)
                case "kill", "dockerd":
                    return self._kill_engine()
                case "kill", part:
                    return self._signal(part, signal.SIGKILL) is not None
                case "stop", part:
                    return self._stop_for_a_while(part)
                case _, cut:
                    return self._cut(cut)
        return False

    def _signal(self, part: str, number: signal.Signals) -> tuple[int, str] | None:
        found = self.product.pid(part)
        if found is not None:
            os.kill(found[0], number)
        return found

    def _kill_container(self, pick: float) -> bool:
        containers = self.engine.containers()
        if not containers:
            return False
        self.engine.kill_container(containers[int(pick * len(containers))])
        return True

    def _kill_engine(self) -> bool:
        if self.engine.pid is None:
            return False
        self.engine.kill()
        self._engine_again = time.monotonic() + ENGINE_AWAY_S
        return True

    def _stop_for_a_while(self, part: str) -> bool:
        if part == "dockerd":
            pid = self.engine.pid
            if pid is None:
                return False
            os.kill(pid, signal.SIGSTOP)
            still = lambda: self.engine.pid == pid  # noqa: E731
        else:
            found = self._signal(part, signal.SIGSTOP)
            if found is None:
                return False
            pid = found[0]
            still = lambda: is_running(*found)  # noqa: E731

        def go_on() -> None:
            time.sleep(self.stop_s)
            if still():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

        self._stopped.append(threading.Thread(target=go_on))
        self._stopped[-1].start()
        return True

    def _cut(self, what: str) -> bool:
        if what == "database connections dropped":
            with psycopg.connect(embedded_database_url(self.product.run), connect_timeout=5) as connection:
                connection.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
                )
            return True
        client = redis.Redis.from_url(embedded_valkey_url(self.product.run), socket_timeout=5)
        try:
            if what == "broker emptied":
                client.flushall()
            else:
                for kind in ("normal", "pubsub"):
                    client.client_kill_filter(_type=kind, skipme=True)
            return True
        finally:
            client.close()
