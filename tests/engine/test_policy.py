"""A profile's policy in the engine: what runs, what waits and for whom, what goes back, what a result is named."""

from __future__ import annotations

import itertools
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from tests.harness import (
    SEND_INVOICE,
    add_member,
    check_history,
    events,
    kinds,
    make_user,
    make_workspace,
    scripted_task,
    work,
)
from workspaces.actions.approvals import revoke_standing
from workspaces.actions.errors import Refused
from workspaces.actions.escalations import answer_escalation
from workspaces.actions.rollbacks import fork, roll_back
from workspaces.actions.schedule import expire_due
from workspaces.actions.tasks import resume_task
from workspaces.domain.escalations import Decision
from workspaces.domain.roles import Role
from workspaces.domain.states import TaskStatus
from workspaces.engine.boxes import sandbox_for
from workspaces.models import Approval, AuditEntry, Checkpoint, Escalation, StandingApproval, Task, ToolCall, User
from workspaces.queries.approvals import standing_of
from workspaces.sandboxes.base import NotAFile

pytestmark = pytest.mark.django_db(transaction=True)

FINISH = '  - calls: [{name: finish, arguments: {summary: "said: {{last_result}}"}}]'
INVOICE = f"""
replies:
  - calls: [{{name: send_invoice, arguments: {{customer: Acme, amount: 120}}}}]
{FINISH}
"""
EDITED = {"customer": "Acme", "amount": 95}
TWO = [{"name": "money", "tool": "send_*", "verdict": "hold", "approver": "two_persons"}]
OWNER = [{"tool": "send_*", "verdict": "hold", "approver": "owner"}]


class Crew:
    """A workspace with an owner and two operators, and a task in it."""

    def __init__(self, scenario: str = INVOICE, **profile: Any) -> None:
        self.owner, self.ann, self.bob = make_user(), make_user(), make_user()
        workspace = make_workspace(self.owner)
        add_member(workspace, self.ann, Role.OPERATOR)
        add_member(workspace, self.bob, Role.OPERATOR)
        self.task = work(scripted_task(scenario, workspace=workspace, declared_tools=[SEND_INVOICE], **profile))

    def answer(self, decision: Decision, by: User, escalation: Escalation | None = None, **more: Any) -> Escalation:
        return answer_escalation((escalation or self.open()).pk, decision=decision, actor=by, **more)

    def open(self) -> Escalation:
        return Escalation.objects.get(task=self.task, status="open")

    def go_on(self) -> Task:
        self.task = work(self.task)
        return self.task

    def sent(self) -> list[str]:
        try:
            return sandbox_for(self.task.workspace).read("sent.jsonl").decode().split()
        except NotAFile:
            return []


def late(escalation: Escalation) -> None:
    Escalation.objects.filter(pk=escalation.pk).update(deadline=timezone.now() - timedelta(seconds=1))
    assert expire_due() == 1


def test_a_rule_lets_an_irreversible_call_run_and_the_trace_says_which() -> None:
    policy = [{"name": "small", "tool": "send_invoice", "arguments": [{"path": "$.amount", "max": 200}],
               "verdict": "allow"}]  # fmt: skip
    crew = Crew(policy=policy)
    assert crew.task.status == TaskStatus.SUCCEEDED
    assert len(crew.sent()) == 1
    judged = events(crew.task, "call.judged")[0]
    assert (judged["verdict"], judged["rule"], judged["rule_name"]) == ("allow", 1, "small")
    assert not Escalation.objects.exists()


def test_a_rule_sends_a_call_back_with_its_words() -> None:
    crew = Crew(policy=[{"tool": "send_invoice", "verdict": "correct", "words": "Invoices go out on Mondays."}])
    assert crew.task.status == TaskStatus.SUCCEEDED
    assert "policy does not allow it. Invoices go out on Mondays." in crew.task.result
    call = ToolCall.objects.get(name="send_invoice")
    assert (call.verdict, call.attempt, call.policy_rule) == ("correct", 0, 1)


def test_a_call_that_only_changes_files_can_be_held_and_runs_once_approved() -> None:
    scenario = f"""
    replies:
      - calls: [{{name: write_file, arguments: {{path: a.txt, content: x}}}}]
    {FINISH}
    """
    crew = Crew(scenario, policy=[{"effect": "workspace", "verdict": "hold", "words": "Look at each change."}])
    assert "Held by rule 1 of the profile's policy: Look at each change." in crew.open().question
    crew.answer(Decision.APPROVE, crew.ann)
    assert crew.go_on().status == TaskStatus.SUCCEEDED
    assert sandbox_for(crew.task.workspace).read("a.txt") == b"x"
    assert Approval.objects.get().used_at is not None


