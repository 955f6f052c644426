"""One fault each, on real processes: nothing is lost, nothing is done twice, and nobody is asked about it."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator

import pytest

from agentdesk import connections
from tests.harness import events, eventually, kinds, make_user, make_workspace, scripted_profile, scripted_task
from tests.stack.ground import Ground, ended
from workspaces.actions.tasks import create_task
from workspaces.dispatch import ADVANCE
from workspaces.domain.states import ModelCallStatus, TaskStatus
from workspaces.models import Escalation, Event, ModelCall, Task, ToolCall

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.stack]

SLOW = """
replies:
  - delay_s: 1.5
    calls: [{name: shell, arguments: {command: "echo begun >> log; sleep 2.5; echo ended >> log"}}]
  - calls: [{name: shell, arguments: {command: "cat log"}}]
  - calls: [{name: finish, arguments: {summary: "{{last_result}}"}}]
"""

LONG = """
replies:
  - calls: [{name: shell, arguments: {command: "echo begun >> log; sleep 9; echo ended >> log"}}]
  - calls: [{name: finish, arguments: {summary: "{{last_result}}"}}]
"""
QUICK = """
replies:
  - calls: [{name: shell, arguments: {command: "echo a >> log"}}]
  - calls: [{name: shell, arguments: {command: "echo b >> log"}}]
  - calls: [{name: shell, arguments: {command: "echo c >> log"}}]
  - calls: [{name: finish, arguments: {summary: done}}]
