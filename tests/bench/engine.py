"""`make bench-engine`: 50 tasks side by side on one worker, and the engine's own time per step beside its peers.

Bar: 50 scripted tasks of 10 steps whose model answers after 2 s take at most 1.5 times the ideal 20 s, and no
event is lost. Told beside it: the same tasks with a command in a sandbox and a snapshot in every step, whose cost is
the machine's as well. The peers run the same number of durable steps on the same Postgres and Valkey in the same run:
a plain Celery chain (a broker message a step, nothing durable) and a DBOS workflow (an environment of its own).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from agentdesk.embedded.stack import Stack

REPO = Path(__file__).resolve().parents[2]
DBOS = "dbos==3.4.0"
LATENCY_S, TASKS, STEPS = 2.0, 50, 10
NOTE = "{name: note, arguments: {section: notes, text: '{{index}}'}}"  # a tool that takes no time: the engine alone
COMMAND = "{name: shell, arguments: {command: 'echo {{index}} >> log'}}"  # a command and a snapshot each step
OWN_STEPS = 100
# its tasks do nothing of use, of which a person would rightly be asked: every step is looked at all the same
ALONE = {"observe_only": True}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--driver", choices=("docker", "local"), default="local")
    parser.add_argument("--without-peers", action="store_true")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="agentdesk-bench-") as home:
        stack = Stack(Path(home), {"postgres", "valkey", "worker", "scheduler"})
        stack.open()
        try:
            stack.start_servers()
            os.environ.update(stack.environment)
            os.environ["AGENTDESK_SANDBOX_DRIVER"] = chosen.driver
            os.environ["DJANGO_SETTINGS_MODULE"] = "agentdesk.settings"
            os.environ["AGENTDESK_STATIC_FROM_SOURCE"] = "1"
            _migrate()
            stack.start_program("worker")
            stack.start_program("scheduler")
            figures = {
                **_side_by_side("notes", NOTE, "local"),
                **_side_by_side("commands", COMMAND, chosen.driver),
                "commands_driver": chosen.driver,
                **_own_time(),
            }
            if not chosen.without_peers:
                figures |= _celery_chain() | _dbos(stack.environment["DATABASE_URL"])
        finally:
            stack.close()
    lost = figures["notes_lost_events"] + figures["commands_lost_events"]
    figures["holds"] = (figures["notes_ratio_to_ideal"] or 99) <= 1.5 and lost == 0
    _table(figures)
    print(json.dumps(figures))
    return 0 if figures["holds"] else 1


def _migrate() -> None:
    import django
    from django.core.management import call_command

    django.setup()
    call_command("migrate", verbosity=0, interactive=False)


def _scenario(steps: int, delay_s: float, call: str) -> str:
    return f"""
        replies:
          - delay_s: {delay_s}
            repeat: {steps - 1}
            calls: [{call}]
          - delay_s: {delay_s}
            calls: [{{name: finish, arguments: {{summary: done}}}}]
        """


def _side_by_side(name: str, call: str, driver: str) -> dict[str, Any]:
    """50 tasks at once, each in a workspace of its own; every step but the last makes `call`."""
    from django.db.models import F

    from tests import harness
    from workspaces.models import Event, Task

    user = harness.make_user()
    version = harness.scripted_profile(user, _scenario(STEPS, LATENCY_S, call), detectors=ALONE)
    places = [harness.make_workspace(user, driver=driver) for _ in range(TASKS)]
    _warm_up(user)
    began = time.monotonic()
    tasks = [
        harness.create_task(workspace=place, profile_version=version, instruction="Count.", actor=user)
        for place in places
    ]
    ids = [task.pk for task in tasks]
    _wait_for(ids, timeout_s=300)
    wall_s = time.monotonic() - began
    done = Task.objects.filter(pk__in=ids, status="succeeded", steps_taken=STEPS).count()
    trace = Event.objects.filter(task__in=ids)
    lost = sum(Task.objects.filter(pk__in=ids).values_list(F("last_seq"), flat=True)) - trace.count()
    ideal_s = STEPS * LATENCY_S
    return {
        f"{name}_tasks": TASKS,
        f"{name}_steps": STEPS,
        f"{name}_succeeded": done,
        f"{name}_wall_s": round(wall_s, 2),
        f"{name}_ratio_to_ideal": round(wall_s / ideal_s, 3) if done == TASKS else None,
        f"{name}_events": trace.count(),
        f"{name}_lost_events": lost,
    }


def _warm_up(user: Any) -> None:
    """The worker's first job pays for its imports."""
    from tests import harness

    version = harness.scripted_profile(user, _scenario(2, 0, "{name: note, arguments: {section: a, text: b}}"))
    place = harness.make_workspace(user)
    task = harness.create_task(workspace=place, profile_version=version, instruction="Warm up.", actor=user)
    _wait_for([task.pk], timeout_s=60)


