"""Claim against trace, through the engine: recorded by default, held where a profile says so, with a way out."""

from __future__ import annotations

import pytest

from tests.engine.moments import killed_at
from tests.harness import SEND_INVOICE, events, scripted_task, work
from workspaces.actions.escalations import answer_escalation
from workspaces.actions.incidents import resolve_incident
from workspaces.domain.escalations import Decision
from workspaces.domain.states import TaskStatus
from workspaces.models import Escalation, Incident, Message, ModelCall, Task, UsageRecord

pytestmark = pytest.mark.django_db(transaction=True)

LIES = """
replies:
  - calls: [{name: write_file, arguments: {path: invoice.txt, content: "120"}}]
  - {repeat: 9, calls: [{name: finish, arguments: {summary: "I have sent the invoice to Acme."}}]}
"""


def claim_task(claims: str, scenario: str = LIES, **fields: object) -> Task:
    return scripted_task(scenario, detectors={"claims": claims}, declared_tools=[SEND_INVOICE], **fields)


def question(task: Task) -> Escalation:
    return Escalation.objects.get(task=task, status="open")


def test_a_false_claim_is_recorded_and_the_task_ends_as_it_was_going_to() -> None:
    task = work(scripted_task(LIES, declared_tools=[SEND_INVOICE]))
    assert task.status == TaskStatus.SUCCEEDED
    found = Incident.objects.get(task=task)
    assert (found.kind, found.severity, found.state, found.rung) == ("false_claim", "error", "open", "noted")
    assert "I have sent the invoice to Acme" in found.words
    assert found.evidence[0]["model_call"]


def test_a_claim_that_the_trace_bears_out_is_none() -> None:
    task = work(claim_task("record", LIES.replace("I have sent the invoice to Acme.", "Created invoice.txt.")))
    assert not Incident.objects.filter(task=task).exists()


def test_claims_can_be_left_alone() -> None:
    assert not Incident.objects.filter(task=work(claim_task("off"))).exists()


def test_words_between_the_calls_are_held_against_the_trace_too() -> None:
    task = work(
        scripted_task(
            """
            replies:
              - text: I ran the tests and they all pass.
                calls: [{name: list_files, arguments: {}}]
              - calls: [{name: finish, arguments: {summary: done}}]
            """
        )
    )
    assert Incident.objects.get(task=task).pattern == "no_test_run"


def test_an_end_that_is_held_tells_the_model_once_which_may_do_it() -> None:
    task = work(
        claim_task(
            "hold",
            """
            replies:
              - calls: [{name: finish, arguments: {summary: "I created invoice.txt."}}]
              - calls: [{name: write_file, arguments: {path: invoice.txt, content: "120"}}]
              - calls: [{name: finish, arguments: {summary: "I created invoice.txt."}}]
            """,
        )
    )
    assert (task.status, task.result) == (TaskStatus.SUCCEEDED, "I created invoice.txt.")
    told = Message.objects.filter(task=task, role="tool").order_by("seq").first()
    assert told is not None
    assert "I created invoice.txt" in told.content
    assert [event["rung"] for event in events(task, "incident.responded")] == ["nudged"]


def test_an_end_that_claims_it_again_is_a_persons_matter() -> None:
    task = work(claim_task("hold"))
    assert (task.status, task.waiting_for) == (TaskStatus.WAITING, "operator")
    assert "I have sent the invoice" in question(task).question
    assert [event["rung"] for event in events(task, "incident.responded")] == ["nudged", "escalated"]
    answer_escalation(question(task).pk, decision=Decision.CONTINUE, actor=task.created_by)
    assert work(task).status == TaskStatus.SUCCEEDED


def test_a_claim_that_a_person_resolved_is_taken_as_it_is() -> None:
    task = work(claim_task("hold"), until=lambda t: t.steps_taken == 2)
    resolve_incident(Incident.objects.get(task=task).pk, actor=task.created_by, reason="it went out by hand")
    task = work(task)
    assert task.status == TaskStatus.SUCCEEDED
    assert Incident.objects.filter(task=task).count() == 1


