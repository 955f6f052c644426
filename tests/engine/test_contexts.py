"""The request of any past step can be had again from durable history, to the last byte, on every branch."""

from __future__ import annotations

import pytest

from tests.harness import scripted_task, work
from workspaces.actions.rollbacks import fork, roll_back
from workspaces.actions.tasks import resume_task, send_message
from workspaces.domain.context import SegmentKind
from workspaces.models import Checkpoint, Message, Step, Task
from workspaces.providers.base import ChatReply, ChatRequest
from workspaces.providers.scripted import ScriptedProvider
from workspaces.queries.contexts import NotRebuilt, request_hash, request_of, segments_of

pytestmark = pytest.mark.django_db(transaction=True)

SCENARIO = """
replies:
  - text: I make a file.
    calls:
      - {name: write_file, arguments: {path: a.txt, content: "one two"}}
      - {name: note, arguments: {section: exit_condition, text: "a.txt holds three words"}}
  - calls: [{name: shell, arguments: {command: "cat a.txt; echo three"}}]
  - calls: [{name: read_file, arguments: {path: a.txt}}]
  - calls: [{name: finish, arguments: {summary: done}}]
"""


@pytest.fixture
def received(monkeypatch: pytest.MonkeyPatch) -> dict[str, ChatRequest]:
    """What the provider was really handed, by the hash of it."""
    requests: dict[str, ChatRequest] = {}
    complete = ScriptedProvider.complete

    def recording(provider: ScriptedProvider, request: ChatRequest, **how: object) -> ChatReply:
        requests[request_hash(request)] = request
        return complete(provider, request, **how)  # type: ignore[arg-type]

    monkeypatch.setattr(ScriptedProvider, "complete", recording)
    return requests


def steps_of(*tasks: Task) -> list[Step]:
    return list(Step.objects.filter(task__in=tasks).exclude(manifest={}).order_by("pk"))


def check(received: dict[str, ChatRequest], *tasks: Task) -> None:
    """Each step's request is made again, and is the one that its provider was handed."""
    for step in steps_of(*tasks):
        rebuilt = request_of(step)
        assert rebuilt.exact, step
        assert rebuilt.request == received[step.manifest["request_hash"]], step


def test_the_request_of_each_step_is_made_again_on_every_branch_and_in_a_fork(
    received: dict[str, ChatRequest],
) -> None:
    task = work(scripted_task(SCENARIO))
    check(received, task)
    early = Checkpoint.objects.filter(task=task, step_number=1).get()
    roll_back(early.pk, reason="again", actor=task.created_by)
    send_message(task.pk, text="Be careful.", actor=task.created_by)
    resume_task(task.pk, actor=task.created_by)
    task = work(task)
    forked = work(fork(early.pk, reason="another way", instruction="Another way.", actor=task.created_by))
    check(received, task, forked)
    assert len(steps_of(task, forked)) == 4 + 3 + 3
    last = request_of(steps_of(forked)[-1]).request
    assert [m.content for m in last.messages if "operator" in m.content] == ["Message from the operator: Another way."]


def test_a_message_that_comes_later_is_not_in_an_earlier_request(received: dict[str, ChatRequest]) -> None:
    task = work(scripted_task(SCENARIO), until=lambda task: task.steps_taken == 2)
    send_message(task.pk, text="Hurry.", actor=task.created_by)
    work(task)
    check(received, task)
    said = ["Hurry" in str(request_of(step).request.messages) for step in steps_of(task)]
    assert said == [False, False, True, True]


def test_what_was_changed_in_history_shows_as_another_request(received: dict[str, ChatRequest]) -> None:
    task = work(scripted_task(SCENARIO))
    step = steps_of(task)[-1]
    assert request_of(step).exact
    step.manifest["as_of_seq"] -= 8
    assert not request_of(step).exact


def test_the_segments_of_a_step_are_its_window_with_the_exact_text() -> None:
    task = work(scripted_task(SCENARIO))
    step = steps_of(task)[2]
    segments = {segment.kind: segment for segment in segments_of(step)}
    assert sum(segment.tokens for segment in segments.values()) == step.manifest["window_tokens"]
    for kind, segment in segments.items():
        if segment.items:
            assert segment.tokens == sum(item.tokens for item in segment.items), kind
    pad, instruction = segments[SegmentKind.PINNED].items
    assert "a.txt holds three words" in pad.text
    assert instruction.text == "Do the work."
    outputs = segments[SegmentKind.TOOL_OUTPUT].items
    results = Message.objects.filter(task=task, role="tool").order_by("seq")
    assert [item.text for item in outputs] == list(results.values_list("content", flat=True))[:3]
    assert all(item.message_id for item in outputs)


def test_a_step_without_a_request_says_so() -> None:
    with pytest.raises(NotRebuilt, match="asked no model"):
        request_of(Step(manifest={}))
