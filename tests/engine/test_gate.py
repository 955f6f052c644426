"""The gate: bad calls go back with evidence, irreversible ones wait for exactly one approval."""

from __future__ import annotations

import pytest

from tests.harness import SEND_INVOICE, events, kinds, make_user, scripted_task, work
from workspaces.actions.errors import Refused
from workspaces.actions.escalations import answer_escalation
from workspaces.domain.escalations import Decision
from workspaces.domain.states import TaskStatus
from workspaces.engine.boxes import sandbox_for
from workspaces.models import Approval, Escalation, LedgerEntry, Message, Task, ToolCall

pytestmark = pytest.mark.django_db(transaction=True)

INVOICE = """
replies:
  - text: The invoice is due.
    calls: [{name: send_invoice, arguments: {customer: Acme, amount: 120}}]
  - calls: [{name: finish, arguments: {summary: "said: {{last_result}}"}}]
"""


def invoice_task() -> Task:
    return work(scripted_task(INVOICE, declared_tools=[SEND_INVOICE]))


def sent(task: Task) -> str:
    return sandbox_for(task.workspace).read("sent.jsonl").decode()


def open_one(task: Task) -> Escalation:
    return Escalation.objects.get(task=task, status="open")


def test_an_unknown_tool_goes_back_with_the_nearest_names() -> None:
    task = work(
        scripted_task(
            """
            replies:
              - calls: [{name: writefile, arguments: {path: a, content: b}}]
              - calls: [{name: finish, arguments: {summary: ok}}]
            """
        )
    )
    (judged, _) = events(task, "call.judged")
    assert judged["verdict"] == "correct"
    assert "write_file" in judged["problems"][0]["reason"]
    told = Message.objects.filter(task=task, role="tool").order_by("seq").first()
    assert told is not None
    assert "write_file" in told.content
    assert task.status == TaskStatus.SUCCEEDED


@pytest.mark.parametrize(
    ("call", "path", "words"),
    [
        ("{name: write_file, arguments: {path: a}}", "$.content", "missing"),
        ("{name: write_file, arguments: {path: 5, content: b}}", "$.path", "string"),
        ('{name: write_file, arguments_text: \'{"path": "a", \'}', "$", "unparsable"),
    ],
)
def test_arguments_that_do_not_fit_go_back_with_path_and_reason(call: str, path: str, words: str) -> None:
    task = work(
        scripted_task(
            f"""
            replies:
              - calls: [{call}]
              - calls: [{{name: finish, arguments: {{summary: ok}}}}]
            """
        )
    )
    judged = events(task, "call.judged")[0]
    assert judged["verdict"] == "correct"
    assert judged["problems"][0]["path"] == path
    assert words in judged["problems"][0]["reason"]
    assert ToolCall.objects.get(task=task, position=0, step__number=1).attempt == 0


def test_an_irreversible_call_waits_and_runs_once_when_approved() -> None:
    task = invoice_task()
    assert (task.status, task.waiting_for) == (TaskStatus.WAITING, "operator")
    assert task.waiting_until is not None
    assert ToolCall.objects.get(task=task).attempt == 0
    answer_escalation(open_one(task).pk, decision=Decision.APPROVE, actor=task.created_by)
    task = work(task)
    assert task.status == TaskStatus.SUCCEEDED
    assert sent(task).count("Acme") == 1
    assert LedgerEntry.objects.get().state == "completed"
    assert Approval.objects.get().used_at is not None


def test_an_edited_call_runs_with_the_edited_arguments_only() -> None:
    task = invoice_task()
    answer_escalation(
        open_one(task).pk,
        decision=Decision.EDIT,
        actor=task.created_by,
        arguments={"customer": "Acme", "amount": 95},
    )
    task = work(task)
    assert "95" in sent(task)
    assert "120" not in sent(task)
    call = ToolCall.objects.get(name="send_invoice")
    assert call.proposed_arguments == {"customer": "Acme", "amount": 120}


def test_edited_arguments_have_to_fit_the_schema() -> None:
    task = invoice_task()
    with pytest.raises(Refused, match=r"\$\.amount"):
        answer_escalation(
            open_one(task).pk,
            decision=Decision.EDIT,
            actor=task.created_by,
            arguments={"customer": "Acme", "amount": -1},
        )
    assert open_one(task)


def test_a_rejection_is_told_to_the_model_and_nothing_runs() -> None:
    task = invoice_task()
    answer_escalation(open_one(task).pk, decision=Decision.REJECT, actor=task.created_by, words="wrong customer")
    task = work(task)
    assert "wrong customer" in task.result
    assert not LedgerEntry.objects.exists()


def test_an_operator_may_answer_in_the_tools_place() -> None:
    task = invoice_task()
    answer_escalation(open_one(task).pk, decision=Decision.ANSWER, actor=task.created_by, words="sent by hand, no. 17")
    task = work(task)
    assert task.result == "said: sent by hand, no. 17"