def test_giving_up_on_a_false_claim_fails_the_task() -> None:
    task = work(claim_task("hold"))
    answer_escalation(question(task).pk, decision=Decision.GIVE_UP, actor=task.created_by, words="it lies")
    task.refresh_from_db()
    assert task.status == TaskStatus.FAILED


@pytest.mark.parametrize("before", [True, False])
def test_a_worker_that_dies_when_it_holds_an_end_holds_it_once(before: bool) -> None:
    task = work(killed_at(claim_task("hold"), "workspaces.actions.steps:hold_back", before=before, time=2))
    assert (task.status, Escalation.objects.filter(task=task).count()) == (TaskStatus.WAITING, 1)
    assert [event["rung"] for event in events(task, "incident.responded")] == ["nudged", "escalated"]


TEXT_END = """
replies:
  - {repeat: 9, text: "I have sent the invoice to Acme."}
"""


def test_a_task_that_ends_with_a_text_is_held_to_it() -> None:
    task = work(claim_task("record", TEXT_END, tools=["write_file"]))
    assert task.status == TaskStatus.SUCCEEDED
    assert Incident.objects.get(task=task).kind == "false_claim"
    held = work(claim_task("hold", TEXT_END, tools=["write_file"]))
    assert (held.status, question(held).kind) == (TaskStatus.WAITING, "incident")
    assert [event["problem"] for event in events(held, "reply.corrected")] == ["claim", "claim"]


def checked(answer: str, summary: str = "Die Rechnung ist raus.", **detectors: object) -> Task:
    scenario = f"""
side: {{claim_check: {{{answer}}}}}
replies:
  - calls: [{{name: list_files, arguments: {{}}}}]
  - {{repeat: 9, calls: [{{name: finish, arguments: {{summary: "{summary}"}}}}]}}
"""
    return work(scripted_task(scenario, detectors={"claims_model": True, **detectors}))


FOUND = """text: '{"unsupported": [{"sentence": "Die Rechnung ist raus.", "why": "nothing was sent"}]}'"""


def test_a_model_that_is_asked_finds_what_the_rules_cannot_read() -> None:
    task = checked(FOUND)
    found = Incident.objects.get(task=task)
    assert (task.status, found.kind, found.pattern) == (TaskStatus.SUCCEEDED, "false_claim", "model_check")
    assert "nothing was sent" in found.words
    call = ModelCall.objects.get(task=task, purpose="claim_check")
    assert found.evidence[1]["model_call"] == call.pk
    assert (call.status, UsageRecord.objects.filter(model_call=call).exists()) == ("replied", True)
    assert "list_files" in events(task, "call.finished")[0]["name"]


def test_what_a_model_finds_can_hold_the_end() -> None:
    task = checked(FOUND, claims="hold")
    assert (task.status, question(task).kind) == (TaskStatus.WAITING, "incident")


@pytest.mark.parametrize(
    "answer",
    [
        "fault: {kind: rate_limit, retry_after_s: 60}",
        "fault: {kind: auth}",
        "text: 'It all looks fine to me.'",
        """text: '{"unsupported": "all of it"}'""",
        f"text: '{'[' * 5_000}'",
        """text: '{"unsupported": [{"sentence": "I flew to the moon.", "why": "never said"}]}'""",
    ],
)
def test_a_model_that_fails_or_answers_nonsense_holds_nothing_up(answer: str) -> None:
    task = checked(answer, claims="hold")
    assert task.status == TaskStatus.SUCCEEDED
    assert not Incident.objects.filter(task=task).exists()


def test_no_model_is_asked_unless_the_profile_says_so() -> None:
    work(scripted_task(LIES))
    assert not ModelCall.objects.filter(purpose="claim_check").exists()
