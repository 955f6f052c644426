"""Brings everything up in order, keeps it up, and takes it down in order. Never runs product code itself.

Each child dies with this process, even when it is killed; a child that dies is started again, later each time.
"""

from __future__ import annotations

import http.client
import os
import re
import signal
import subprocess
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import FrameType

from agentdesk import environment
from agentdesk.embedded.process import Child, StartError, leashed, rotate
from agentdesk.embedded.stack import PROGRAMS, Stack
from agentdesk.embedded.tail import Tail

READY_WITHIN_S = 90
TICK_S = 0.25
STEADY_S = 60.0  # who ran this long is trusted again
WAIT_MAX_S = 30.0
GIVE_UP_AFTER = 8  # starts in a row that did not last


class Stopped(KeyboardInterrupt):
    """A signal asked for the end."""


class Restarts:
    """When a dead child may start again: after 0.5, 1, 2 … 30 seconds; forgiven after a steady minute."""

    def __init__(self) -> None:
        self.failures = 0
        self.at: float | None = None

    def died(self, *, after_s: float, now: float) -> float:
        """Notes a death and gives the seconds until the next start."""
        self.failures = 1 if after_s >= STEADY_S else self.failures + 1
        wait = min(WAIT_MAX_S, 0.5 * 2 ** (self.failures - 1))
        self.at = now + wait
        return wait

    def due(self, now: float) -> bool:
        return self.at is not None and now >= self.at

    @property
    def hopeless(self) -> bool:
        return self.failures >= GIVE_UP_AFTER


REST_S = 30.0  # for stopping every sandbox at the end


