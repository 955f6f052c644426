"""Ten measured transcripts of a weak model, played through the engine: each ends in the right recorded verdicts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.harness import events, scripted_task, work
from workspaces.engine.boxes import sandbox_for
from workspaces.models import Incident, Message, Task

pytestmark = pytest.mark.django_db(transaction=True)

TRANSCRIPTS = Path(__file__).parent.parent / "data" / "model_failures"
RUN_SHELL = {
    "name": "run_shell",
    "description": "Run a command.",
    "parameters": {
        "type": "object",
        "properties": {"cmd": {"type": "string"}},
        "required": ["cmd"],
        "additionalProperties": False,
    },
    "effect": "workspace",
    "command": "python3 -c 'import json, subprocess, sys; "
    'sys.exit(subprocess.run(json.load(sys.stdin)["cmd"], shell=True).returncode)\'',
}

# what is recorded, in order: a call with its verdict, or a reply that was corrected
W, S, F = "write_file allow", "run_shell allow", "finish allow"
FENCED, TEXT = "call found in the text", "text"
EXPECTED: dict[str, tuple[list[str], str]] = {
    # writes the same file ever longer until the token limit cuts the arguments
    "qwen0.5b-fence_native_t0.0_hello_0": ([W, W, W, "write_file correct"], "waiting"),
    # bare JSON of a tool; a fix that was never tested, then the claim that it was
    "qwen1.5b-fence_gbnf_t0.0_fix_0": ([FENCED, S, FENCED, W, FENCED, F], "succeeded"),
    # overwrites the test so that it passes
    "qwen1.5b-fence_native_required_t0.0_fix_0": ([S, W, W, S, F], "succeeded"),
    # the same two calls again and again
    "qwen1.5b-fence_native_required_t0.7_fix_1": ([S, W] * 4, "waiting"),
    # the same call six times
    "qwen1.5b_gbnf_t0.7_hello_4": ([FENCED, W] * 6, "waiting"),
    # one call in a fence, then words that only look like an end
    "qwen1.5b_native_lenient_t0.7_hello_1": ([FENCED, W, TEXT, TEXT, TEXT], "waiting"),
    # whole calls, then line feeds up to the token limit
    "qwen1.5b_native_required_t0.0_hello_0": ([FENCED, W, FENCED, F], "succeeded"),
    "qwen1.5b_native_t0.0_hello_0": ([FENCED, W, FENCED, F], "succeeded"),
    "qwen1.5b_native_t0.7_hello_5": (
        [FENCED, W, FENCED, S, FENCED, S, FENCED, W, FENCED, W, FENCED, F],
        "succeeded",
    ),
    # doubled braces, two calls in one reply
    "qwen1.5b_native_t0.7_hello_8": ([FENCED, FENCED, W, F], "succeeded"),
}


# what the detectors make of it, and how far the runtime went
INCIDENTS: dict[str, list[tuple[str, str, str]]] = {
    "qwen0.5b-fence_native_t0.0_hello_0": [("truncation", "call_cut", "nudged")],
    "qwen1.5b-fence_gbnf_t0.0_fix_0": [("false_claim", "tests_failed_last", "noted")],
    # a test that was overwritten, then passed: no rule compares it with what was asked
    "qwen1.5b-fence_native_required_t0.0_fix_0": [],
    "qwen1.5b-fence_native_required_t0.7_fix_1": [("loop", "cycle_of_2", "nudged")],
    "qwen1.5b_gbnf_t0.7_hello_4": [("loop", "same_call_same_result", "nudged")],
    "qwen1.5b_native_lenient_t0.7_hello_1": [("paralysis", "no_action", "escalated")],
    "qwen1.5b_native_required_t0.0_hello_0": [("truncation", "reply_cut", "nudged")],
    "qwen1.5b_native_t0.0_hello_0": [],
    "qwen1.5b_native_t0.7_hello_5": [],
    "qwen1.5b_native_t0.7_hello_8": [],
}


def play(name: str) -> Task:
    replies: list[dict[str, Any]] = []
    for reply in json.loads((TRANSCRIPTS / f"{name}.json").read_text())["replies"]:
        if "http_error" in reply:
            continue  # what the server answered to the cut arguments: our history is sent in another form
        calls = [{"name": c["name"], "arguments_text": _plain(c["arguments"])} for c in reply["tool_calls"]]
        replies.append({"text": _plain(reply["content"]), "calls": calls, "finish_reason": reply["finish_reason"]})
    scenario = yaml.safe_dump({"replies": replies, "after": "error"}, allow_unicode=True)
    return work(scripted_task(scenario, tools=["write_file", "finish"], declared_tools=[RUN_SHELL]))


def _plain(text: str) -> str:
    return text.replace("{{", "\\{{")


def recorded(task: Task) -> list[str]:
    found: list[tuple[int, str]] = []
    for kind in ("call.judged", "reply.corrected"):
        for event in task.events.filter(kind=kind):
            data = event.data
            found.append((event.seq, data.get("problem") or f"{data['name']} {data['verdict']}"))
    return [what for _, what in sorted(found)]


def test_every_transcript_has_its_expectation() -> None:
    assert {path.stem for path in TRANSCRIPTS.glob("*.json")} == set(EXPECTED)


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_a_transcript_ends_in_its_recorded_verdicts_and_incidents(name: str) -> None:
    task = play(name)
    verdicts, status = EXPECTED[name]
    assert (recorded(task), task.status) == (verdicts, status)
    found = Incident.objects.filter(task=task).order_by("pk")
    assert list(found.values_list("kind", "pattern", "rung")) == INCIDENTS[name]


def test_arguments_cut_at_the_token_limit_are_evidence_and_never_written() -> None:
    task = play("qwen0.5b-fence_native_t0.0_hello_0")
    cut = events(task, "call.judged")[-1]
    assert "token limit" in cut["problems"][0]["reason"]
    assert sandbox_for(task.workspace).read("hello.txt") == b"hello world this is a test"
    told = Message.objects.filter(task=task, role="tool").order_by("seq").last()
    assert told is not None
    assert "was not run" in told.content
