"""An installation of its own for tests that break its parts: its own Postgres, Valkey, home and processes.

Within `with ground.spoken_to():` the models of the test's thread speak to the ground's database.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

import docker
import redis
from django.conf import settings
from django.db import connection, connections

from agentdesk import connections as addresses
from agentdesk import environment
from agentdesk.embedded.process import Child
from agentdesk.embedded.stack import Stack
from tests.harness import eventually
from workspaces.models import Task, Workspace
from workspaces.sandboxes import make_driver
from workspaces.sandboxes.base import Sandbox, SandboxSpec


@contextmanager
def speaking_to(url: str) -> Iterator[None]:
    """The models of this thread, on another database; no pool, so that nothing outlives it."""
    here = connections["default"]
    there = here.copy()
    given = addresses.django_database(url)
    there.settings_dict |= {name: given[name] for name in ("NAME", "USER", "PASSWORD", "HOST", "PORT")}
    there.settings_dict["OPTIONS"].pop("pool", None)
    there.settings_dict["CONN_HEALTH_CHECKS"] = True
    connections["default"] = there
    try:
        yield
    finally:
        there.close()
        connections["default"] = here


class Ground:
    """Servers at first; `worker()` and `scheduler()` start as many of those as are wanted."""

    def __init__(self, home: Path | None = None, *, driver: str = "local", **more: str) -> None:
        self.driver = driver
        self.home = home or Path(tempfile.mkdtemp(prefix="agentdesk-ground-"))
        # what the test seals, the ground's processes must be able to open
        environment.kept_secret(self.home, "field_keys", "\n".join(settings.FIELD_ENCRYPTION_KEYS))
        self.settings = {
            "AGENTDESK_SANDBOX_DRIVER": driver,
            "AGENTDESK_DEMO": "0",
            "AGENTDESK_LEASE_S": "3",
            "AGENTDESK_DRAIN_S": "1",
            "AGENTDESK_DB_POOL_TIMEOUT_S": "1",
            "AGENTDESK_WORKER_CONCURRENCY": "8",
            **more,
        }
        self.stack = Stack(self.home, {"postgres", "valkey"}, durable=False, extra_environment=self.settings)
        self.started: list[Child] = []

    def __enter__(self) -> Self:
        elsewhere = {name: os.environ.pop(name) for name in ("DATABASE_URL", "VALKEY_URL") if name in os.environ}
        try:
            self.stack.__enter__()
            self.manage("migrate", "-v0")
        except BaseException:
            self.close()
            raise
        finally:
            os.environ.update(elsewhere)
        return self

    @contextmanager
    def spoken_to(self) -> Iterator[None]:
        """Ends the processes that were started within."""
        with speaking_to(self.stack.environment["DATABASE_URL"]):
            try:
                yield
            finally:
                self.end_processes()
                if not self.stack.servers["postgres"].child.alive():
                    self.start_postgres()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.end_processes()
        if self.driver == "docker":
            self._let_go_of_containers()
        elif (self.home / "sandboxes" / "local").is_dir():
            driver = make_driver("local", self.home / "sandboxes" / "local")
            for key in driver.awake():
                driver.open(SandboxSpec(key=key)).stop()
        self.stack.close()
        shutil.rmtree(self.home, ignore_errors=True)

    def end_processes(self) -> None:
        while self.started:
            child = self.started.pop()
            child.kill()
            child.stop(5)

    def environment(self, **more: str) -> dict[str, str]:
        return {**os.environ, **self.stack.environment, **more}

    def manage(self, *words: str, **more: str) -> str:
        command = [sys.executable, str(environment.REPO / "manage.py"), *words]
        done = subprocess.run(
            command, cwd=environment.REPO, env=self.environment(**more), capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout

    def worker(self, name: str = "worker", **more: str) -> Child:
        """Started, and listening to its queue."""
        threads = more.get("AGENTDESK_WORKER_CONCURRENCY", self.settings["AGENTDESK_WORKER_CONCURRENCY"])
        celery = [sys.executable, "-m", "celery", "-A", "agentdesk", "worker", "--pool", "threads", "-n", f"{name}@%h"]
        child = self._child(name, [*celery, "--concurrency", threads, "--without-gossip", "--without-mingle"], more)
        eventually(lambda: " ready." in self.log(child), within_s=60, what=f"{name} is ready")
        return child

    def scheduler(self, name: str = "scheduler", **more: str) -> Child:
        program = [str(environment.REPO / "manage.py"), "scheduler", "--every", "0.3", "--again-after", "1.5"]
        return self._child(name, [sys.executable, *program], more)

    def log(self, child: Child) -> str:
        """What this run of it has logged."""
        with child.log.open(errors="replace") as file:
            file.seek(child.log_start)
            return file.read()

    def restart_postgres(self) -> None:
        """In order, while clients are connected: they are cut off."""
        self.stop_postgres()
        self.start_postgres()

    def stop_postgres(self) -> None:
        self.stack.servers["postgres"].stop()
        connection.close()  # the test's own

    def start_postgres(self) -> None:
        self.stack.servers["postgres"].start()

    def broker(self) -> redis.Redis:
        return redis.Redis.from_url(addresses.client_url(self.stack.environment["VALKEY_URL"]))

    def sandbox(self, workspace: Workspace) -> Sandbox:
        driver = make_driver(self.driver, self.home / "sandboxes" / self.driver)
        return driver.open(SandboxSpec(key=workspace.sandbox_key))

    def lines(self, task: Task, path: str) -> list[str]:
        return self.sandbox(task.workspace).read(path).decode().split()

    def _let_go_of_containers(self) -> None:
        """And of the disks that are mounted in this home."""
        root = self.home / "sandboxes" / "docker"
        site = hashlib.sha256(os.fsencode(root.resolve())).hexdigest()[:8]
        client = docker.from_env()
        for container in client.containers.list(all=True, filters={"label": f"agentdesk.site={site}"}):
            container.remove(force=True)
        client.close()
        for line in Path("/proc/mounts").read_text().splitlines():
            if (where := line.split()[1]).startswith(f"{self.home}/"):
                subprocess.run(["umount", where], check=False)

    def _child(self, name: str, argv: list[str], more: dict[str, str]) -> Child:
        child = Child(
            name,
            argv,
            run=self.stack.run,
            log=self.home / "log" / f"{name}.log",
            env=self.environment(**more),
            cwd=environment.REPO,
        )
        child.start()
        self.started.append(child)
        return child


def ended(*tasks: Task) -> bool:
    """False also while the database is away."""
    try:
        return not Task.objects.filter(pk__in=[task.pk for task in tasks], finished_at=None).exists()
    except Exception:  # noqa: BLE001 - asked again
        connection.close()
        return False
