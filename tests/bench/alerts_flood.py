"""Of `make bench-alerts`: what must not flood a person, on real processes with a real receiver.

The flood: ten thousand tasks report an incident on one quota pool at once, each in a transaction of its own, by
threads in several processes. Bar: one alert with all of them in it, and one opening message.

The flapping: one trouble begins and ends twice a second. The promise: of one alert at most two
messages a cooldown.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections import Counter
from datetime import datetime, timedelta
from typing import Any

from agentdesk import environment

PROCESSES, THREADS = 2, 4
FLOOD_COOLDOWN_S = 600
COOLDOWN_S = 10
FLAPS_EVERY_S = 0.5
RESOLVED = "alert.resolved.v1"


def flood(ground: Any, incidents: int) -> dict[str, Any]:
    from django.utils import timezone

    from tests import alert_ground, harness
    from workspaces.domain.alerts import GroupBy
    from workspaces.models import Alert, AlertSignal, Delivery, QuotaPool

    staff = harness.make_user("flood-staff", is_staff=True)
    owner = harness.make_user("flood-owner")
    told = ground.endpoint("flood", owner=None, creator=staff)
    rule = ground.rule(
        "one pool",
        owner=None,
        creator=staff,
        endpoints=[told],
        group_by=GroupBy.POOL,
        incident_kinds=["storm"],
        cooldown_s=FLOOD_COOLDOWN_S,
    )
    version = harness.scripted_profile(owner, "replies: []")
    pool = QuotaPool.objects.create(
        **version.allowance, group="flood", name="the pool", by_hand=True, limits={}, created_at=timezone.now()
    )
    places = [harness.make_workspace(owner) for _ in range(50)]
    began = time.monotonic()
    made = [
        harness.create_task(
            workspace=places[at % 50], profile_version=version, instruction="Wait.", actor=owner, hold=True
        ).pk
        for at in range(incidents)
    ]
    print(f"\n{incidents:,} tasks made in {time.monotonic() - began:.0f} s; now each reports", flush=True)

    opens = Delivery.objects.filter(alert__rule=rule, type="alert.opened.v1")
    waiting = AlertSignal.objects.filter(digested_at=None)
    most: list[int] = []
    over = threading.Event()
    watching = threading.Thread(target=_watch, args=[waiting, most, over])
    watching.start()
    began = time.monotonic()
    reporters = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.bench.alerts_flood", str(pool.pk), str(made[0]), str(made[-1]), str(share)],
            cwd=environment.REPO,
        )
        for share in range(PROCESSES)
    ]
    if any(each.wait() for each in reporters):
        raise SystemExit("not every report was taken")
    reported_s = time.monotonic() - began
    members = rule.alerts.model.members.rel.related_model.objects.filter(alert__rule=rule)
    if not alert_ground.until(lambda: members.count() == incidents and not waiting.exists(), 300):
        raise SystemExit(f"{members.count()} of {incidents} were taken into an alert")
    digested_s = time.monotonic() - began
    over.set()
    watching.join()
    alert_ground.until(lambda: not Delivery.objects.filter(alert__rule=rule, state="pending").exists(), 60)
    arrived = Counter(each.body["type"] for each in ground.receiver.accepted("flood"))
    alerts = list(Alert.objects.filter(rule=rule))
    figures = {
        "flood_incidents": incidents,
        "flood_reported_in_s": round(reported_s, 1),
        "flood_reports_per_s": round(incidents / reported_s),
        "flood_digested_after_last_report_s": round(digested_s - reported_s, 2),
        "flood_signals_waiting_at_most": max(most, default=0),
        "flood_alerts": len(alerts),
        "flood_troubles_in_it": alerts[0].troubles,
        "flood_opening_messages": opens.count(),
        "flood_messages": dict(arrived),
    }
    figures["flood_holds"] = (
        len(alerts) == 1
        and alerts[0].troubles == incidents
        and arrived["alert.opened.v1"] == 1
        and sum(arrived.values()) <= 2 * (1 + digested_s // FLOOD_COOLDOWN_S)
    )
    _tell("Ten thousand troubles on one pool", figures)
    return figures


def _watch(waiting: Any, most: list[int], over: threading.Event) -> None:
    from django.db import connection

    while not over.wait(0.2):
        most.append(waiting.count())
    connection.close()


def flapping(ground: Any, seconds: float) -> dict[str, Any]:
    from tests import alert_ground, harness
    from workspaces.actions.incidents import resolve_incident
    from workspaces.models import Alert, Delivery

    staff = harness.make_user("flapping-staff", is_staff=True)
    owner = harness.make_user("flapping-owner")
    told = ground.endpoint("flapping", owner=None, creator=staff)
    version = harness.scripted_profile(owner, "replies: []")
    place = harness.make_workspace(owner)
    task = harness.create_task(workspace=place, profile_version=version, instruction="Wait.", actor=owner, hold=True)
    rule = ground.rule("flapping", owner=None, creator=staff, endpoints=[told], group_by="task", cooldown_s=COOLDOWN_S)
    began = time.monotonic()
    flaps = 0
    while time.monotonic() - began < seconds:
        incident = alert_ground.report(task.pk, lambda held: alert_ground.finding(held, "it flaps", seq=held.last_seq))
        time.sleep(FLAPS_EVERY_S / 2)
        resolve_incident(incident.pk, actor=owner, reason="gone")
        time.sleep(FLAPS_EVERY_S / 2)
        flaps += 1
    lasted_s = time.monotonic() - began
    time.sleep(2 * COOLDOWN_S)  # what is still to be told is told by then
    alert_ground.until(lambda: not Delivery.objects.filter(alert__rule=rule, state="pending").exists(), 60)
    arrived = sorted(ground.receiver.accepted("flapping"), key=lambda each: each.at)
    allowed = 2 * (int((lasted_s + 2 * COOLDOWN_S) // COOLDOWN_S) + 1)
    written = [(datetime.fromisoformat(each.body["timestamp"]), each.body["type"]) for each in arrived]
    cooldown = timedelta(seconds=COOLDOWN_S)
    # from one opening on, by the clock of who decided to tell
    most = max(
        sum(first <= at < first + cooldown for at, _ in written) for first, type_ in written if type_ != RESOLVED
    )
    figures = {
        "flapping_s": round(lasted_s, 1),
        "flapping_cooldown_s": COOLDOWN_S,
        "flaps": flaps,
        "flapping_alerts": Alert.objects.filter(rule=rule).count(),
        "flapping_messages": len(arrived),
        "flapping_messages_allowed": allowed,
        "flapping_messages_by_type": dict(Counter(each.body["type"] for each in arrived)),
        "flapping_most_in_one_cooldown": most,
        "flapping_last_says": arrived[-1].body["data"]["alert"]["state"] if arrived else "",
    }
    figures["flapping_holds"] = most <= 2 and len(arrived) <= allowed and figures["flapping_last_says"] == "resolved"
    _tell("A trouble that comes and goes", figures)
    return figures


def _tell(title: str, figures: dict[str, Any]) -> None:
    print(f"\n{title}")
    for name, value in figures.items():
        print(f"  {name.replace('_', ' '):<40}{value!s:>20}", flush=True)


def reporter() -> None:
    """A process that reports for its share of the tasks, by several threads: POOL FIRST LAST SHARE."""
    import django

    django.setup()
    from tests import alert_ground
    from workspaces.domain.incidents import IncidentKind
    from workspaces.models import Task

    pool, first, last, share = map(int, sys.argv[1:5])
    mine = list(Task.objects.filter(pk__range=(first, last)).order_by("pk").values_list("pk", flat=True))
    mine = mine[share::PROCESSES]
    failed: list[str] = []
    threading.excepthook = lambda told: failed.append(str(told.exc_value))

    def report(ids: list[int]) -> None:
        from django.db import connection

        for task_id in ids:
            alert_ground.report(
                task_id,
                lambda held: alert_ground.finding(
                    held, "the pool is exhausted", kind=IncidentKind.STORM, cause="pool exhausted"
                ),
                pool=pool,
            )
        connection.close()

    threads = [threading.Thread(target=report, args=[mine[at::THREADS]]) for at in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        sys.exit(f"{len(failed)} threads failed: {failed[0]}")


if __name__ == "__main__":
    reporter()
