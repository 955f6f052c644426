"""`make chaos-alerts SEED=n` or `SEEDS=a-b`: 500 alerts while their senders and receiver are killed; an audit.

A storm: troubles are made through the product's own actions, by tasks that really loop or are really given up and by
reports in many transactions; some grow worse, some end. Meanwhile, by seed: workers, the scheduler and the receiver are
killed with SIGKILL, the receiver also between taking a delivery and answering it; one endpoint is slow throughout, one
answers 503 for a while. Then nothing may be missing, twice under two ids, out of order or unsigned.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from agentdesk import environment
from tests.bench.ground import installation
from tests.chaos.alerts_audit import Sent, Wanted, outside
from tests.chaos.run import seeds

RECEIVER = ("receiver", "receiver before it answers")
SLOW_S = 0.2
MADE_WITHIN_S, ENDS_WITHIN_S = 240.0, 300.0
BROKEN = Path(__file__).with_name("broken_alerts")


@dataclass(frozen=True, slots=True)
class Size:
    """`gap_s`: between two kills. Of the troubles, `loops` are tasks that loop and `given_up` tasks that fail."""

    troubles: int = 500
    loops: int = 60
    given_up: int = 20
    kills: int = 40
    makers: int = 3
    gap_s: tuple[float, float] = (0.8, 2.4)
    workers: int = 2
    patient: bool = True  # else what a killed sender had taken is free at once, not after its lease


SMALL = Size(troubles=24, loops=2, given_up=1, kills=4, makers=2, gap_s=(0.5, 1.2), workers=1, patient=False)


@dataclass(slots=True)
class World:
    """People, who are told where, and what has to be told."""

    seed: int
    owners: list[Any] = field(default_factory=list)
    mine: dict[int, str] = field(default_factory=dict)  # user → the endpoint of their own
    site: list[str] = field(default_factory=list)
    wanted: list[Wanted] = field(default_factory=list)
    subjects: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def want(self, subject: str, owner: int, type_: str) -> None:
        with self.lock:
            self.wanted += [Wanted(name, subject, type_) for name in (*self.site, self.mine[owner])]
            if type_ == OPENED:
                self.subjects.append(subject)


OPENED, RESOLVED, UPDATED = "alert.opened.v1", "alert.resolved.v1", "alert.updated.v1"


def storm(ground: Any, *, seed: int, size: Size, say: Callable[[str], None] = print) -> dict[str, Any]:
    """Within a running AlertGround. From the main thread: it starts what it kills."""
    rng = random.Random(f"alerts {seed}")
    world = people(ground, seed)
    for number in range(size.workers):
        ground.worker(f"worker{number + 1}")
    ground.scheduler()
    ground.wait_ready()
    began = time.monotonic()
    errors: list[str] = []
    work = [_thread(errors, made, world, size, number) for number in range(size.makers)]
    work.append(_thread(errors, real_tasks, world, size))
    killed = sabotage(ground, rng, size, say)
    for thread in work:
        while thread.is_alive():
            keep_up(ground)
            thread.join(0.2)
    say(f"{time.monotonic() - began:6.1f} s  every trouble was made")
    ended = rests(ground, patient=size.patient)
    say(f"{time.monotonic() - began:6.1f} s  nothing is left to be sent")
    seconds = time.monotonic() - began
    problems = {"makers that failed": errors, **audit(ground, world), "broken rules": verified()}
    problems["not at rest in time"] = [] if ended else [f"after {ENDS_WITHIN_S} s"]
    return {
        "seed": seed,
        "holds": not any(problems.values()) and len(set(world.subjects)) == size.troubles,
        "seconds": round(seconds, 1),
        "troubles": len(set(world.subjects)),
        "killed": dict(killed),
        **figures(ground, world),
        "problems": {name: found for name, found in problems.items() if found},
    }


def _thread(errors: list[str], work: Callable[..., None], *args: Any) -> threading.Thread:
    """Started. What it stumbles over is a problem of the storm."""
    from django.db import connection

    def run() -> None:
        try:
            work(*args)
        except Exception as error:  # noqa: BLE001
            errors.append(f"{work.__name__}: {type(error).__name__}: {error}")
        finally:
            connection.close()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


# ---- who is told


def people(ground: Any, seed: int) -> World:
    """The site is told at two endpoints, one of them slow; two owners at one of their own, one of which will fail."""
    from tests import harness
    from workspaces.domain.alerts import AlertKind

    world = World(seed)
    staff = harness.make_user(f"staff-{seed}", is_staff=True)
    kinds = [AlertKind.INCIDENT.value, AlertKind.TASK_FAILED.value]

    def rule(name: str, owner: Any, told: list[Any]) -> None:
        ground.rule(name, owner=owner, creator=owner or staff, endpoints=told, kinds=kinds)

    site = [ground.endpoint(name, owner=None, creator=staff) for name in (f"good-{seed}", f"slow-{seed}")]
    world.site = [each.name for each in site]
    ground.receiver.behave(site[1].name, delay_s=SLOW_S)
    rule("site", None, site)
    for name in ("flaky", "plain"):
        owner = harness.make_user(f"{name}-{seed}")
        own = ground.endpoint(f"{name}-{seed}", owner=owner, creator=owner)
        rule(name, owner, [own])
        world.owners.append(owner)
        world.mine[owner.pk] = own.name
    return world


# ---- troubles


def made(world: World, size: Size, number: int) -> None:
    """Some of the troubles, by reports; a third of them gets worse, half ends once it was seen to be open."""
    from tests import alert_ground, harness
    from workspaces.actions.incidents import resolve_incident
    from workspaces.domain.incidents import Severity
    from workspaces.models import Alert

    rng = random.Random(f"maker {world.seed} {number}")
    reports = size.troubles - size.loops - size.given_up
    mine = reports // size.makers + (number < reports % size.makers)
    pause_s = size.kills * sum(size.gap_s) / 2 * 0.8 / max(mine, 1)
    owner = world.owners[number % len(world.owners)]
    version = harness.scripted_profile(owner, "replies: []")
    place = harness.make_workspace(owner)
    task = None
    open_: list[Any] = []
    for at in range(mine):
        if task is None or at % 8 == 0:
            task = harness.create_task(
                workspace=place, profile_version=version, instruction="Wait.", actor=owner, hold=True
            )
        incident = alert_ground.report(task.pk, lambda held, at=at: alert_ground.finding(held, f"trouble {at}"))
        world.want(f"incident:{incident.pk}", owner.pk, OPENED)
        open_.append(incident)
        if rng.random() < 0.33:
            alert_ground.report(
                incident.task_id,
                lambda held, at=at: alert_ground.finding(
                    held, f"trouble {at}", severity=Severity.CRITICAL, seq=held.last_seq
                ),
            )
        if len(open_) > 6:
            old = open_.pop(rng.randrange(len(open_)))
            if rng.random() < 0.6:
                told = Alert.objects.filter(members__incident=old, rule__builtin="").exclude(opened_at=None)
                if not alert_ground.until(lambda told=told: told.count() >= 2, MADE_WITHIN_S):
                    raise AssertionError(f"{old} is in no open alert")
                resolve_incident(old.pk, actor=owner, reason="It was seen to.")
                world.want(f"incident:{old.pk}", owner.pk, RESOLVED)
        time.sleep(rng.uniform(0, 2 * pause_s))


def real_tasks(world: World, size: Size) -> None:
    """Tasks that loop, and tasks that a person gives up, on workers that are killed meanwhile."""
    from tests import alert_ground, harness
    from workspaces.actions.errors import Refused
    from workspaces.actions.escalations import answer_escalation
    from workspaces.domain.escalations import Decision
    from workspaces.models import Escalation, Incident, Task

    rng = random.Random(f"tasks {world.seed}")
    pause_s = size.kills * sum(size.gap_s) / 2 * 0.8 / max(size.loops + size.given_up, 1)
    order = ["loop"] * size.loops + ["give up"] * size.given_up
    rng.shuffle(order)
    loops, given = [], []
    for at, what in enumerate(order):
        owner = world.owners[at % 2]
        if what == "loop":
            loops.append(alert_ground.looping_task(owner, then_s=0.5))
        else:
            given.append(
                harness.scripted_task("replies: [{fault: {kind: auth}}]", workspace=harness.make_workspace(owner))
            )
        time.sleep(rng.uniform(0, 2 * pause_s))
    for task in given:
        asked = Escalation.objects.filter(task=task, status="open")
        if not alert_ground.until(asked.exists, MADE_WITHIN_S):
            raise AssertionError(f"{task} asks nobody")
        alert_ground.until(lambda asked=asked: _answered(asked, answer_escalation, Decision, Refused), 30)
        world.want(f"task:{task.pk}", task.created_by_id, OPENED)
    for task in loops:
        if not alert_ground.until(
            lambda task=task: Task.objects.exclude(finished_at=None).filter(pk=task.pk), MADE_WITHIN_S
        ):
            raise AssertionError(f"{task} does not end")
        for incident in Incident.objects.filter(task=task, kind="loop"):
            world.want(f"incident:{incident.pk}", task.created_by_id, OPENED)
            world.want(f"incident:{incident.pk}", task.created_by_id, RESOLVED)


def _answered(asked: Any, answer: Any, decision: Any, refused: Any) -> bool:
    question = asked.select_related("task__created_by").first()
    if question is None:
        return True
    try:
        answer(question.pk, decision=decision.GIVE_UP, actor=question.task.created_by, words="no key")
    except refused:
        return False
    return True


# ---- harm


def sabotage(ground: Any, rng: random.Random, size: Size, say: Callable[[str], None]) -> Counter[str]:
    """Kills by seed; what was killed starts again after a while. One endpoint fails for the middle third."""
    victims = [*ground.programs, *RECEIVER]
    deck: list[str] = []
    while len(deck) < size.kills:
        deck += rng.sample(victims, len(victims))
    killed: Counter[str] = Counter()
    began = time.monotonic()
    flaky = next(name for name in _names(ground) if name.startswith("flaky"))
    for number, victim in enumerate(deck[: size.kills]):
        if number == size.kills // 3:
            ground.receiver.behave(flaky, status=503)
            say(f"{time.monotonic() - began:6.1f} s  {flaky} answers 503")
        if number == 2 * size.kills // 3:
            ground.receiver.behave(flaky)
            say(f"{time.monotonic() - began:6.1f} s  {flaky} answers again")
        until = time.monotonic() + rng.uniform(*size.gap_s)
        while time.monotonic() < until:
            keep_up(ground)
            time.sleep(0.05)
        if victim == "receiver before it answers":
            ground.receiver.die_at_next(rng.choice(_names(ground)))
        elif victim == "receiver":
            ground.receiver.kill()
        else:
            ground.programs[victim].kill()
        killed[victim] += 1
        say(f"{time.monotonic() - began:6.1f} s  kill {victim}")
        time.sleep(rng.uniform(0, 0.5))
    ground.receiver.behave(flaky)
    return killed


def _names(ground: Any) -> list[str]:
    return sorted(path.stem for path in ground.receiver.folder.glob("*.secrets"))


def keep_up(ground: Any) -> None:
    """What was killed is started again. From the main thread: its end is what ends them."""
    for child in ground.programs.values():
        if not child.alive():
            child.start()
    if not ground.receiver.alive():
        ground.receiver.start()


def rests(ground: Any, *, patient: bool) -> bool:
    """Nothing is left to be digested or sent."""
    from django.db.models.functions import Now

    from workspaces.actions.sendings import LEASE
    from workspaces.models import AlertSignal, Delivery

    deadline = time.monotonic() + ENDS_WITHIN_S
    while AlertSignal.objects.filter(digested_at=None).exists() or Delivery.objects.filter(state="pending").exists():
        if time.monotonic() > deadline:
            return False
        keep_up(ground)
        if not patient:
            taken = Delivery.objects.filter(leased_until__lt=Now() + LEASE - timedelta(seconds=3))
            taken.update(leased_until=Now())
        time.sleep(0.2)
    return True


# ---- audit


def audit(ground: Any, world: World) -> dict[str, list[str]]:
    return outside(ground.receiver.accepted(), ground.receiver.refused(), sent(), world.wanted)


def sent() -> list[Sent]:
    from workspaces.models import Delivery

    return [
        Sent(
            id=each.message_id,
            endpoint=each.endpoint.name,
            alert=each.alert_id or 0,
            number=each.number,
            type=each.type,
            state=each.state,
            leased=each.leased_until is not None,
        )
        for each in Delivery.objects.select_related("endpoint").order_by("pk")
    ]


def verified() -> list[str]:
    """Every rule of `manage.py verify`."""
    from workspaces.queries.integrity import verify

    return [f"{result.rule.name}: {row.what}" for result in verify() for row in result.rows]


def figures(ground: Any, world: World) -> dict[str, Any]:
    from django.db.models import Count

    from workspaces.models import Alert, AlertSignal, Delivery, DeliveryAttempt

    accepted = ground.receiver.accepted()
    outcomes = DeliveryAttempt.objects.values_list("outcome").annotate(number=Count("pk"))
    return {
        "signals": AlertSignal.objects.count(),
        "alerts": Alert.objects.filter(rule__builtin="").count(),
        "deliveries": Delivery.objects.count(),
        "attempts": dict(outcomes),
        "arrived": len(accepted),
        "arrived_again": len(accepted) - len({each.id for each in accepted}),
        "by_endpoint": dict(Counter(each.endpoint for each in accepted)),
        "wanted": len(world.wanted),
    }


# ---- run


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, help="one storm, in this process")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--broken", default="", help="a build that is broken on purpose (see broken_alerts)")
    told = parser.parse_args()
    if told.seed is None:
        return many(seeds(os.environ.get("SEEDS") or os.environ.get("SEED") or "1"), sys.argv[1:])
    with installation() as stack:
        from tests.alert_ground import AlertGround

        settings = dict(stack.environment)
        if told.broken:
            settings |= {"PYTHONPATH": str(BROKEN), "CHAOS_BROKEN": told.broken}
        with AlertGround(settings | {"AGENTDESK_LEASE_S": "3"}) as ground:
            result = storm(ground, seed=told.seed, size=SMALL if told.small else Size())
    print(json.dumps(result), flush=True)
    return 0 if result["holds"] else 1


def many(chosen: list[int], more: list[str]) -> int:
    """A process for each seed, because Django belongs to one database for life."""
    results = []
    for seed in chosen:
        print(f"--- seed {seed}", flush=True)
        command = [sys.executable, "-m", "tests.chaos.alerts", "--seed", str(seed), *more]
        with subprocess.Popen(command, cwd=environment.REPO, stdout=subprocess.PIPE, text=True) as process:
            last = ""
            for line in process.stdout or ():
                last = line
                if not line.startswith("{"):
                    print(line, end="", flush=True)
        try:
            results.append(json.loads(last))
        except ValueError:
            results.append({"seed": seed, "holds": False, "problems": {"the run itself failed": [last]}})
    table(results)
    holds = bool(results) and all(result["holds"] for result in results)
    failed = [result["seed"] for result in results if not result["holds"]]
    print(json.dumps({"holds": holds, "seeds": len(results), "failed": failed, "results": results}), flush=True)
    return 0 if holds else 1


def table(results: list[dict[str, Any]]) -> None:
    print("\n  seed  alerts  kills  deliveries  arrived  again  problems  seconds")
    for result in results:
        problems = result["problems"]
        print(
            f"{result['seed']:>6}{result.get('alerts', 0):>8}{sum(result.get('killed', {}).values()):>7}"
            f"{result.get('deliveries', 0):>12}{result.get('arrived', 0):>9}{result.get('arrived_again', 0):>7}"
            f"{sum(map(len, problems.values())):>10}{result.get('seconds', 0):>9}"
            f"  {'holds' if result['holds'] else 'DOES NOT HOLD'}"
        )
        for name, found in problems.items():
            print(f"        {name}: {len(found)}: {'; '.join(found)[:300]}")


if __name__ == "__main__":
    os.environ.setdefault("AGENTDESK_LOG_LEVEL", "ERROR")
    sys.exit(main())
