"""Real worker and scheduler processes: what they do when one is killed, or the broker forgets everything."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from django.conf import settings
from django.db import connection

from agentdesk.embedded.stack import Stack
from tests.harness import events, eventually, make_user, make_workspace, scripted_profile, scripted_task
from workspaces.actions.tasks import create_task
from workspaces.domain.states import TaskStatus
from workspaces.models import Event, Task, ToolCall, Workspace
from workspaces.sandboxes import make_driver
from workspaces.sandboxes.base import SandboxSpec

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.stack]

SLOW = """
replies:
  - calls: [{name: shell, arguments: {command: "echo begun >> log; sleep 2; echo ended >> log"}}]
  - calls: [{name: shell, arguments: {command: "cat log"}}]
  - calls: [{name: finish, arguments: {summary: "{{last_result}}"}}]
"""


@pytest.fixture
def stack() -> Iterator[Stack]:
    """A worker and a scheduler on this test's database and broker, with disks of their own."""
    home = Path(tempfile.mkdtemp(prefix="agentdesk-stack-"))
    url = os.environ["DATABASE_URL"].replace("/agentdesk?", f"/{connection.settings_dict['NAME']}?")
    broker().flushall()
    own = Stack(
        home,
        {"worker", "scheduler"},
        extra_environment={
            "DATABASE_URL": url,
            "VALKEY_URL": os.environ["VALKEY_URL"],
            "AGENTDESK_LEASE_S": "3",
            "AGENTDESK_DRAIN_S": "2",
            "AGENTDESK_WORKER_CONCURRENCY": "16",
        },
    )
    try:
        with own:
            yield own
    finally:
        shutil.rmtree(home, ignore_errors=True)


def broker() -> redis.Redis:
    return redis.Redis.from_url(settings.VALKEY_URL)


def ended(*tasks: Task) -> bool:
    return not Task.objects.filter(pk__in=[task.pk for task in tasks], finished_at=None).exists()


def log(stack: Stack, workspace: Workspace) -> list[str]:
    driver = make_driver("local", stack.home / "sandboxes" / "local")
    return driver.open(SandboxSpec(key=workspace.sandbox_key)).read("log").decode().split()


def test_many_tasks_advance_side_by_side_to_their_end(stack: Stack) -> None:
    user = make_user()
    version = scripted_profile(user, SLOW)
    tasks = [
        create_task(workspace=make_workspace(user), profile_version=version, instruction="Go.", actor=user)
        for _ in range(8)
    ]
    eventually(lambda: ended(*tasks), within_s=60, what="eight tasks end")
    for task in Task.objects.filter(pk__in=[task.pk for task in tasks]):
        assert task.status == TaskStatus.SUCCEEDED
        assert Event.objects.filter(task=task).count() == task.last_seq


def test_a_killed_worker_is_followed_by_one_that_waits_for_its_command(stack: Stack) -> None:
    task = scripted_task(SLOW)
    eventually(lambda: ToolCall.objects.filter(task=task, status="running").exists(), within_s=30)
    worker = stack.programs["worker"]
    assert worker.pid is not None
    os.kill(worker.pid, 9)
    eventually(lambda: not worker.alive(), what="the worker is dead")
    stack.start_program("worker")
    eventually(lambda: ended(task), within_s=60, what="the task ends with the next worker")
    task.refresh_from_db()
    assert task.status == TaskStatus.SUCCEEDED
    assert log(stack, task.workspace) == ["begun", "ended"]
    assert len(events(task, "task.taken_over")) == 1


def test_a_broker_that_forgets_everything_loses_nothing(stack: Stack) -> None:
    eventually(lambda: broker().exists("agentdesk.jobs._kombu.binding.jobs"), within_s=30, what="the worker listens")
    stack.programs["worker"].stop(10)
    tasks = [scripted_task(SLOW) for _ in range(3)]
    broker().flushall()
    stack.start_program("worker")
    eventually(lambda: ended(*tasks), within_s=60, what="the scheduler calls again")
    assert all(task.status == TaskStatus.SUCCEEDED for task in Task.objects.filter(pk__in=[t.pk for t in tasks]))
