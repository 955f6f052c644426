"""A worker whose clock is ten minutes off: it writes the database's time, keeps its leases and steals none."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.conf import settings

from tests.engine.test_recovery import child_environment
from tests.harness import events, scripted_task
from workspaces.actions import leases
from workspaces.actions.clock import database_now
from workspaces.domain.quotas import PoolState
from workspaces.domain.states import TaskStatus
from workspaces.models import Event, Message, QuotaPool, Snapshot, Step, Task, ToolCall

pytestmark = pytest.mark.django_db(transaction=True)

# the command outlives the lease: only a worker that renews by the database's clock keeps the task
SCENARIO = """
replies:
  - calls: [{name: shell, arguments: {command: "sleep 3.5; echo done > done.txt"}}]
  - fault: {kind: rate_limit, retry_after_s: 90, times: 9}
"""


def work_with_clock(offset_s: int, task: Task, *others: Task) -> dict[str, Any]:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "tests.engine.wrong_clock", str(offset_s), str(task.pk)),
            *(str(other.pk) for other in others),
        ],
        cwd=settings.REPO,
        env=child_environment() | {"AGENTDESK_LEASE_S": "3"},
        timeout=120,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    told: dict[str, Any] = json.loads(done.stdout)
    assert abs(datetime.fromisoformat(told["clock"]) - database_now()) > timedelta(minutes=9), "its clock was right"
    return told


@pytest.mark.parametrize("offset_s", [600, -600])
def test_a_worker_with_a_wrong_clock_writes_the_right_time_and_respects_leases_and_waits(offset_s: int) -> None:
    before = database_now()
    task = scripted_task(SCENARIO)
    held, free = (scripted_task("replies: [{text: x}]") for _ in range(2))
    assert leases.claim(held.pk, worker="here", lease_s=60)
    assert leases.claim(free.pk, worker="here", lease_s=0)
    told = work_with_clock(offset_s, task, held, free)
    after = database_now()
    assert told["claimed"] == [free.pk], "a lease that stands was stolen, or one that ran out was respected"
    task.refresh_from_db()
    assert (task.status, task.waiting_for) == (TaskStatus.WAITING, "quota")
    assert task.waiting_until is not None
    assert before + timedelta(seconds=89) < task.waiting_until < after + timedelta(seconds=91)
    assert not events(task, "task.taken_over")
    call = ToolCall.objects.get(task=task, name="shell")
    assert (call.attempt, call.result_class) == (1, "ok"), "the command was timed out or run again"
    times = [
        *Event.objects.filter(task=task).values_list("at", flat=True),
        *Message.objects.filter(task=task).values_list("created_at", flat=True),
        *Snapshot.objects.filter(workspace=task.workspace).values_list("created_at", flat=True),
        *Step.objects.filter(task=task).values_list("started_at", flat=True),
        task.status_since,
    ]
    assert all(before <= at <= after for at in times)
    assert list(Event.objects.filter(task=task).order_by("seq").values_list("at", flat=True)) == sorted(
        Event.objects.filter(task=task).values_list("at", flat=True)
    )

    told = work_with_clock(offset_s, task)
    assert told["woken"] == 0, "the wait ended early"
    pool = QuotaPool.objects.get(claims__task=task)
    ended = replace(PoolState.from_json(pool.state), blocked_until=database_now().timestamp())
    QuotaPool.objects.filter(pk=pool.pk).update(state=ended.as_json())
    told = work_with_clock(offset_s, task)
    assert told["woken"] == 1
