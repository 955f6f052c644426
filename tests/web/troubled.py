"""Incidents with evidence in a trace that a real engine wrote, for the tests of their pages."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.harness import scripted_profile, work
from tests.web.people import Desk
from workspaces.actions.incidents import report, respond
from workspaces.actions.pen import writing
from workspaces.actions.tasks import create_task
from workspaces.domain.incidents import Evidence, Finding, IncidentKind, Rung, Severity
from workspaces.models import Incident, ProfileVersion, Task, ToolCall

LOOPING = """
    replies:
      - calls: [{name: read_file, arguments: {path: missing.txt}}]
        repeat: 3
      - calls: [{name: write_file, arguments: {path: other.txt, content: "made"}}]
      - calls: [{name: finish, arguments: {summary: gave up}}]
"""
QUIET = {"same_error": 0}  # what the detectors would find by themselves is reported by hand here


def looped(desk: Desk, version: ProfileVersion | None = None, **fields: Any) -> Task:
    """Three reads of a file that is not there, one write, the end."""
    version = version or scripted_profile(desk.owner, LOOPING, detectors=QUIET)
    made = create_task(
        workspace=desk.workspace,
        profile_version=version,
        instruction="Read it.",
        actor=desk.owner,
        title="Read it",
        **fields,
    )
    return work(made)


def finding_of(task: Task, **fields: Any) -> Finding:
    """What a detector would say of the reads in `looped`."""
    calls = list(ToolCall.objects.filter(task=task, name="read_file").select_related("step").order_by("pk"))
    evidence = tuple(Evidence(call.seq or 0, call.step.number, "the same error", tool_call=call.pk) for call in calls)
    found = Finding(
        kind=IncidentKind.LOOP,
        severity=Severity.WARNING,
        pattern="same_call_same_result",
        first_seq=evidence[0].seq,
        last_seq=evidence[-1].seq,
        evidence=evidence,
        words='read_file("missing.txt") returned the same error at steps 1, 2 and 3.',
        cause="loop/same_call_same_result/read_file/error",
        fingerprint="f" * 64,
        count=len(evidence),
    )
    return replace(found, **fields)


def reported(task: Task, **fields: Any) -> Incident:
    with writing(task.pk) as pen:
        return report(pen, finding_of(task, **fields)).incident


def nudged(incident: Incident, words: str = "You read missing.txt three times.") -> Incident:
    with writing(incident.task_id) as pen:
        respond(pen, incident, Rung.NUDGED, words)
    return incident
