"""The whole product as processes in a temporary home, for the browser's tests and pictures.

Reads go straight to the product's Postgres; writes go through prepare.py, or through the browser. Nothing here
uses Django's ORM: in a test process it is set up for another database.
"""

from __future__ import annotations

import http.client
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psycopg
from psycopg.rows import dict_row

from agentdesk import environment
from agentdesk.embedded.stack import PROGRAMS, Stack
from workspaces.sandboxes import make_driver
from workspaces.sandboxes.base import Sandbox, SandboxDriver, SandboxSpec, SandboxUnavailable
from workspaces.sandboxes.engines import connect

READY_WITHIN_S = 60


def no_engine() -> str:
    """Why containers cannot be used; empty when an engine answers."""
    try:
        connect().close()
    except SandboxUnavailable as error:
        return str(error)
    return ""


@contextmanager
def without(*names: str) -> Iterator[None]:
    """The product starts its own servers even where the test process was given others."""
    kept = {name: os.environ.pop(name) for name in names if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(kept)


class Product:
    """A context manager. `driver` is `docker` where an engine answers, else `local` (`why_local` says why)."""

    def __init__(self, *, port: int = 0, **more: str) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="agentdesk-browser-"))
        self.why_local = no_engine()
        self.driver = "local" if self.why_local else "docker"
        self.stack = Stack(
            self.home,
            port=port,
            durable=False,
            extra_environment={
                "AGENTDESK_SANDBOX_DRIVER": self.driver,
                "AGENTDESK_DEMO": "0",
                "AGENTDESK_LEASE_S": "3",
                "AGENTDESK_HTTP_PRIVATE": "127.0.0.0/8",
                "AGENTDESK_WEBHOOK_PRIVATE": "127.0.0.0/8",
                "AGENTDESK_DRAIN_S": "2",
                "AGENTDESK_WORKER_CONCURRENCY": "16",
                "AGENTDESK_STATIC_FROM_SOURCE": "0",
                **more,
            },
        )
        self._helper: subprocess.Popen[str] | None = None
        self._drivers: dict[str, SandboxDriver] = {}

    def __enter__(self) -> Self:
        try:
            with without("DATABASE_URL", "VALKEY_URL", "AGENTDESK_SESSION_COOKIE"):
                self.stack.open()
                self.stack.start_servers()
                self._run("agentdesk.prepare")
                for name in PROGRAMS:
                    self.stack.start_program(name)
                self._helper = self._popen("tests.browser.prepare")
                self._wait_until_ready()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        if self._helper is not None:
            assert self._helper.stdin is not None
            assert self._helper.stdout is not None
            self._helper.stdin.close()
            self._helper.wait(20)
            self._helper.stdout.close()
        containers = self._containers()
        self.stack.close()
        for container in containers:
            container.remove(force=True)
        for driver in self._drivers.values():
            driver.close()
        self._let_go_of_disks()
        shutil.rmtree(self.home, ignore_errors=True)

    @property
    def url(self) -> str:
        return f"http://localhost:{self.stack.port}"

    @property
    def cookie(self) -> str:
        return f"agentdesk_{self.stack.port}"

    # ---- writes

    def do(self, what: str, **arguments: Any) -> Any:
        """An order to prepare.py."""
        assert self._helper is not None
        assert self._helper.stdin is not None
        assert self._helper.stdout is not None
        self._helper.stdin.write(json.dumps({"do": what, **arguments}) + "\n")
        self._helper.stdin.flush()
        line = self._helper.stdout.readline()
        assert line, f"prepare.py ended; see {self.home}/log/prepare-browser.log"
        answer = json.loads(line)
        assert "error" not in answer, f"{what}: {answer['error']}"
        return answer["ok"]

    # ---- reads

    def rows(self, sql: str, *values: Any) -> list[dict[str, Any]]:
        with psycopg.connect(self.stack.environment["DATABASE_URL"], row_factory=dict_row) as connection:
            return connection.execute(sql, values).fetchall()  # type: ignore[arg-type]

    def task(self, task_id: int) -> dict[str, Any]:
        return self.rows("select * from workspaces_task where id = %s", task_id)[0]

    def seqs(self, task_id: int) -> list[int]:
        rows = self.rows("select seq from workspaces_event where task_id = %s order by seq", task_id)
        return [row["seq"] for row in rows]

    def events(self, task_id: int, kind: str) -> list[dict[str, Any]]:
        return self.rows("select * from workspaces_event where task_id = %s and kind = %s order by seq", task_id, kind)

    def checkpoints(self, task_id: int) -> dict[int, int]:
        """Step number → seq, of the current branch."""
        rows = self.rows(
            "select c.step_number, c.seq from workspaces_checkpoint c"
            " join workspaces_task t on t.branch_id = c.branch_id where t.id = %s order by c.seq",
            task_id,
        )
        return {row["step_number"]: row["seq"] for row in rows}

    def sandbox(self, workspace: dict[str, Any]) -> Sandbox:
        """The workspace's own sandbox, as the worker sees it."""
        name = workspace["driver"]
        if name not in self._drivers:
            self._drivers[name] = make_driver(name, self.home / "sandboxes" / name)
        return self._drivers[name].open(SandboxSpec(key=workspace["key"]))

    def container(self, workspace: dict[str, Any]) -> dict[str, Any]:
        """What `docker inspect` says of the workspace's container; empty when there is none."""
        for container in self._containers():
            if container.labels["agentdesk.sandbox"] == workspace["key"]:
                found: dict[str, Any] = container.client.api.inspect_container(container.id)
                return found
        return {}

    # ---- inside

    def _environment(self) -> dict[str, str]:
        return dict(os.environ) | self.stack.environment

    def _run(self, module: str) -> None:
        done = subprocess.run(
            [sys.executable, "-m", module],
            cwd=environment.REPO,
            env=self._environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{module}: {done.stdout[-2000:]}{done.stderr[-2000:]}"

    def _popen(self, module: str) -> subprocess.Popen[str]:
        with (self.home / "log" / "prepare-browser.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", module],
                cwd=environment.REPO,
                env=self._environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + READY_WITHIN_S
        while True:
            connection = http.client.HTTPConnection("localhost", self.stack.port, timeout=5)
            try:
                connection.request("GET", "/readyz")
                if connection.getresponse().status == http.client.OK:
                    return
            except OSError:
                pass
            finally:
                connection.close()
            web = self.stack.programs["web"]
            assert web.alive(), f"the web server ended: {web.last_words(3)}"
            assert time.monotonic() < deadline, f"not ready after {READY_WITHIN_S} s: {web.last_words(3)}"
            time.sleep(0.1)

    def _containers(self) -> list[Any]:
        """Those of this home, by what is mounted into them."""
        if self.driver != "docker":
            return []
        if not hasattr(self, "_engine"):
            self._engine = connect()
        found = self._engine.containers.list(all=True, filters={"label": "agentdesk.sandbox"})
        return [
            each for each in found if any(mount["Source"].startswith(f"{self.home}/") for mount in each.attrs["Mounts"])
        ]

    def _let_go_of_disks(self) -> None:
        """A store that is a mounted file (btrfs) is unmounted before its folder goes."""
        if hasattr(self, "_engine"):
            self._engine.close()
        for line in reversed(Path("/proc/mounts").read_text().splitlines()) if Path("/proc/mounts").exists() else ():
            where = line.split()[1]
            if where.startswith(f"{self.home}/"):
                subprocess.run(["umount", where], check=False)