def test_only_an_owner_may_approve_what_needs_an_owner() -> None:
    crew = Crew(policy=OWNER)
    for decision in (Decision.APPROVE, Decision.ALWAYS):
        with pytest.raises(Refused, match="Only an owner"):
            crew.answer(decision, crew.ann, words="go")
    with pytest.raises(Refused, match="Only an owner"):
        crew.answer(Decision.EDIT, crew.ann, arguments=EDITED)
    assert ToolCall.objects.get().proposed_arguments is None
    crew.answer(Decision.APPROVE, crew.owner)
    assert crew.go_on().status == TaskStatus.SUCCEEDED


def test_site_staff_count_as_owners_and_any_operator_may_reject() -> None:
    crew = Crew(policy=OWNER)
    crew.answer(Decision.REJECT, crew.ann, words="not now")
    assert "not now" in crew.go_on().result
    crew = Crew(policy=OWNER)
    crew.answer(Decision.APPROVE, make_user(is_staff=True))
    assert crew.go_on().status == TaskStatus.SUCCEEDED


def test_two_persons_have_to_approve_and_the_first_is_recorded() -> None:
    crew = Crew(policy=TWO)
    crew.answer(Decision.APPROVE, crew.ann)
    question = crew.open()
    assert (question.first_approved_by, question.answered_by) == (crew.ann, None)
    assert crew.go_on().status == TaskStatus.WAITING
    assert ToolCall.objects.get().attempt == 0
    assert "escalation.approved_once" in kinds(crew.task)
    with pytest.raises(Refused, match="second person"):
        crew.answer(Decision.APPROVE, crew.ann)
    crew.answer(Decision.APPROVE, crew.bob)
    assert crew.go_on().status == TaskStatus.SUCCEEDED
    approval = Approval.objects.get()
    assert {approval.given_by, approval.also_by} == {crew.ann, crew.bob}
    assert events(crew.task, "escalation.answered")[0]["also_by"] == crew.ann.username
    assert len(crew.sent()) == 1


def test_an_edit_takes_the_place_of_the_first_approval() -> None:
    crew = Crew(policy=TWO)
    crew.answer(Decision.APPROVE, crew.ann)
    crew.answer(Decision.EDIT, crew.bob, arguments=EDITED)
    assert crew.open().first_approved_by == crew.bob
    assert '+  "amount": 95' in events(crew.task, "escalation.approved_once")[1]["diff"]
    with pytest.raises(Refused, match="second person"):
        crew.answer(Decision.APPROVE, crew.bob)
    crew.answer(Decision.APPROVE, crew.ann)
    crew.go_on()
    assert crew.sent()[0].startswith('{"amount":95')
    assert ToolCall.objects.get(name="send_invoice").proposed_arguments == {"customer": "Acme", "amount": 120}


def test_an_approval_of_somebody_who_is_no_operator_any_more_does_not_count() -> None:
    crew = Crew(policy=TWO)
    crew.answer(Decision.APPROVE, crew.ann)
    add_member(crew.task.workspace, crew.ann, Role.VIEWER)
    crew.answer(Decision.APPROVE, crew.bob)
    assert crew.open().first_approved_by == crew.bob
    crew.answer(Decision.APPROVE, crew.owner)
    assert crew.go_on().status == TaskStatus.SUCCEEDED


def test_edited_arguments_need_whom_the_policy_names_for_them() -> None:
    policy = [
        {"tool": "send_invoice", "arguments": [{"path": "$.amount", "min": 1000}], "verdict": "correct",
         "words": "Nothing that large."},
        {"tool": "send_invoice", "arguments": [{"path": "$.amount", "min": 500}], "verdict": "hold",
         "approver": "two_persons"},
    ]  # fmt: skip
    crew = Crew(policy=policy)
    with pytest.raises(Refused, match=r"rule 1 of the profile's policy refuses these arguments: Nothing that large"):
        crew.answer(Decision.EDIT, crew.ann, arguments={"customer": "Acme", "amount": 5000})
    crew.answer(Decision.EDIT, crew.ann, arguments={"customer": "Acme", "amount": 600})
    question = crew.open()
    assert (question.approver, question.first_approved_by) == ("two_persons", crew.ann)
    crew.answer(Decision.APPROVE, crew.bob)
    assert crew.go_on().status == TaskStatus.SUCCEEDED
    assert ToolCall.objects.get(name="send_invoice").policy_rule == 2