"""


@pytest.fixture(scope="module")
def servers() -> Iterator[Ground]:
    """One for all of them: each starts the processes that it needs."""
    with Ground() as ground:
        yield ground


@pytest.fixture
def ground(servers: Ground) -> Iterator[Ground]:
    servers.broker().flushall()
    with servers.spoken_to():
        yield servers


def gapless(task: Task) -> bool:
    seqs = list(Event.objects.filter(task=task).order_by("seq").values_list("seq", flat=True))
    return seqs == list(range(1, len(seqs) + 1))


def done_once(task: Task) -> bool:
    task.refresh_from_db()
    assert task.status == TaskStatus.SUCCEEDED, kinds(task)
    assert not Escalation.objects.filter(task=task).exists()
    assert gapless(task)
    return True


def test_a_restart_of_postgres_in_mid_step_costs_neither_a_reply_nor_a_result(ground: Ground) -> None:
    ground.worker()
    ground.scheduler()
    task = scripted_task(SLOW)
    eventually(lambda: ModelCall.objects.filter(task=task, status="running").exists(), within_s=60)
    ground.restart_postgres()  # the reply comes while it is away, or meets a dead connection
    eventually(lambda: ToolCall.objects.filter(task=task, status="running").exists(), within_s=60)
    ground.restart_postgres()
    eventually(lambda: ended(task), within_s=60, what="the task goes on")
    assert done_once(task)
    assert ground.lines(task, "log") == ["begun", "ended"]
    assert set(ModelCall.objects.filter(task=task).values_list("status", flat=True)) == {ModelCallStatus.REPLIED.value}
    assert ModelCall.objects.filter(task=task).count() == 3
    assert not events(task, "call.unknown")


@pytest.mark.long
def test_postgres_away_for_a_while_asks_nobody_and_the_reply_is_kept(ground: Ground) -> None:
    """Long enough that the reply finds no server at all."""
    worker = ground.worker()
    ground.scheduler()
    task = scripted_task(SLOW)
    eventually(lambda: ModelCall.objects.filter(task=task, status="running").exists(), within_s=60)
    ground.stop_postgres()
    eventually(lambda: "what is in hand waits" in ground.log(worker), within_s=30, what="the reply meets no server")
    ground.start_postgres()
    eventually(lambda: ended(task), within_s=60, what="the task goes on")
    assert done_once(task)
    assert ModelCall.objects.filter(task=task).count() == 3


def test_a_worker_told_to_end_hands_its_command_over_at_once(ground: Ground) -> None:
    """The lease is ten minutes long: only a lease let go of explains that the next worker goes on now."""
    lease = {"AGENTDESK_LEASE_S": "600"}
    first = ground.worker("first", **lease)
    ground.scheduler()
    task = scripted_task(LONG)
    eventually(lambda: running_command(task), within_s=60)
    assert first.stop(60), "it had to be killed"
    assert not ended(task), "it waited for the whole command"
    assert "handed over in mid-phase" not in ground.log(first)
    ground.worker("second", **lease)
    eventually(lambda: ended(task), within_s=90, what="the next worker waits for the command")
    assert done_once(task)
    assert ground.lines(task, "log") == ["begun", "ended"]
    assert ToolCall.objects.get(task=task, position=0, step__number=1).attempt == 1
    assert not events(task, "task.taken_over"), "the lease was not let go of"


@pytest.mark.long
def test_a_worker_told_to_end_finishes_the_phase_that_runs_and_begins_no_other(ground: Ground) -> None:
    first = ground.worker("first", AGENTDESK_DRAIN_S="30")
    ground.scheduler()
    task = scripted_task(SLOW)
    eventually(lambda: ModelCall.objects.filter(task=task, status="running").exists(), within_s=60)
    assert first.stop(60), "it had to be killed"
    assert ModelCall.objects.get(task=task).status == ModelCallStatus.REPLIED.value, "a paid reply was thrown away"
    assert not ToolCall.objects.filter(task=task).exists(), "another phase began"
    ground.worker("second")
    eventually(lambda: ended(task), within_s=60)
    assert done_once(task)
    assert ModelCall.objects.filter(task=task).count() == 3


def test_a_worker_that_was_stopped_past_its_lease_writes_nothing_when_it_comes_back(ground: Ground) -> None:
    first = ground.worker("first")
    ground.scheduler()
    task = scripted_task(SLOW)
    eventually(lambda: running_command(task), within_s=60)
    assert first.pid is not None
    os.kill(first.pid, signal.SIGSTOP)
    try:
        ground.worker("second")
        eventually(lambda: events(task, "task.taken_over"), within_s=60, what="the second worker takes over")
        eventually(lambda: ended(task), within_s=60)
        before = kinds(task)
    finally:
        os.kill(first.pid, signal.SIGCONT)
    eventually(lambda: "was taken over" in ground.log(first), within_s=60, what="the first one learns of it")
    assert kinds(task) == before
    assert done_once(task)
    assert ground.lines(task, "log") == ["begun", "ended"]
    assert kinds(task).count("call.finished") == 3


def test_calls_delivered_thrice_in_any_order_to_two_workers_of_two_schedulers_do_everything_once(
    ground: Ground,
) -> None:
    user = make_user()
    version = scripted_profile(user, QUICK)
    tasks = [
        create_task(workspace=make_workspace(user), profile_version=version, instruction="Go.", actor=user)
        for _ in range(6)
    ]
    for name in ("one", "two"):
        ground.worker(name)
        ground.scheduler(f"scheduler-{name}")
    dice = random.Random(7)
    while not ended(*tasks):
        calls = [task.pk for task in tasks] * 3
        dice.shuffle(calls)
        deliver(ground, calls)
        time.sleep(0.3)
    for task in tasks:
        assert done_once(task)
        assert ground.lines(task, "log") == ["a", "b", "c"]
        assert ModelCall.objects.filter(task=task).count() == 4
        assert not events(task, "task.taken_over")


def test_a_pool_with_fewer_connections_than_threads_makes_tasks_slow_and_asks_nobody(ground: Ground) -> None:
    user = make_user()
    version = scripted_profile(user, QUICK)
    tasks = [
        create_task(workspace=make_workspace(user), profile_version=version, instruction="Go.", actor=user)
        for _ in range(8)
    ]
    ground.worker(AGENTDESK_DB_POOL_MAX="1")
    ground.scheduler()
    eventually(lambda: ended(*tasks), within_s=120, what="all end")
    for task in tasks:
        assert done_once(task)
        assert ground.lines(task, "log") == ["a", "b", "c"]
        assert not events(task, "task.taken_over"), "the keeper's questions waited for the pool"


def running_command(task: Task) -> bool:
    return ToolCall.objects.filter(task=task, status="running").exists()


def deliver(ground: Ground, task_ids: list[int]) -> None:
    """Calls as the broker holds them (Celery's protocol 2 in kombu's form), put there from outside."""
    from celery import current_app
    from kombu import Connection

    url = connections.broker_url(ground.stack.environment["VALKEY_URL"])
    with Connection(url, transport_options=current_app.conf.broker_transport_options) as broker:
        producer = current_app.amqp.Producer(broker)
        for task_id in task_ids:
            current_app.send_task(ADVANCE, args=[task_id], producer=producer, retry=False)
