"""A worker whose clock is off: works on one task until nothing is due for it. Run by test_clock.py.

    python -m tests.engine.wrong_clock OFFSET_S TASK_ID [MINE...]

Then it looks once as the scheduler does, tries to claim each task in MINE, and prints what it did as JSON.
"""

from __future__ import annotations

import json
import os
import sys
import time
from datetime import timedelta

import django
from django.utils import timezone


def set_clock(offset_s: float) -> None:
    wall, now = time.time, timezone.now
    time.time = lambda: wall() + offset_s
    timezone.now = lambda: now() + timedelta(seconds=offset_s)


def main() -> None:
    set_clock(float(sys.argv[1]))
    task_id, *others = map(int, sys.argv[2:])
    os.environ["DJANGO_SETTINGS_MODULE"] = "agentdesk.settings"
    django.setup()
    from workspaces.actions import leases, quota_sweep, schedule
    from workspaces.engine import runner

    woken = schedule.end_waits() + quota_sweep.look()
    while runner.advance(task_id):
        pass
    print(
        json.dumps(
            {
                "clock": timezone.now().isoformat(),
                "woken": woken,
                "claimed": [pk for pk in others if leases.claim(pk, worker="thief", lease_s=30)],
            }
        )
    )


if __name__ == "__main__":
    main()
