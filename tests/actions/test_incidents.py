"""An incident: one while it grows, answered by the runtime, acknowledged and resolved by people, all in the trace."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.harness import check_history, events, scripted_task, work
from workspaces.actions.errors import Refused
from workspaces.actions.incidents import Reported, acknowledge_incident, close, report, resolve_incident, respond
from workspaces.actions.pen import writing
from workspaces.domain.incidents import (
    EVIDENCE_KEPT,
    Evidence,
    Finding,
    IncidentKind,
    IncidentState,
    Rung,
    Severity,
    clusters_of,
    kinds_of,
    mode_of,
)
from workspaces.models import AuditEntry, Incident, Task

pytestmark = pytest.mark.django_db(transaction=True)

FINDING = Finding(
    kind=IncidentKind.LOOP,
    severity=Severity.WARNING,
    pattern="same_call_same_result",
    first_seq=2,
    last_seq=5,
    evidence=(Evidence(2, 1, "first"), Evidence(5, 2, "again")),
    words="The same again at steps 1 and 2.",
    cause="loop/same_call_same_result/shell",
    fingerprint="f" * 64,
    count=2,
)
GROWN = replace(
    FINDING, last_seq=7, count=3, severity=Severity.ERROR, evidence=(*FINDING.evidence, Evidence(7, 3, "once more"))
)


@pytest.fixture
def task() -> Task:
    return work(scripted_task("replies: [{calls: [{name: finish, arguments: {summary: done}}]}]"))


def told(task: Task, finding: Finding) -> Reported:
    with writing(task.pk) as pen:
        return report(pen, finding)


def test_a_finding_opens_one_incident_and_the_same_report_changes_nothing(task: Task) -> None:
    assert told(task, FINDING).is_new
    again = told(task, FINDING)
    assert (again.is_new, again.grew) == (False, False)
    assert Incident.objects.filter(task=task).count() == len(events(task, "incident.opened")) == 1
    assert events(task, "incident.opened")[0]["seqs"] == [2, 5]


def test_a_growing_finding_makes_the_incident_grow_and_never_milder(task: Task) -> None:
    told(task, FINDING)
    assert told(task, GROWN).grew
    told(task, replace(GROWN, last_seq=8, count=4, severity=Severity.INFO))
    incident = Incident.objects.get(task=task)
    assert (incident.count, incident.severity, incident.first_seq, incident.last_seq) == (4, "error", 2, 8)
    assert (incident.first_step, incident.last_step) == (1, 3)
    check_history(task)


def test_the_runtimes_answers_are_kept_and_the_highest_rung_shown(task: Task) -> None:
    incident = told(task, FINDING).incident
    for rung in (Rung.NUDGED, Rung.ESCALATED, Rung.NUDGED):
        with writing(task.pk) as pen:
            respond(pen, incident, rung, f"words of {rung}")
    incident.refresh_from_db()
    assert [entry["rung"] for entry in incident.responses] == ["nudged", "escalated", "nudged"]
    assert (incident.rung, incident.nudges) == ("escalated", 2)
    check_history(task)


def test_people_acknowledge_once_and_resolve_with_words(task: Task) -> None:
    incident = told(task, FINDING).incident
    acknowledge_incident(incident.pk, actor=task.created_by)
    with pytest.raises(Refused, match="already acknowledged"):
        acknowledge_incident(incident.pk, actor=task.created_by)
    with pytest.raises(Refused, match="Say how"):
        resolve_incident(incident.pk, actor=task.created_by, reason=" ")
    resolve_incident(incident.pk, actor=task.created_by, reason="told it where the file is")
    with pytest.raises(Refused, match="already resolved"):
        resolve_incident(incident.pk, actor=task.created_by, reason="again")
    incident.refresh_from_db()
    assert (incident.state, incident.resolved_by) == ("resolved", task.created_by)
    found = AuditEntry.objects.filter(task=task, action="incident.resolve").get()
    assert found.reason == "told it where the file is"
    check_history(task)


def test_after_its_end_the_same_trouble_is_a_new_incident(task: Task) -> None:
    first = told(task, FINDING).incident
    with writing(task.pk) as pen:
        close(pen, first, "it ended by itself")
    second = told(task, GROWN)
    assert second.is_new
    assert second.incident.pk != first.pk
    assert Incident.objects.filter(task=task).exclude(state=IncidentState.RESOLVED.value).count() == 1


def test_long_evidence_keeps_its_beginning_and_end(task: Task) -> None:
    many = tuple(Evidence(seq, seq, "again") for seq in range(1, 200))
    incident = told(task, replace(FINDING, evidence=many)).incident
    assert len(incident.evidence) == EVIDENCE_KEPT
    assert (incident.evidence[0]["seq"], incident.evidence[-1]["seq"]) == (1, 199)


def test_every_kind_belongs_to_a_failure_mode_and_a_cluster() -> None:
    for kind in IncidentKind:
        assert clusters_of(kind)
        assert kind in kinds_of(mode_of(kind))
