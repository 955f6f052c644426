"""The trail that detectors read: the same from any worker, along rollbacks, in bounded time."""

from __future__ import annotations

import secrets
import time

import pytest

from tests.engine.moments import killed_at
from tests.harness import quota_frees, scripted_task, work
from workspaces.actions.rollbacks import fork, roll_back
from workspaces.actions.tasks import resume_task, send_message
from workspaces.domain.trail import WINDOW, Trail
from workspaces.models import Checkpoint, Task
from workspaces.queries.trails import calls_on_line, trail_of

pytestmark = pytest.mark.django_db(transaction=True)

WRITES = """
replies:
  - text: "turn {{index}}"
    repeat: 5
    calls:
      - {name: write_file, arguments: {path: "f{{index}}.txt", content: "x{{index}}"}}
      - {name: read_file, arguments: {path: nope.txt}}
  - calls: [{name: finish, arguments: {summary: done}}]
"""


def trail(task: Task) -> Trail:
    assert task.branch is not None
    return trail_of(task, task.branch)


def test_a_trail_holds_turns_with_calls_results_and_disks() -> None:
    task = work(scripted_task(WRITES))
    turns = trail(task).turns
    assert [turn.step for turn in turns] == [1, 2, 3, 4, 5, 6]
    assert [call.name for call in turns[1].calls] == ["write_file", "read_file"]
    assert turns[1].text == "turn 1"
    assert turns[1].calls[0].arguments == '{"content":"x1","path":"f1.txt"}'
    assert turns[0].calls[1].result_hash == turns[1].calls[1].result_hash != turns[1].calls[0].result_hash
    assert turns[0].calls[1].call_hash == turns[1].calls[1].call_hash
    assert (turns[0].calls[0].result_class.value, turns[0].calls[1].result_class.value) == ("ok", "error")
    assert len({turn.disk for turn in turns[:5]}) == 5
    assert turns[4].disk == turns[5].disk != ""
    assert all(turn.seq < turn.calls[0].seq for turn in turns)
    assert all(turn.estimated_tokens > 0 and turn.prompt_tokens for turn in turns)


def test_a_persons_words_belong_to_the_turn_whose_request_held_them() -> None:
    task = scripted_task(WRITES)
    work(task, until=lambda t: t.steps_taken == 2)
    send_message(task.pk, text="look at the other file", actor=task.created_by)
    task = work(task)
    assert [turn.step for turn in trail(task).turns if turn.operator_spoke] == [3]


def test_notes_and_provider_failures_are_seen() -> None:
    task = work(
        scripted_task(
            f"""
            name: {secrets.token_hex(4)}
            replies:
              - fault: {{kind: overloaded, times: 1}}
                calls: [{{name: note, arguments: {{section: exit_condition, text: "out.txt exists"}}}}]
              - calls: [{{name: finish, arguments: {{summary: done}}}}]
            """  # how often a request failed is counted by scenario: a name of its own for each run
        )
    )
    assert (task.status, quota_frees()) == ("waiting", 1)
    task = work(task)
    found = trail(task)
    assert found.turns[0].provider_errors == ("overloaded",)
    assert (found.turns[0].notes, found.turns[1].notes) == (1, 0)
    assert found.exit_condition == "out.txt exists"


def test_a_rolled_back_line_goes_on_from_the_cut_and_a_fork_begins_anew() -> None:
    task = work(scripted_task(WRITES))
    third = Checkpoint.objects.filter(task=task, step_number=3).get()
    forked = fork(third.pk, reason="try", actor=task.created_by)
    task = roll_back(third.pk, reason="again", actor=task.created_by)
    task = resume_task(work(task).pk, actor=task.created_by)
    task = work(task)
    turns = trail(task).turns
    assert [turn.step for turn in turns] == [1, 2, 3, 4, 5, 6]
    assert [turn.step for turn in turns if turn.operator_spoke] == [4]
    assert turns[3].seq > turns[2].seq
    forked = work(forked)
    assert [turn.step for turn in trail(forked).turns] == [4, 5, 6]
    assert forked.branch is not None
    assert [call.name for call in calls_on_line(forked.branch)][:2] == ["write_file", "read_file"]
    assert len(calls_on_line(forked.branch)) == 11


def test_a_worker_that_died_leaves_the_same_trail() -> None:
    whole = trail(work(scripted_task(WRITES)))
    task = killed_at(scripted_task(WRITES), "workspaces.actions.checkpoints:settle_step", time=3)
    died = trail(work(task))
    assert [(turn.step, turn.text) for turn in died.turns] == [(turn.step, turn.text) for turn in whole.turns]
    assert [call.result_hash for call in died.calls] == [call.result_hash for call in whole.calls]


def test_a_long_history_costs_no_more_than_its_window() -> None:
    task = work(
        scripted_task(
            """
            replies:
              - repeat: 64
                calls: [{name: read_file, arguments: {path: "f{{index}}.txt"}}]
              - calls: [{name: finish, arguments: {summary: done}}]
            """,
            detectors={"observe_only": True},
        )
    )
    assert len(trail(task).turns) == WINDOW
    assert trail(task).turns[-1].step == 65
    began = time.perf_counter()
    for _ in range(20):
        trail(task)
    each_ms = (time.perf_counter() - began) / 20 * 1000
    print(f"{each_ms:.2f} ms a trail of {WINDOW} turns")
    assert each_ms < 200