def test_an_approval_after_the_deadline_is_late_also_while_nobody_has_looked_at_the_clock() -> None:
    crew = Crew(policy=[{"tool": "send_*", "verdict": "hold", "expires_s": 600, "on_expiry": "escalate"}])
    question = crew.open()
    Escalation.objects.filter(pk=question.pk).update(deadline=timezone.now() - timedelta(seconds=1))
    for decision in (Decision.APPROVE, Decision.ALWAYS):
        with pytest.raises(Refused, match="had to be approved by"):
            crew.answer(decision, crew.ann, words="late")
    assert expire_due() == 1
    with pytest.raises(Refused, match="Only an owner"):
        crew.answer(Decision.APPROVE, crew.ann)
    crew.answer(Decision.APPROVE, crew.owner)


def test_a_rule_says_when_it_expires_and_who_is_asked_then() -> None:
    crew = Crew(policy=[{"tool": "send_*", "verdict": "hold", "expires_s": 600, "on_expiry": "escalate"}])
    question = crew.open()
    assert (question.deadline - question.opened_at).total_seconds() == pytest.approx(600, abs=1)
    late(question)
    crew.task.refresh_from_db()
    raised = crew.open()
    assert (raised.pk, raised.approver, raised.raised_at is not None) == (question.pk, "owner", True)
    assert crew.task.waiting_until == raised.deadline
    assert "escalation.raised" in kinds(crew.task)
    with pytest.raises(Refused, match="Only an owner"):
        crew.answer(Decision.APPROVE, crew.ann)
    with pytest.raises(Refused, match="Only an owner"):
        crew.answer(Decision.EDIT, crew.ann, arguments=EDITED)
    late(raised)
    assert "before the deadline" in crew.go_on().result
    assert not crew.sent()


def test_two_persons_stay_two_when_nobody_answered_and_one_has_to_be_an_owner() -> None:
    crew = Crew(policy=[TWO[0] | {"on_expiry": "escalate"}])
    crew.answer(Decision.APPROVE, crew.ann)
    late(crew.open())
    with pytest.raises(Refused, match="one of the two has to be an owner"):
        crew.answer(Decision.APPROVE, crew.bob)
    crew.answer(Decision.APPROVE, crew.owner)
    assert crew.go_on().status == TaskStatus.SUCCEEDED


def test_an_approval_lasts_as_long_as_its_rule_says() -> None:
    crew = Crew(policy=[{"tool": "send_*", "verdict": "hold", "expires_s": 60}])
    crew.answer(Decision.APPROVE, crew.ann)
    approval = Approval.objects.get()
    assert (approval.expires_at - approval.given_at).total_seconds() == 60


HELD_SEVERAL = f"""
replies:
  - calls:
      - {{name: send_invoice, arguments: {{customer: A, amount: 1}}}}
      - {{name: write_file, arguments: {{path: between, content: x}}}}
      - {{name: send_invoice, arguments: {{customer: B, amount: 2}}}}
      - {{name: send_invoice, arguments: {{customer: C, amount: 3}}}}
{FINISH}
"""


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_several_held_calls_are_answered_independently_and_in_any_order(order: tuple[int, ...]) -> None:
    """One approved, one rejected, one edited; the task goes on only when all are answered."""
    crew = Crew(HELD_SEVERAL)
    questions = list(Escalation.objects.filter(status="open").order_by("tool_call__position"))
    assert len(questions) == 3
    answers: list[dict[str, Any]] = [
        {"decision": Decision.APPROVE},
        {"decision": Decision.REJECT, "words": "not B"},
        {"decision": Decision.EDIT, "arguments": {"customer": "C", "amount": 30}},
    ]
    for at, index in enumerate(order):
        answer_escalation(questions[index].pk, actor=crew.ann, **answers[index])
        crew.task.refresh_from_db()
        assert (crew.task.status == TaskStatus.WAITING) is (at < 2)
        if at < 2:
            work(crew.task)
            assert not crew.sent()
    assert crew.go_on().status == TaskStatus.SUCCEEDED
    assert crew.sent() == ['{"amount":1,"customer":"A"}', '{"amount":30,"customer":"C"}']
    assert "not B" in ToolCall.objects.get(arguments__customer="B").result


AGAIN = f"""
replies:
  - calls: [{{name: send_invoice, arguments: {{customer: Acme, amount: 120}}}}]
  - calls: [{{name: send_invoice, arguments: {{customer: Acme, amount: 120}}}}]
  - calls: [{{name: send_invoice, arguments: {{customer: Acme, amount: 121}}}}]
{FINISH}
"""


def always(crew: Crew) -> StandingApproval:
    crew.answer(Decision.ALWAYS, crew.ann, words="the same each month")
    crew.go_on()
    return StandingApproval.objects.get(revoked_at=None)


