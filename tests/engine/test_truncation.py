"""What a real server cut off, through the whole engine: the incident, the window that was learned, the model told."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.harness import check_history, events, make_user, make_workspace, scripted_task, work
from tests.providers.servers import KEY, MODEL, Plan, Server
from workspaces.actions.incidents import resolve_incident
from workspaces.actions.profiles import create_profile
from workspaces.actions.tasks import create_task
from workspaces.engine import truncation
from workspaces.engine.run import Run
from workspaces.models import Incident, LearnedWindow, ModelCall, Step, Task
from workspaces.queries.calibration import Limits

pytestmark = pytest.mark.django_db(transaction=True)


def shell(call: int) -> Plan:
    """3,200 characters, about 900 tokens a step, and no two the same."""
    text = json.dumps({"command": f"seq {100 + call} 900"})
    return Plan(calls=((f"c{call}", "shell", (text,)),), finish="tool_calls")


DONE = Plan(calls=(("end", "finish", ('{"summary": "done"}',)),), finish="tool_calls")


def counted(asked: dict[str, Any]) -> int:
    """A tokenizer of 3 characters a token, and the server's own template."""
    sent = [(message.get("content") or "") + json.dumps(message.get("tool_calls", "")) for message in asked["messages"]]
    return sum(len(text) for text in sent) // 3 + len(json.dumps(asked.get("tools", []))) // 3


@pytest.fixture
def server() -> Iterator[Server]:
    with Server("openai") as running:
        running.counts = counted
        yield running


def task_at(server: Server, **profile: Any) -> Task:
    owner = make_user()
    version = create_profile(
        name="remote",
        workspace=None,
        actor=owner,
        api_key=KEY,
        **{
            "provider": "openai",
            "base_url": server.base_url,
            "model": MODEL,
            "tools": ["shell", "write_file", "finish", "note"],
            "local_allowed": True,
            "max_output_tokens": 1_000,
            **profile,
        },
    )
    workspace = make_workspace(owner)
    return create_task(workspace=workspace, profile_version=version, instruction="Count.", actor=owner)


def test_a_model_is_counted_by_its_own_calls_and_the_step_says_by_what(server: Server) -> None:
    server.plans = [*(shell(n) for n in range(8)), DONE]
    task = work(task_at(server))
    assert task.status == "succeeded"
    assert not Incident.objects.exists()
    told = list(Step.objects.filter(task=task).order_by("number").values_list("manifest", flat=True))
    calls = list(ModelCall.objects.filter(task=task).order_by("pk"))
    assert told[0]["calibration"]["samples"] == 0
    assert told[0]["expected_tokens"] == told[0]["prompt_tokens"] == calls[0].estimated_tokens
    assert told[-1]["calibration"]["samples"] == 8
    before = abs(told[-1]["prompt_tokens"] - (calls[-1].input_tokens or 0))
    after = abs(told[-1]["expected_tokens"] - (calls[-1].input_tokens or 0))
    assert after < before / 3, "what was learned is nearer to what the server counts"
    assert calls[-1].endpoint.startswith("openai 127.0.0.1:")


def test_a_prompt_that_a_server_cuts_in_silence_is_found_and_the_window_learned(server: Server) -> None:
    server.counts = lambda asked: min(counted(asked), 4_096)
    server.plans = [*(shell(n) for n in range(12)), DONE]
    task = work(task_at(server, context_window_tokens=64_000), until=lambda task: Incident.objects.exists())
    incident = Incident.objects.get(task=task)
    assert (incident.kind, incident.pattern) == ("truncation", "prompt_truncated")
    assert "4,096" in incident.words
    assert "num_ctx 64000" in incident.words
    flagged = ModelCall.objects.filter(task=task, prompt_truncated=True)
    assert {place["model_call"] for place in incident.evidence} == set(flagged.values_list("pk", flat=True))
    assert LearnedWindow.objects.get().tokens == 4_096
    version = task.profile_version
    assert Limits.of(version).learned_tokens == 4_096
    work(task, until=lambda task: task.status != "running" and task.status != "queued")
    asked_after = [
        call
        for call in ModelCall.objects.filter(task=task, purpose="step")
        if call.pk > max(flagged.values_list("pk", flat=True))
    ]
    for call in asked_after:
        assert (call.estimated_tokens or 0) <= 4_096, "what is too much is compacted here, or not sent"
    resolve_incident(incident.pk, actor=task.created_by, reason="num_ctx was raised")
    assert Limits.of(version).learned_tokens is None
    check_history(task)


def test_looking_again_after_a_crash_changes_nothing(server: Server) -> None:
    server.counts = lambda asked: min(counted(asked), 4_096)
    server.plans = [shell(n) for n in range(12)]
    task = work(task_at(server, context_window_tokens=64_000), until=lambda task: Incident.objects.exists())
    before = task.last_seq
    step = Step.objects.filter(task=task).order_by("-number")[0]
    run = Run(task, task.fence, None)  # type: ignore[arg-type]
    truncation._look_at_prompt(run, step)
    task.refresh_from_db()
    assert task.last_seq == before
    assert LearnedWindow.objects.count() == 1


def test_a_call_that_was_cut_is_told_once_and_the_next_one_runs(server: Server) -> None:
    cut = Plan(calls=(("c1", "write_file", ('{"path": "a.txt", "content": "one two thr',)),), finish="length")
    whole = Plan(calls=(("c2", "write_file", ('{"path": "a.txt", "content": "one"}',)),), finish="tool_calls")
    server.plans = [cut, whole, DONE]
    task = work(task_at(server))
    assert task.status == "succeeded"
    incident = Incident.objects.get(task=task)
    assert (incident.pattern, incident.rung) == ("call_cut", "nudged")
    assert "write_file" in incident.words
    read = [message["content"] for message in server.requests[-1]["messages"] if message["role"] == "user"]
    assert sum("cut off at 1,000 tokens" in text for text in read) == 1


def test_words_that_were_cut_are_told_with_their_limit(server: Server) -> None:
    server.plans = [Plan(text=("I will now explain at great length",), finish="length"), DONE]
    task = work(task_at(server))
    assert task.status == "succeeded"
    assert Incident.objects.get(task=task).pattern == "reply_cut"
    read = [message["content"] for message in server.requests[-1]["messages"] if message["role"] == "user"]
    assert sum("cut off at 1,000 tokens before it held a call" in text for text in read) == 1
    assert events(task, "reply.corrected")[0]["problem"] == "cut_off"


def test_calls_whose_prompt_was_cut_teach_nothing() -> None:
    task = work(scripted_task("replies: [{calls: [{name: note, arguments: {section: plan, text: a}}], repeat: 5}]"))
    version = task.profile_version
    assert Limits.of(version).calibration.samples >= 3
    ModelCall.objects.filter(task=task).update(prompt_truncated=True)
    assert Limits.of(version).calibration.samples == 0
