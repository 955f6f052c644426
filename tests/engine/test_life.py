"""A task's life through the real engine: scripted model, real tools, real files."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.harness import events, kinds, scripted_task, work
from workspaces.domain.states import TaskStatus
from workspaces.engine.boxes import sandbox_for
from workspaces.models import Checkpoint, Event, Message, Step

pytestmark = pytest.mark.django_db(transaction=True)

WRITE_AND_FINISH = """
replies:
  - text: I write the file.
    calls: [{name: write_file, arguments: {path: hello.txt, content: hi}}]
  - calls: [{name: shell, arguments: {command: "cat hello.txt; echo more >> hello.txt"}}]
  - calls: [{name: finish, arguments: {summary: done}}]
"""


def test_a_task_runs_to_its_end_with_real_files() -> None:
    task = work(scripted_task(WRITE_AND_FINISH))
    assert task.status == TaskStatus.SUCCEEDED, events(task, "escalation.opened")
    assert task.result == "done"
    assert sandbox_for(task.workspace).read("hello.txt") == b"himore\n"
    assert task.steps_taken == 3
    assert Step.objects.filter(task=task, phase="settled").count() == 3


def test_seq_has_no_gaps_and_the_chain_of_hashes_holds() -> None:
    task = work(scripted_task(WRITE_AND_FINISH))
    trace = list(Event.objects.filter(task=task).order_by("seq"))
    assert [event.seq for event in trace] == list(range(1, task.last_seq + 1))
    for before, after in pairwise(trace):
        assert after.previous_hash == before.hash


def test_every_step_ends_in_a_checkpoint() -> None:
    task = work(scripted_task(WRITE_AND_FINISH))
    numbers = list(Checkpoint.objects.filter(task=task).order_by("seq").values_list("step_number", flat=True))
    assert numbers == [0, 1, 2, 3]


def test_each_tool_result_stands_behind_its_call() -> None:
    task = work(scripted_task(WRITE_AND_FINISH))
    roles = list(Message.objects.filter(task=task).order_by("seq", "part").values_list("role", flat=True))
    assert roles == ["user", "assistant", "tool", "assistant", "tool", "assistant", "tool"]
    assert kinds(task)[-1] == "task.succeeded"