def test_an_exact_call_can_be_allowed_for_always_and_no_other_is() -> None:
    crew = Crew(AGAIN)
    standing = always(crew)
    assert len(crew.sent()) == 2
    assert crew.task.status == TaskStatus.WAITING
    assert crew.open().tool_call is not None
    assert crew.open().tool_call.arguments["amount"] == 121  # type: ignore[union-attr,index]
    judged = events(crew.task, "call.judged")
    assert [each.get("standing") for each in judged] == [None, standing.pk, None]
    assert judged[1]["verdict"] == "hold"
    assert AuditEntry.objects.filter(action="approval.standing", reason="the same each month").exists()
    assert Approval.objects.get(standing=standing).used_at is not None


def test_a_standing_approval_can_be_revoked_and_holds_no_longer() -> None:
    crew = Crew(AGAIN.replace("121", "120"))
    crew.answer(Decision.ALWAYS, crew.ann, words="for now")
    work(crew.task, until=lambda task: task.steps_taken == 1)
    standing = StandingApproval.objects.get()
    revoke_standing(standing.pk, reason="enough", actor=crew.bob)
    with pytest.raises(Refused, match="already"):
        revoke_standing(standing.pk, reason="enough", actor=crew.bob)
    assert crew.go_on().status == TaskStatus.WAITING
    assert len(crew.sent()) == 1
    assert "approval.revoked" in kinds(crew.task)
    assert AuditEntry.objects.filter(action="approval.revoke", reason="enough").exists()


def test_leave_made_from_a_standing_approval_is_void_once_that_is_revoked() -> None:
    crew = Crew(AGAIN.replace("121", "120"))
    crew.answer(Decision.ALWAYS, crew.ann, words="for now")
    judged = lambda task: ToolCall.objects.filter(task=task, step__number=2, status="approved").exists()  # noqa: E731
    from workspaces.engine import act

    original = act.Actor.act_and_settle

    def revoked_first(self: act.Actor) -> None:
        if self.step.number == 2 and judged(self.run.task):
            for standing in StandingApproval.objects.filter(revoked_at=None):
                revoke_standing(standing.pk, reason="stop", actor=crew.bob)
        original(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(act.Actor, "act_and_settle", revoked_first)
        crew.go_on()
    assert crew.task.status == TaskStatus.WAITING
    assert len(crew.sent()) == 1
    assert "no unexpired approval" in crew.open().question


def test_a_standing_approval_is_not_inherited_by_a_fork_nor_kept_by_a_rollback_to_before_it() -> None:
    crew = Crew(AGAIN.replace("121", "120"))
    start = Checkpoint.objects.filter(task=crew.task).order_by("seq").first()
    assert start is not None
    always(crew)
    assert crew.task.status == TaskStatus.SUCCEEDED
    after = Checkpoint.objects.filter(task=crew.task, step_number=1).order_by("seq").last()
    assert after is not None
    child = work(fork(after.pk, reason="try", actor=crew.owner))
    # what the origin has done is replayed there; what it has not is asked about
    assert child.status == TaskStatus.SUCCEEDED
    assert standing_of(child) == []
    roll_back(start.pk, reason="anew", actor=crew.owner)
    work(crew.task)
    assert standing_of(Task.objects.get(pk=crew.task.pk)) == []
    resume_task(crew.task.pk, actor=crew.owner)
    work(crew.task)
    roll_back(after.pk, reason="after it", actor=crew.owner)
    assert [each.name for each in standing_of(Task.objects.get(pk=crew.task.pk))] == ["send_invoice"]


def test_what_two_persons_have_to_approve_is_never_allowed_for_always() -> None:
    crew = Crew(policy=TWO)
    with pytest.raises(Refused, match="cannot be allowed for always"):
        crew.answer(Decision.ALWAYS, crew.owner, words="go")
    assert not StandingApproval.objects.exists()


def test_a_result_is_named_by_the_profiles_rule_and_the_model_is_told() -> None:
    scenario = f"""
    replies:
      - calls: [{{name: shell, arguments: {{command: 'echo no rows'}}}}]
    {FINISH}
    """
    policy = [{"tool": "shell", "result": {"regex": "no rows"}, "class": "empty", "words": "the query found nothing"}]
    crew = Crew(scenario, policy=policy)
    assert "[result: empty - the query found nothing]" in crew.task.result
    finished = events(crew.task, "call.finished")[0]
    assert (finished["result_class"], finished["data"]["rule"]) == ("empty", "rule 1")


def test_an_edits_difference_stands_in_the_trace() -> None:
    crew = Crew()
    crew.answer(Decision.EDIT, crew.ann, arguments=EDITED)
    diff = events(crew.task, "escalation.answered")[0]["diff"]
    assert '-  "amount": 120' in diff
    assert '+  "amount": 95' in diff
    check_history(crew.go_on())