class Supervisor:
    def __init__(self) -> None:
        self.home = environment.home()
        self.stack = Stack(
            self.home,
            port=environment.number("AGENTDESK_PORT", 8700, least=1),
            bind=environment.text("AGENTDESK_BIND", "127.0.0.1"),
            say=say,
        )
        self.restarts: dict[str, Restarts] = {}
        self.tails: dict[str, Tail] = {}

    def run(self) -> None:
        """Returns when asked to stop. Raises StartError, with one line for the user."""
        began = time.monotonic()
        print(f"agentdesk {_version()} starts; everything it keeps lies in {self.home}", flush=True)
        try:
            self.stack.open()
            self.stack.start_servers()
            self._choose_sandboxes()
            self._prepare()
            for name in PROGRAMS:
                child = self.stack.start_program(name)
                self.tails[name] = Tail(child.log, child.log_start)
                say(name, f"starts (pid {child.pid}, log {child.log})")
            self._wait_for_web()
            self._welcome(time.monotonic() - began)
            while True:
                self._tick()
                time.sleep(TICK_S)
        except Stopped:
            print("\nagentdesk stops …", flush=True)
        finally:
            _on_signals(self._hurry)
            started = bool(self.stack.programs)
            forced = self.stack.stop_programs()
            if started:
                self._rest_sandboxes()
            forced += self.stack.close()
            if forced:
                print(f"  had to be ended by force: {', '.join(forced)}", flush=True)
        print("agentdesk stopped.", flush=True)

    def _choose_sandboxes(self) -> None:
        wish = environment.one_of("AGENTDESK_SANDBOX_DRIVER", ("auto", "docker", "local"))
        answers = engine_version() if wish != "local" else None
        driver = "docker" if wish == "docker" or answers else "local"
        self.stack.environment["AGENTDESK_SANDBOX_DRIVER"] = driver
        if answers:
            say("sandboxes", f"Docker engine {answers}")
        elif wish == "docker":
            raise StartError(
                "No Docker engine answers. Start one (dockerd, or `systemctl start docker`), or run without "
                "containers: AGENTDESK_SANDBOX_DRIVER=local make up"
            )
        else:
            say("sandboxes", "NO ISOLATION: no Docker engine, so agents' commands run as this very user.")

    def _prepare(self) -> None:
        log = self.home / "log" / "prepare.log"
        rotate(log)
        problem = ""
        with (
            log.open("ab") as errors,
            subprocess.Popen(
                leashed([sys.executable, "-m", "agentdesk.prepare"], signal.SIGKILL),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=environment.REPO,
                env=dict(os.environ) | self.stack.environment,
            ) as process,
        ):
            try:
                for line in process.stdout or ():
                    part, _, words = line.rstrip("\n").partition("\t")
                    if part == "error":
                        problem = words
                    elif words:
                        say(part, words)
            except BaseException:
                process.kill()
                raise
        if process.returncode:
            raise StartError(problem or f"The preparation failed: {_last_line(log)} (all of it in {log})")

    def _wait_for_web(self) -> None:
        deadline = time.monotonic() + READY_WITHIN_S
        web = self.stack.programs["web"]
        while not self._ready():
            if not web.alive():
                raise StartError(f"The web server ended while starting: {web.last_words(1)} (see {web.log})")
            if time.monotonic() > deadline:
                raise StartError(f"The web server is not ready after {READY_WITHIN_S} s; see {web.log}")
            time.sleep(0.1)

    def _ready(self) -> bool:
        host = "127.0.0.1" if self.stack.bind in ("0.0.0.0", "::") else self.stack.bind  # noqa: S104
        connection = http.client.HTTPConnection(host, self.stack.port, timeout=10)
        try:
            connection.request("GET", "/readyz", headers={"Host": self._host()})
            return connection.getresponse().status == http.client.OK
        except OSError:
            return False
        finally:
            connection.close()

    def _rest_sandboxes(self) -> None:
        """Idle ones are stopped; one with a command in flight is frozen, so that nothing runs and nothing is lost."""
        try:
            done = subprocess.run(
                [sys.executable, str(environment.REPO / "manage.py"), "rest_sandboxes"],
                env=dict(os.environ) | self.stack.environment,
                stdout=subprocess.PIPE,
                text=True,
                timeout=REST_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            print(f"  sandboxes   still being stopped after {REST_S:g} s, left alone", flush=True)
            return
        for line in done.stdout.splitlines():
            print(f"  sandboxes   {line}", flush=True)

    def _host(self) -> str:
        """A host name that the site answers to."""
        first = (environment.words("AGENTDESK_ALLOWED_HOSTS") or ["localhost"])[0]
        return "localhost" if first == "*" else first.lstrip(".")

    def _welcome(self, seconds: float) -> None:
        print(f"\nReady after {seconds:.1f} s:  http://{self._host()}:{self.stack.port}/", flush=True)
        login = self.home / "demo-login"  # written by `manage.py seed_demo`
        if login.exists():
            print(login.read_text().rstrip(), flush=True)
        print("Ctrl-C stops everything; `make up` goes on with the same data.\n", flush=True)

    def _tick(self) -> None:
        now = time.monotonic()
        for name, child in self.stack.children().items():
            record = self.restarts.setdefault(name, Restarts())
            if not child.alive() and record.at is None:
                wait = record.died(after_s=now - child.started_at, now=now)
                print(f"{name}: ended with status {child.returncode()}, again in {wait:g} s", flush=True)
                if record.hopeless:
                    raise StartError(
                        f"{name} died {record.failures} times in a row: {child.last_words(1)} (see {child.log})"
                    )
            elif record.due(now):
                record.at = None
                self._again(name, child, record)
        for name, tail in self.tails.items():
            for line in tail.news():
                print(f"{name}: {line}", flush=True)

    def _again(self, name: str, child: Child, record: Restarts) -> None:
        server = self.stack.servers.get(name)
        try:
            (server or child).start()
        except StartError as error:
            print(f"{name}: {error}", flush=True)
            record.died(after_s=0, now=time.monotonic())
            return
        print(f"{name}: runs again (pid {child.pid})", flush=True)

    def _hurry(self, number: int, frame: FrameType | None) -> None:
        """Asked a second time: do not wait for anybody's orderly end, except Postgres'."""
        for child in list(self.stack.programs.values()):
            child.kill()


def say(part: str, words: str) -> None:
    print(f"  {part:<11} {words}", flush=True)


def engine_version() -> str | None:
    """The version of the first Docker engine that answers, of those that this installation names."""
    from workspaces.sandboxes.base import SandboxUnavailable
    from workspaces.sandboxes.engines import node_engine

    for name, address in environment.nodes("AGENTDESK_NODES").items():
        try:
            return node_engine(name, address, environment.text("AGENTDESK_NODES_TLS")).facts().version
        except SandboxUnavailable:
            continue
    return None


def main() -> int:
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]

    def stop(number: int, frame: FrameType | None) -> None:
        raise Stopped

    _on_signals(stop)
    try:
        Supervisor().run()
    except (StartError, environment.SettingError) as error:
        print(f"\nagentdesk cannot run. {error}", file=sys.stderr, flush=True)
        return 1
    except Stopped:
        pass
    return 0


def _on_signals(handler: object) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, handler)  # type: ignore[arg-type]


def _version() -> str:
    try:
        return version("agentdesk")
    except PackageNotFoundError:
        found = re.search(r'^version = "(.+)"$', (environment.REPO / "pyproject.toml").read_text(), re.MULTILINE)
        return found[1] if found else ""


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1].strip() if lines else "it said nothing"