def test_the_second_of_two_operators_hears_who_was_first() -> None:
    task = invoice_task()
    escalation = open_one(task)
    second = make_user()
    answer_escalation(escalation.pk, decision=Decision.APPROVE, actor=task.created_by)
    with pytest.raises(Refused, match=task.created_by.username):
        answer_escalation(escalation.pk, decision=Decision.REJECT, actor=second, words="no")
    task = work(task)
    assert sent(task).count("Acme") == 1


def test_an_approval_does_not_hold_for_other_arguments() -> None:
    task = invoice_task()
    answer_escalation(open_one(task).pk, decision=Decision.APPROVE, actor=task.created_by)
    ToolCall.objects.filter(task=task).update(arguments={"customer": "Evil", "amount": 9}, arguments_hash="f" * 64)
    task = work(task)
    assert task.waiting_for == "operator"
    assert not LedgerEntry.objects.filter(state="completed").exists()


def test_an_approval_that_has_expired_is_asked_for_again() -> None:
    task = invoice_task()
    answer_escalation(open_one(task).pk, decision=Decision.APPROVE, actor=task.created_by)
    Approval.objects.update(expires_at=task.created_at)
    task = work(task)
    assert task.waiting_for == "operator"
    assert "no unexpired approval" in open_one(task).question
    answer_escalation(open_one(task).pk, decision=Decision.APPROVE, actor=task.created_by)
    assert sent(work(task)).count("Acme") == 1


def test_a_question_to_the_operator_gets_its_answer_as_result() -> None:
    task = work(
        scripted_task(
            """
            replies:
              - calls: [{name: ask_operator, arguments: {question: "Which branch?"}}]
              - calls: [{name: finish, arguments: {summary: "{{last_result}}"}}]
            """
        )
    )
    assert task.waiting_for == "operator"
    answer_escalation(open_one(task).pk, decision=Decision.ANSWER, actor=task.created_by, words="main")
    assert work(task).result == "main"


def test_three_replies_without_a_call_ask_a_person() -> None:
    task = work(scripted_task("replies: [{text: hm, repeat: 9}]"))
    asked = open_one(task)
    assert asked.incident is not None
    assert (asked.kind, asked.incident.kind, asked.incident.count) == ("incident", "paralysis", 3)
    assert kinds(task).count("reply.corrected") == 3
    answer_escalation(asked.pk, decision=Decision.CONTINUE, actor=task.created_by, words="write a file")
    task = work(task)
    assert task.status == TaskStatus.WAITING
    assert kinds(task).count("reply.corrected") == 6  # a person's words begin the count anew


def test_a_call_in_a_fenced_block_is_read_and_recorded() -> None:
    task = work(
        scripted_task(
            """
            replies:
              - text: |
                  ```json
                  {"name": "write_file", "arguments": {"path": "a.txt", "content": "x"}}
                  ```
              - calls: [{name: finish, arguments: {summary: ok}}]
            """
        )
    )
    assert sandbox_for(task.workspace).read("a.txt") == b"x"
    assert events(task, "reply.corrected")[0]["problem"] == "call found in the text"


def test_the_limit_of_steps_asks_and_can_be_raised() -> None:
    task = work(
        scripted_task(
            """
            replies:
              - calls: [{name: note, arguments: {section: notes, text: a}}]
              - calls: [{name: finish, arguments: {summary: ok}}]
            """,
            max_steps=1,
        )
    )
    assert open_one(task).kind == "limit"
    answer_escalation(open_one(task).pk, decision=Decision.RAISE, actor=task.created_by, extra_steps=5)
    assert work(task).status == TaskStatus.SUCCEEDED


def test_three_replies_with_only_corrected_calls_ask_a_person() -> None:
    task = work(scripted_task("replies: [{calls: [{name: finish, arguments: {}}], repeat: 9}]"))
    asked = open_one(task)
    assert asked.incident is not None
    assert (asked.kind, asked.incident.kind) == ("incident", "bad_call")
    assert kinds(task).count("call.judged") == 3


def test_an_end_written_beside_a_failed_call_does_not_end_the_task() -> None:
    task = work(
        scripted_task(
            """
            replies:
              - calls:
                  - {name: edit_file, arguments: {path: nope.txt, old: a, new: b}}
                  - {name: finish, arguments: {summary: "I edited nope.txt"}}
              - calls: [{name: finish, arguments: {summary: "there is no nope.txt"}}]
            """
        )
    )
    assert (task.status, task.result) == (TaskStatus.SUCCEEDED, "there is no nope.txt")
    told = Message.objects.filter(task=task, role="tool").order_by("seq", "part")[1]
    assert "not finished" in told.content