def _own_time() -> dict[str, Any]:
    """One task whose model and tool take no time: what is left is claim, writes, checkpoint and dispatch."""
    from tests import harness
    from workspaces.models import Event, Task

    user = harness.make_user()
    version = harness.scripted_profile(user, _scenario(OWN_STEPS, 0, NOTE), max_steps=1000, detectors=ALONE)
    place = harness.make_workspace(user)
    began = time.monotonic()
    task = harness.create_task(workspace=place, profile_version=version, instruction="Note.", actor=user)
    _wait_for([task.pk], timeout_s=120)
    wall_s = time.monotonic() - began
    assert Task.objects.get(pk=task.pk).steps_taken == OWN_STEPS
    events = Event.objects.filter(task=task).count()
    return {
        "own_ms_per_step": round(wall_s / OWN_STEPS * 1000, 2),
        "own_events_per_step": round(events / OWN_STEPS, 1),
        "own_ms_per_event": round(wall_s / events * 1000, 2),
    }


def _wait_for(ids: list[int], *, timeout_s: float) -> None:
    from workspaces.models import Task

    deadline = time.monotonic() + timeout_s
    while Task.objects.filter(pk__in=ids, finished_at=None).exists():
        if time.monotonic() > deadline:
            stuck = Task.objects.filter(pk__in=ids, finished_at=None).values_list("pk", "status", "waiting_reason")
            raise SystemExit(f"not finished after {timeout_s} s: {list(stuck)[:5]}")
        time.sleep(0.05)


def _celery_chain() -> dict[str, Any]:
    """The same number of no-op jobs, each sending the next: what the broker and Celery cost by themselves."""
    script = """
import os, sys, time
from celery import Celery
from agentdesk import connections
app = Celery("plain", broker=connections.broker_url(connections.client_url(os.environ["VALKEY_URL"])))
app.conf.task_default_queue = "plain"
app.conf.worker_redirect_stdouts = False
STEPS = int(sys.argv[1])
done = []
@app.task(name="plain.step", ignore_result=True)
def step(n):
    if n == 1:
        print("BEGIN", time.time(), flush=True)
    if n < STEPS:
        step.delay(n + 1)
    else:
        print("END", time.time(), flush=True)
        os._exit(0)
step.delay(1)
quiet = ["--without-gossip", "--without-mingle", "-l", "ERROR"]
app.worker_main(["worker", "--pool", "threads", "--concurrency", "4", *quiet])
"""
    command = [sys.executable, "-c", script, str(OWN_STEPS)]
    ran = subprocess.run(command, cwd=REPO, capture_output=True, text=True, timeout=120, check=True)
    told = dict(line.split() for line in ran.stdout.splitlines() if line.startswith(("BEGIN ", "END ")))
    return {"celery_chain_ms_per_step": round((float(told["END"]) - float(told["BEGIN"])) / OWN_STEPS * 1000, 2)}


def _dbos(database_url: str) -> dict[str, Any]:
    """A DBOS workflow of the same number of durable no-op steps, in an environment of its own."""
    python = _peer("dbos", DBOS)
    script = """
import os, sys, time, logging
from dbos import DBOS
logging.disable(logging.CRITICAL)
STEPS = int(sys.argv[1])
DBOS(config={"name": "bench", "system_database_url": sys.argv[2], "run_admin_server": False})
@DBOS.step()
def step(n):
    return n
@DBOS.workflow()
def work(n):
    for i in range(n):
        step(i)
    return n
DBOS.launch()
work(5)
began = time.monotonic()
work(STEPS)
print("SECONDS", time.monotonic() - began, flush=True)
os._exit(0)
"""
    ran = subprocess.run(
        [str(python), "-c", script, str(OWN_STEPS), _as_database(database_url, "dbos_bench")],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    seconds = [line.split()[1] for line in ran.stdout.splitlines() if line.startswith("SECONDS")]
    if not seconds:
        raise SystemExit(f"the DBOS peer did not run: {ran.stderr[-800:]}")
    return {"dbos_ms_per_step": round(float(seconds[0]) / OWN_STEPS * 1000, 2)}


def _as_database(url: str, name: str) -> str:
    """The same server, another database; SQLAlchemy wants the host as a parameter for a unix socket."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")  # type: ignore[arg-type]
    return url.replace("/agentdesk?", f"/{name}?")


def _peer(name: str, requirement: str) -> Path:
    home = REPO / "build" / "peers" / name
    python = home / "bin" / "python"
    if not python.exists():
        print(f"installing {requirement} into an environment of its own …", flush=True)
        subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
        subprocess.run(
            [str(python), "-m", "pip", "install", "-q", requirement, "psycopg[binary]"], check=True, stdout=sys.stderr
        )
    return python


def _table(figures: dict[str, Any]) -> None:
    width = max(len(name) for name in figures)
    for name, value in figures.items():
        print(f"{name:<{width}}  {value}")


if __name__ == "__main__":
    sys.exit(main())
