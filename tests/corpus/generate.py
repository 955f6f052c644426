"""`python -m tests.corpus.generate`: plays scenarios.yaml through the real engine, into played.jsonl.

A trail is read by the query that the engine's detectors use; the detectors are off, so a task plays to its end. Row ids
and names of snapshots are numbered anew, in order, so that the same scenario gives the same line on any machine.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent


def scenarios() -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = yaml.safe_load((HERE / "scenarios.yaml").read_text())["traces"]
    return entries


def play(entry: dict[str, Any]) -> dict[str, Any]:
    """The entry's task played, as a line of played.jsonl. Needs a database."""
    from tests import harness
    from workspaces.actions.escalations import answer_escalation
    from workspaces.domain.escalations import Decision
    from workspaces.domain.thresholds import NAMES
    from workspaces.engine.boxes import sandbox_for
    from workspaces.models import Escalation
    from workspaces.queries.trails import trail_of

    workspace = harness.make_workspace(harness.make_user())
    for path, text in entry.get("files", {}).items():
        sandbox_for(workspace).write(path, text.encode())
    task = harness.scripted_task(
        yaml.safe_dump({"replies": replies(entry), "after": "error"}, allow_unicode=True),
        workspace=workspace,
        detectors=dict.fromkeys(NAMES, 0),
    )
    task = harness.work(task)
    for answer in entry.get("answers", ()):
        question = Escalation.objects.get(task=task, answered_at=None)
        answer_escalation(question.pk, decision=Decision.ANSWER, words=answer, actor=task.created_by)
        task = harness.work(task)
    return {"name": entry["name"], "trail": exported(trail_of(task, task.branches.get(number=1)))}


def replies(entry: dict[str, Any]) -> list[dict[str, Any]]:
    """The scenario's replies: one a turn."""
    from tests.corpus.traces import ARGUMENTS, unrolled

    found = []
    for form in unrolled(entry["turns"]):
        turn = {"calls": [form]} if isinstance(form, list) else form
        calls = []
        for name, given in turn.get("calls", ()):
            if not isinstance(given, dict):
                given = dict(zip(ARGUMENTS[name], given if isinstance(given, list) else [given], strict=True))
            calls.append({"name": name, "arguments": given})
        found.append({"text": turn.get("text", ""), "calls": calls})
    return found


def exported(trail: Any) -> dict[str, Any]:
    data = dataclasses.asdict(trail)
    disks: dict[str, str] = {"": ""}
    number = 0
    for turn in data["turns"]:
        turn["disk"] = disks.setdefault(turn["disk"], f"d{len(disks)}")
        for call in turn["calls"]:
            number += 1
            call["tool_call"] = number
    return data


def main() -> int:
    from agentdesk.embedded.stack import Stack

    with tempfile.TemporaryDirectory(prefix="agentdesk-corpus-") as home:
        stack = Stack(Path(home), {"postgres", "valkey"}, durable=False)
        with stack:
            os.environ.update(stack.environment)
            os.environ["DJANGO_SETTINGS_MODULE"] = "agentdesk.settings"
            os.environ["AGENTDESK_STATIC_FROM_SOURCE"] = "1"
            import django
            from django.core.management import call_command

            django.setup()
            call_command("migrate", verbosity=0, interactive=False)
            lines = [json.dumps(play(entry), ensure_ascii=False, sort_keys=True) for entry in scenarios()]
            (HERE / "played.jsonl").write_text("\n".join(lines) + "\n")
            print(f"{len(lines)} tasks played")
    return 0


if __name__ == "__main__":
    sys.exit(main())
