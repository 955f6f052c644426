"""Alerts with everything that sends them as processes: a receiver, workers, schedulers. For storms and benches.

Django belongs to the same installation (or the test's database) when an `AlertGround` is made. Troubles are made
through the product's own actions: a scripted task that loops, or a report in the task's locked transaction.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

from django.test import override_settings

from agentdesk import environment
from agentdesk.embedded.process import Child
from tests import harness
from tests.receiver import Receiver
from workspaces.actions import alert_rules, endpoints, incidents
from workspaces.actions.pen import writing
from workspaces.domain.alerts import AlertKind, GroupBy
from workspaces.domain.endpoints import EndpointKind
from workspaces.domain.incidents import Evidence, Finding, IncidentKind, Severity
from workspaces.models import AlertRule, Endpoint, Event, Incident, Task, User

THREADS = 8
PRIVATE = "127.0.0.0/8"
# three times the same error is a loop; what comes then keeps the incident open for a while
LOOPING = """
replies:
  - {{repeat: 3, calls: [{{name: read_file, arguments: {{path: nope.txt}}}}]}}
  - {{delay_s: {then_s}, calls: [{{name: finish, arguments: {{summary: it is not there}}}}]}}
"""


class AlertGround:
    """A context manager. `settings`: what the processes need to belong to the installation."""

    def __init__(self, settings: Mapping[str, str], *, threads: int = THREADS) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="agentdesk-alerts-"))
        self.receiver = Receiver(self.home / "receiver")
        self.threads = threads
        self.programs: dict[str, Child] = {}
        self.environment = {
            **os.environ,
            **settings,
            "AGENTDESK_WEBHOOK_PRIVATE": PRIVATE,
            "AGENTDESK_SANDBOX_DRIVER": "local",
            "AGENTDESK_DB_POOL_MAX": str(threads + 8),
            "AGENTDESK_DB_POOL_TIMEOUT_S": "5",
            "AGENTDESK_LOG_LEVEL": "INFO",  # a worker says that it is ready
        }

    def __enter__(self) -> Self:
        try:
            self.receiver.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for child in (*self.programs.values(), self.receiver.child):
            child.kill()
            child.stop(5)
        shutil.rmtree(self.home, ignore_errors=True)

    # ---- processes: started from the main thread only

    def worker(self, name: str = "worker", **more: str) -> Child:
        celery = [sys.executable, "-m", "celery", "-A", "agentdesk", "worker", "--pool", "threads", "-n", f"{name}@%h"]
        celery += ["--concurrency", str(self.threads), "--without-gossip", "--without-mingle"]
        return self._start(name, celery, more)

    def scheduler(self, name: str = "scheduler", **more: str) -> Child:
        return self._start(name, [sys.executable, str(environment.REPO / "manage.py"), "scheduler"], more)

    def _start(self, name: str, argv: list[str], more: Mapping[str, str]) -> Child:
        log = self.home / "log" / f"{name}.log"
        log.parent.mkdir(exist_ok=True)
        child = Child(name, argv, run=self.home, log=log, env=self.environment | more, cwd=environment.REPO)
        child.start()
        self.programs[name] = child
        return child

    def wait_ready(self, within_s: float = 180.0) -> None:
        """The workers listen."""
        for name, child in self.programs.items():
            if name.startswith("worker"):
                harness.eventually(
                    lambda child=child: " ready." in _log(child), within_s=within_s, what=f"{name} is ready"
                )

    def stop_programs(self) -> None:
        for child in self.programs.values():
            child.stop(20)
        self.programs.clear()

    # ---- what is told to whom

    def endpoint(self, name: str, *, owner: User | None, creator: User) -> Endpoint:
        """A webhook that the receiver knows by `name` and verifies."""
        with override_settings(WEBHOOK_PRIVATE=[PRIVATE]):
            made, secret = endpoints.make_endpoint(
                kind=EndpointKind.WEBHOOK, name=name, address=self.receiver.url(name), owner=owner, actor=creator
            )
        self.receiver.trust(name, secret)
        return made

    def rule(
        self, name: str, *, owner: User | None, creator: User, endpoints: list[Endpoint], **more: Any
    ) -> AlertRule:
        """Of any incident, each one an alert of its own, unless `more` says otherwise."""
        fields = {"kinds": [AlertKind.INCIDENT.value], "group_by": GroupBy.TROUBLE.value} | more
        return alert_rules.make_rule(name=name, owner=owner, actor=creator, endpoints=endpoints, **fields)


def _log(child: Child) -> str:
    """What this run of it has logged."""
    with child.log.open(errors="replace") as file:
        file.seek(child.log_start)
        return file.read()


# ---- troubles


def looping_task(owner: User, *, then_s: float = 2.0, **more: Any) -> Task:
    """It will be found in a loop at its third step."""
    version = harness.scripted_profile(owner, LOOPING.format(then_s=then_s))
    place = more.pop("workspace", None) or harness.make_workspace(owner)
    return harness.create_task(workspace=place, profile_version=version, instruction="Read it.", actor=owner, **more)


def finding(task: Task, what: str, *, severity: Severity = Severity.WARNING, seq: int = 1, **more: Any) -> Finding:
    """A trouble of the task; equal `what`: the same one, which grows when `seq` does."""
    fields: dict[str, Any] = {
        "kind": IncidentKind.LOOP,
        "severity": severity,
        "pattern": "made_by_a_test",
        "first_seq": 1,
        "last_seq": seq,
        "evidence": (Evidence(seq=seq, step=None, what="it says so"),),
        "words": f"{what} goes round and round",
        "cause": what,
        "fingerprint": f"{task.pk}:{what}",
    }
    return Finding(**(fields | more))


def report(task_id: int, make: Callable[[Task], Finding], *, pool: int | None = None) -> Incident:
    """In a transaction of its own, as settling a step does it."""
    with writing(task_id) as pen:
        return incidents.report(pen, make(pen.task), pool=pool).incident


def decisive_at(incident: Incident) -> float:
    """When the trouble was complete: the time of the last event that its evidence names. Unix seconds."""
    return Event.objects.get(task_id=incident.task_id, seq=incident.last_seq).at.timestamp()


def until(holds: Callable[[], Any], within_s: float, *, every_s: float = 0.05) -> bool:
    """Whether it came to hold."""
    deadline = time.monotonic() + within_s
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(every_s)
    return True
