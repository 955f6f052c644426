"""The demo's agent that looks for a file that is not there: told, asked about, and helped by a person's words."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest

from tests.harness import events, make_user, make_workspace, scripted_profile, work
from workspaces.actions.escalations import answer_escalation
from workspaces.actions.tasks import create_task
from workspaces.domain.escalations import Decision
from workspaces.domain.states import TaskStatus
from workspaces.models import Escalation, Incident

pytestmark = pytest.mark.django_db(transaction=True)


def test_it_loops_until_a_person_helps() -> None:
    owner = make_user()
    shipped = (files("workspaces.providers") / "scenarios" / "lost-file.yaml").read_text()
    without_waiting = re.sub(r"^(chunk_)?delay_s:.*\n", "", shipped, flags=re.M)
    version = scripted_profile(owner, without_waiting)
    made = create_task(
        workspace=make_workspace(owner), profile_version=version, instruction="Read rates.csv.", actor=owner
    )
    task = work(made)
    assert (task.status, task.waiting_for) == (TaskStatus.WAITING.value, "operator")
    incident = Incident.objects.get(task=task)
    assert (incident.kind, incident.rung, incident.nudge_helped) == ("loop", "escalated", False)
    question = Escalation.objects.get(task=task, status="open")
    assert question.incident == incident
    answer_escalation(question.pk, decision=Decision.CONTINUE, words="ACME pays 95 USD an hour.", actor=owner)
    task = work(task)
    assert task.status == TaskStatus.SUCCEEDED.value
    assert "never there" in task.result
    assert Incident.objects.get(task=task).state == "resolved"
    assert [each["rung"] for each in events(task, "incident.responded")] == ["nudged", "escalated"]
