"""`make bench-alerts`: how soon a person is told of a loop, and that ten thousand troubles on one pool are one alert.

Latency: scripted tasks run into a loop on a real worker process; from the decisive event of the loop (the last one
that the finding names as its evidence: with it the loop is complete) to the clock of the receiver, a process of its own
that verifies each message. One task after the other, and ten at a time; then again with a slow endpoint beside the
healthy one. Bar: p95 under 1 s in each. The stages on the way are told too, so that it shows what takes the time.

The flood and the flapping are in alerts_flood.py.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from tests.bench.alerts_flood import flapping, flood
from tests.bench.ground import installation

BAR_P95_S = 1.0
SLOW_S = 3.0
THEN_S = 0.5  # what a looping task still does, so that its end is another message
STAGES = (
    ("decisive event", "incident opened"),
    ("incident opened", "alert opened"),
    ("alert opened", "sending begins"),
    ("sending begins", "received"),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=100, help="loops that come one by one; as many come ten at a time")
    parser.add_argument("--incidents", type=int, default=10_000)
    parser.add_argument("--flapping-s", type=float, default=60.0)
    parser.add_argument("--only", choices=("latency", "flood", "flapping", "costs"), default="")
    chosen = parser.parse_args()

    def wanted(part: str) -> bool:
        return chosen.only in ("", part)

    figures: dict[str, Any] = {}
    with installation() as stack:
        from tests.alert_ground import AlertGround

        with AlertGround(stack.environment, threads=64) as ground:
            ground.worker()
            ground.scheduler()
            ground.wait_ready()
            if wanted("latency"):
                figures |= latency(ground, chosen.tasks)
            if wanted("flapping"):
                figures |= flapping(ground, chosen.flapping_s)
            if wanted("flood"):
                figures |= flood(ground, chosen.incidents)
            ground.stop_programs()
            if wanted("costs"):
                figures |= costs()
    bars = [value for name, value in figures.items() if name.endswith("_holds")]
    figures["holds"] = all(bars)
    print(json.dumps(figures), flush=True)
    return 0 if figures["holds"] else 1


# ---- latency


def latency(ground: Any, tasks: int) -> dict[str, Any]:
    from tests import alert_ground, harness

    staff = harness.make_user("bench-staff", is_staff=True)
    owner = harness.make_user("bench-owner")
    healthy = ground.endpoint("healthy", owner=None, creator=staff)
    slow = ground.endpoint("slow", owner=None, creator=staff)
    ground.receiver.behave("slow", delay_s=SLOW_S)
    rule = ground.rule("loops", owner=None, creator=staff, endpoints=[healthy], incident_kinds=["loop"])
    places = [harness.make_workspace(owner) for _ in range(10)]
    watched = {"rule": rule, "endpoint": "healthy"}

    def one_by_one(number: int) -> list[dict[str, float]]:
        found = []
        for at in range(number):
            found += _timed(
                ground, [alert_ground.looping_task(owner, then_s=THEN_S, workspace=places[at % 10])], **watched
            )
        return found

    def at_once(number: int) -> list[dict[str, float]]:
        found = []
        for _ in range(number // len(places)):
            made = [alert_ground.looping_task(owner, then_s=THEN_S, workspace=place) for place in places]
            found += _timed(ground, made, **watched)
        return found

    one_by_one(3)  # pays for imports and first connections
    alone = {"one by one": one_by_one(tasks), "ten at once": at_once(tasks)}
    # with a slow endpoint and without, in turns, so that what else goes on here weighs on both alike
    beside: dict[str, list[dict[str, float]]] = {"without a slow one": [], "with a slow one": []}
    for _ in range(4):
        rule.endpoints.set([healthy])
        beside["without a slow one"] += at_once(max(tasks // 4, 10))
        rule.endpoints.set([healthy, slow])
        beside["with a slow one"] += at_once(max(tasks // 4, 10))
    figures: dict[str, Any] = {}
    told = alone | {f"healthy endpoint {name}": rows for name, rows in beside.items()}
    table("From the loop's decisive event to the receiver", told)
    for name, rows in told.items():
        figures[name.replace(" ", "_")] = spread([row["all"] for row in rows])
    figures["stages_p50_s"] = {name: _stages(name, rows) for name, rows in alone.items()}
    figures["latency_holds"] = all(spread([row["all"] for row in rows])["p95"] < BAR_P95_S for rows in told.values())
    return figures


def _timed(ground: Any, tasks: Sequence[Any], *, rule: Any, endpoint: str) -> list[dict[str, float]]:
    """Wait until each task's loop has been received, and until the tasks have ended; the times of each stage."""
    from tests import alert_ground
    from workspaces.models import AlertChange, Delivery, DeliveryAttempt, Event, Incident, Task

    ids = [task.pk for task in tasks]
    loops = Incident.objects.filter(task__in=ids, kind="loop")
    opened = Delivery.objects.filter(
        alert__rule=rule, alert__members__incident__in=loops, endpoint__name=endpoint, type="alert.opened.v1"
    )
    done = opened.filter(state="delivered")
    if not alert_ground.until(lambda: done.count() >= len(ids), 60, every_s=0.02):
        raise SystemExit(f"{len(ids) - done.count()} of {len(ids)} loops were not told of within a minute")
    arrived: dict[str, float] = {}
    for arrival in ground.receiver.accepted(endpoint):
        arrived.setdefault(arrival.id, arrival.at)
    found = []
    for delivery in opened.select_related("alert", "change"):
        incident = loops.get(pk=delivery.alert.members.get().incident_id)
        change = AlertChange.objects.get(alert=delivery.alert, number=delivery.number)
        begun = DeliveryAttempt.objects.filter(delivery=delivery).order_by("number").first()
        announced = Event.objects.get(task_id=incident.task_id, kind="incident.opened", data__incident=incident.pk)
        assert begun is not None
        at = {
            "decisive event": alert_ground.decisive_at(incident),
            "incident opened": announced.at.timestamp(),
            "alert opened": change.at.timestamp(),
            "sending begins": begun.begun_at.timestamp(),
            "received": arrived[delivery.message_id],
        }
        row = {f"{first} → {then}": at[then] - at[first] for first, then in STAGES}
        found.append(row | {"all": at["received"] - at["decisive event"]})
    alert_ground.until(lambda: not Task.objects.filter(pk__in=ids, finished_at=None).exists(), 60)
    return found


