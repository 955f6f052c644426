"""Sandboxes are put to rest: after the last task, and when the installation stops."""

from __future__ import annotations

import pytest

from tests.engine.test_pause import SLEEPS, paused_in_a_command, ticks
from tests.harness import eventually, scripted_task, work
from workspaces.actions.tasks import resume_task
from workspaces.domain.states import TaskStatus
from workspaces.engine.boxes import sandbox_for
from workspaces.engine.lifecycle import rest, rest_all
from workspaces.models import ToolCall

pytestmark = pytest.mark.django_db(transaction=True)


def test_the_sandbox_of_a_free_workspace_is_stopped_and_its_files_stay() -> None:
    task = work(scripted_task(SLEEPS))
    rest(task.workspace_id)
    sandbox = sandbox_for(task.workspace)
    assert sandbox.state() == "stopped"
    assert sandbox.read("log") == b"one\ntwo\n"


def test_the_sandbox_of_a_held_workspace_is_left_alone() -> None:
    task = work(scripted_task(SLEEPS), until=lambda t: t.steps_taken >= 1)
    rest(task.workspace_id)
    assert sandbox_for(task.workspace).state() == "running"


def test_at_a_stop_idle_sandboxes_end_and_a_command_in_flight_is_frozen_and_goes_on_later() -> None:
    idle = work(scripted_task(SLEEPS))
    sandbox_for(idle.workspace).start()
    busy = paused_in_a_command()
    sandbox_for(busy.workspace).thaw()
    done = rest_all("local")
    assert done == {"stopped": 1, "frozen": 1}
    assert sandbox_for(idle.workspace).state() == "stopped"
    assert sandbox_for(busy.workspace).state() == "frozen"
    resume_task(busy.pk, actor=busy.created_by)
    busy = work(busy)
    assert busy.status == TaskStatus.SUCCEEDED
    eventually(lambda: len(ticks(busy)) == 16)
    assert ToolCall.objects.get(task=busy, step__number=2).attempt == 1
