"""`make bench-idle`: 1,000 sleeping workspaces, and 20 that are to wake at once.

Bars: no sandbox runs for those that sleep; the fleet's page, the list of workspaces and one round of the scheduler
each take under half a second; never more wake at once than the limit allows, the others are shown as waiting to wake,
and all come to be awake. A few have really worked and fallen asleep; the others have a disk and a saved state.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from typing import Any

from tests.bench.ground import fill, installation, need_docker, spread, tell, timed

QUICK_S = 0.5
WAKES_AT_ONCE = 4


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workspaces", type=int, default=1_000)
    parser.add_argument("--really", type=int, default=20, help="of them, these work and fall asleep first")
    parser.add_argument("--driver", choices=("docker", "local"), default="docker")
    chosen = parser.parse_args()
    limit = {"AGENTDESK_WAKES_AT_ONCE": str(WAKES_AT_ONCE), "AGENTDESK_IDLE_TIMEOUT_S": "3600"}
    parts = ("postgres", "valkey", "worker", "scheduler")
    with installation(parts=parts, AGENTDESK_SANDBOX_DRIVER=chosen.driver, **limit) as stack:
        if chosen.driver == "docker":
            need_docker()
        for part in parts[2:]:
            stack.start_program(part)
        figures: dict[str, Any] = {"workspaces": chosen.workspaces, "really_slept": chosen.really, **_asleep(chosen)}
        figures |= _pages() | _scheduler()
        figures |= _wake(chosen.really)
    quick = ("fleet_page_p50_s", "workspaces_page_p50_s", "scheduler_round_p50_s")
    figures["holds"] = (
        figures["sandboxes_while_asleep"] == 0
        and all(figures[name] < QUICK_S for name in quick)
        and figures["most_waking_at_once"] <= WAKES_AT_ONCE
        and figures["most_waiting_to_wake"] > 0
        and figures["woke"] == chosen.really
        and figures["sandboxes_after_all_slept_again"] == 0
    )
    return tell(figures)


def _asleep(chosen: Any) -> dict[str, Any]:
    from tests import harness
    from workspaces.actions.checkpoints import store_snapshot
    from workspaces.engine.boxes import driver_named, sandbox_for
    from workspaces.models import Task, Workspace

    user = harness.make_user("bench", is_staff=True)
    call = "calls: [{name: shell, arguments: {command: 'echo hello > file'}}]"
    version = harness.scripted_profile(
        user, f"replies: [{{{call}}}, {{calls: [{{name: finish, arguments: {{summary: x}}}}]}}]"
    )
    driver: Any = driver_named(chosen.driver)
    began = time.monotonic()
    for number in range(chosen.workspaces):
        place = harness.make_workspace(user, driver=chosen.driver)
        working = number < chosen.really
        harness.create_task(
            workspace=place, profile_version=version, instruction="Say hello.", actor=user, hold=not working
        )
        if not working:
            sandbox = sandbox_for(place)
            fill(driver.store.path(place.sandbox_key) / "files" / "d", files=5, megabytes=1, owner=driver.owner)
            store_snapshot(place, sandbox.snapshot())
    _until(lambda: Task.objects.filter(status="succeeded").count() == chosen.really, 300)
    _let_sleep()
    _until(lambda: Workspace.objects.exclude(state="asleep").count() == 0, 300)
    return {"made_in_s": round(time.monotonic() - began, 1), "sandboxes_while_asleep": len(driver.awake())}


def _let_sleep() -> None:
    """As if everybody had been idle for a day."""
    from datetime import timedelta

    from django.db.models.functions import Now

    from workspaces.models import Task, Workspace

    Task.objects.update(status_since=Now() - timedelta(days=1))
    Workspace.objects.update(used_at=Now() - timedelta(days=1))


def _pages() -> dict[str, Any]:
    from django.test import Client

    from workspaces.models import User

    client = Client(headers={"host": "localhost"})
    client.force_login(User.objects.get(username="bench"))
    found: dict[str, Any] = {}
    for name, address in (("fleet_page", "/"), ("workspaces_page", "/workspaces/")):
        assert client.get(address).status_code == 200
        found |= spread(name, [timed(lambda address=address: client.get(address)) for _ in range(15)])
    return found


def _scheduler() -> dict[str, Any]:
    """What the scheduler looks for every second."""
    from django.conf import settings

    from workspaces.actions import retention, schedule, sleep

    def look() -> None:
        schedule.end_waits()
        schedule.expire_due()
        schedule.redispatch_due(after_s=5)
        sleep.end_claims()
        sleep.call_next(settings.WAKES_AT_ONCE)
        sleep.call_idle(settings.IDLE_TIMEOUT_S)

    look()
    found = spread("scheduler_round", [timed(look) for _ in range(15)])
    return found | {"retention_finds_its_tasks_s": round(timed(retention.due), 3)}


def _wake(number: int) -> dict[str, Any]:
    """All at once, as operators would; then asleep again."""
    from django.db.models import Count, Q

    from workspaces.actions.sleep import want_awake
    from workspaces.engine.boxes import driver_named
    from workspaces.models import Workspace

    places = list(Workspace.objects.filter(tasks__status="succeeded").order_by("pk")[:number])
    mine = Workspace.objects.filter(pk__in=[place.pk for place in places])
    for place in places:
        want_awake(place.pk)
    began = time.monotonic()
    waking, waiting, awake_after = [], [], []
    woke = 0
    while woke < number and time.monotonic() - began < 120:
        found = mine.aggregate(
            waking=Count("pk", filter=Q(state="waking")),
            waiting=Count("pk", filter=Q(state="asleep", wake_wanted_at__isnull=False)),
            awake=Count("pk", filter=Q(state="awake")),
        )
        waking.append(found["waking"])
        waiting.append(found["waiting"])
        awake_after += [time.monotonic() - began] * (found["awake"] - woke)
        woke = found["awake"]
        time.sleep(0.01)
    driver: Any = driver_named(places[0].driver)
    running = len(driver.awake())
    _let_sleep()
    slept_s = timed(lambda: _until(lambda: not mine.exclude(state="asleep").exists(), 120))
    return {
        "wake_limit": WAKES_AT_ONCE,
        "woke": woke,
        "sandboxes_awake": running,
        "most_waking_at_once": max(waking),
        "most_waiting_to_wake": max(waiting),
        "median_awake_after_s": round(statistics.median(awake_after), 2) if awake_after else None,
        "all_awake_after_s": round(awake_after[-1], 2) if awake_after else None,
        "all_asleep_again_after_s": round(slept_s, 2),
        "sandboxes_after_all_slept_again": len(driver.awake()),
    }


def _until(holds: Any, within_s: float) -> None:
    deadline = time.monotonic() + within_s
    while not holds():
        if time.monotonic() > deadline:
            raise SystemExit(f"not within {within_s} s")
        time.sleep(0.05)


if __name__ == "__main__":
    os.environ.setdefault("AGENTDESK_LOG_LEVEL", "ERROR")
    sys.exit(main())