def _stages(title: str, rows: Sequence[dict[str, float]]) -> dict[str, float]:
    names = [name for name in rows[0] if name != "all"]
    found = {name: round(statistics.median(row[name] for row in rows), 4) for name in names}
    print(f"\nWhere it goes (median of {title})")
    for name, seconds in found.items():
        print(f"  {name:<40}{seconds * 1000:>9.1f} ms")
    return found


def spread(seconds: Sequence[float]) -> dict[str, float]:
    """In seconds."""
    ordered = sorted(seconds)

    def at(share: float) -> float:
        return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))], 4)

    return {"n": len(ordered), "p50": at(0.5), "p95": at(0.95), "p99": at(0.99), "max": round(ordered[-1], 4)}


def table(title: str, told: dict[str, list[dict[str, float]]]) -> None:
    print(f"\n{title}\n  {'':<40}{'n':>6}{'p50':>10}{'p95':>10}{'p99':>10}{'max':>10}")
    for name, rows in told.items():
        found = spread([row["all"] for row in rows])
        print(f"  {name:<40}{found['n']:>6}" + "".join(f"{found[key]:>8.3f} s" for key in ("p50", "p95", "p99", "max")))


# ---- costs


def costs() -> dict[str, Any]:
    """What a signal adds to the transaction that it is in, and how many are digested a second. No process runs."""
    from tests import harness
    from workspaces.actions import alerts
    from workspaces.actions.alert_signals import signal
    from workspaces.domain.alerts import AlertKind, Edge
    from workspaces.models import AlertSignal

    owner = harness.make_user("costs-owner")
    version = harness.scripted_profile(owner, "replies: []")
    place = harness.make_workspace(owner)
    task = harness.create_task(workspace=place, profile_version=version, instruction="Wait.", actor=owner, hold=True)
    alerts.digest()

    def told(number: int) -> None:
        signal(AlertKind.INCIDENT, Edge.BEGAN, f"incident:{10_000_000 + number}", words="It loops.", task=task)

    def bare(number: int) -> float:
        return _transaction(task, lambda: None)

    def with_one(number: int) -> float:
        return _transaction(task, lambda: told(number))

    took: dict[str, list[float]] = {"without": [], "with": []}
    for number in range(400):
        took["without"].append(bare(number))
        took["with"].append(with_one(number))
    without, with_ = (statistics.median(took[name]) * 1000 for name in ("without", "with"))
    alerts.digest()
    for number in range(20_000):
        if number % 1000 == 0:
            _transaction(task, lambda at=number: [told(1000 + each) for each in range(at, at + 1000)])
    waiting = AlertSignal.objects.filter(digested_at=None).count()
    began = time.monotonic()
    while alerts.digest():
        pass
    rate = waiting / (time.monotonic() - began)
    print(f"\nA transaction that writes an event: {without:.2f} ms, with a signal in it {with_:.2f} ms")
    print(f"Digested: {waiting:,} signals, {rate:,.0f} a second")
    return {
        "transaction_ms": round(without, 3),
        "transaction_with_signal_ms": round(with_, 3),
        "signal_ms": round(with_ - without, 3),
        "digested": waiting,
        "digested_per_s": round(rate),
    }


def _transaction(task: Any, also: Callable[[], object]) -> float:
    """As a step writes: the task's row locked, an event."""
    from workspaces.actions.pen import writing
    from workspaces.domain.events import EventKind

    began = time.perf_counter()
    with writing(task.pk) as pen:
        pen.event(EventKind.TASK_QUEUED, reason="a bench")
        also()
    return time.perf_counter() - began


if __name__ == "__main__":
    os.environ.setdefault("AGENTDESK_LOG_LEVEL", "ERROR")
    sys.exit(main())
