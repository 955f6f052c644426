"""kill -9 of the worker at every point of a step: the next worker comes to the same end, and repeats nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.db import connection

from tests.harness import events, make_user, make_workspace, scripted_task, work
from workspaces.domain.states import ModelCallStatus, TaskStatus
from workspaces.engine.boxes import sandbox_for
from workspaces.models import Event, LedgerEntry, ModelCall, Task, ToolCall

pytestmark = pytest.mark.django_db(transaction=True)

SCENARIO = """
replies:
  - text: first
    calls:
      - {name: write_file, arguments: {path: a.txt, content: "one two"}}
      - {name: shell, arguments: {command: "echo ran >> count.txt"}}
      - {name: edit_file, arguments: {path: a.txt, old: one, new: "one one"}}
  - text: second
    calls:
      - {name: charge, arguments: {amount: 5}}
      - {name: shell, arguments: {command: "echo ran >> count.txt; sleep 0.2"}}
  - calls: [{name: finish, arguments: {summary: done}}]
"""

POINTS = [
    ("workspaces.actions.leases", "claim", "after"),
    ("workspaces.actions.steps", "begin_running", "after"),
    ("workspaces.engine.runner", "hold_workspace", "after"),
    ("workspaces.actions.steps", "first_checkpoint", "before"),
    ("workspaces.actions.steps", "first_checkpoint", "after"),
    ("workspaces.actions.model_calls", "intend", "after"),
    ("workspaces.actions.model_calls", "store_reply", "before"),
    ("workspaces.actions.model_calls", "store_reply", "after"),
    ("workspaces.actions.calls", "store_judged", "before"),
    ("workspaces.actions.calls", "store_judged", "after"),
    ("workspaces.actions.calls", "start_call", "before"),
    ("workspaces.actions.calls", "start_call", "after"),
    ("workspaces.actions.calls", "finish_call", "before"),
    ("workspaces.actions.calls", "finish_call", "after"),
    ("workspaces.tools.edit", "EditFile.run", "after"),
    ("workspaces.tools.shell", "Shell.run", "after"),
    ("workspaces.tools.declared", "DeclaredTool.run", "after"),
    ("workspaces.actions.checkpoints", "settle_step", "before"),
    ("workspaces.actions.checkpoints", "settle_step", "after"),
    ("workspaces.actions.checkpoints", "end_task", "after"),
    ("workspaces.actions.leases", "release", "before"),
]


def charge(bank: Path) -> dict[str, Any]:
    """A tool whose effect can be counted from outside."""
    return {
        "name": "charge",
        "description": "Charge the customer.",
        "parameters": {"type": "object", "properties": {"amount": {"type": "number"}}, "required": ["amount"]},
        "effect": "external",
        "command": f"echo $AGENTDESK_IDEMPOTENCY_KEY >> {bank}; echo charged",
    }


def child_environment() -> dict[str, str]:
    name = connection.settings_dict["NAME"]
    url = os.environ["DATABASE_URL"].replace("/agentdesk?", f"/{name}?")
    assert name in url
    return {**os.environ, "DATABASE_URL": url}


def run_until_killed(task: Task, module: str, function: str, when: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.engine.dying_worker", str(task.pk), module, function, when],
        cwd=settings.REPO,
        env=child_environment(),
        timeout=60,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr[-2000:]


def let_the_lease_run_out(task: Task) -> None:
    Task.objects.filter(pk=task.pk).exclude(lease_until=None).update(lease_until=task.created_at)


def check_the_end(task: Task, bank: Path) -> None:
    assert task.status == TaskStatus.SUCCEEDED, events(task, "escalation.opened")
    sandbox = sandbox_for(task.workspace)
    assert sandbox.read("a.txt") == b"one one two"
    assert sandbox.read("count.txt") == b"ran\nran\n"
    assert len(bank.read_text().split()) == 1
    assert LedgerEntry.objects.get(root_task=task).state == "completed"
    assert ModelCall.objects.filter(task=task, status=ModelCallStatus.REPLIED.value).count() == 3
    assert ToolCall.objects.filter(task=task).exclude(status="done").count() == 0
    seqs = list(Event.objects.filter(task=task).order_by("seq").values_list("seq", flat=True))
    assert seqs == list(range(1, len(seqs) + 1))


@pytest.mark.parametrize(("module", "function", "when"), POINTS, ids=lambda value: str(value).rpartition(".")[2])
def test_a_killed_worker_loses_nothing_and_repeats_nothing(
    tmp_path: Path, module: str, function: str, when: str
) -> None:
    bank = tmp_path / "bank"
    task = scripted_task(SCENARIO, declared_tools=[charge(bank)])
    run_until_killed(task, module, function, when)
    stored = ModelCall.objects.filter(task=task, status=ModelCallStatus.REPLIED.value).count()
    finished = set(ToolCall.objects.filter(task=task, status="done").values_list("pk", "attempt"))
    let_the_lease_run_out(task)
    task = work(task)
    check_the_end(task, bank)
    asked_again = ModelCall.objects.filter(task=task, status=ModelCallStatus.DROPPED.value).count()
    assert ModelCall.objects.filter(task=task).count() == 3 + asked_again
    assert asked_again <= 1
    if stored:
        assert finished <= set(ToolCall.objects.filter(task=task).values_list("pk", "attempt"))


def test_a_worker_killed_while_a_command_runs_is_followed_by_one_that_waits_for_it(tmp_path: Path) -> None:
    slow = """
    replies:
      - calls: [{name: shell, arguments: {command: "echo start >> log; sleep 3; echo end >> log"}}]
      - calls: [{name: finish, arguments: {summary: done}}]
    """
    task = scripted_task(slow, workspace=make_workspace(make_user()))
    worker = subprocess.Popen(
        [
            *(sys.executable, "-m", "tests.engine.dying_worker", str(task.pk)),
            *("workspaces.engine.act", "Actor._settle", "before"),
        ],
        cwd=settings.REPO,
        env=child_environment(),
    )
    deadline = time.monotonic() + 30
    while not ToolCall.objects.filter(task=task, status="running").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    time.sleep(0.3)
    worker.kill()
    worker.wait()
    let_the_lease_run_out(task)
    task = work(task)
    assert task.status == TaskStatus.SUCCEEDED
    assert sandbox_for(task.workspace).read("log") == b"start\nend\n"
    assert ToolCall.objects.get(task=task, name="shell").attempt == 1


def test_a_second_worker_cannot_claim_a_leased_task() -> None:
    from workspaces.actions.leases import claim

    task = scripted_task(SCENARIO)
    first = claim(task.pk, worker="a", lease_s=30)
    assert first is not None
    assert claim(task.pk, worker="b", lease_s=30) is None


def test_a_worker_whose_lease_was_taken_can_no_longer_write() -> None:
    from workspaces.actions import steps
    from workspaces.actions.errors import FenceLost
    from workspaces.actions.leases import claim

    task = scripted_task(SCENARIO)
    first = claim(task.pk, worker="a", lease_s=30)
    assert first is not None
    let_the_lease_run_out(task)
    second = claim(task.pk, worker="b", lease_s=30)
    assert second is not None
    assert second.previous_owner == "a"
    with pytest.raises(FenceLost):
        steps.workspace_woke(task.pk, first.fence, duration_s=0)
    steps.workspace_woke(task.pk, second.fence, duration_s=0)
