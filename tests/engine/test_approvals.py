"""Over any sequence of judging, approving, editing, rejecting, expiring and running: leave is for exact arguments, is
spent once and in time, and comes from as many persons as the policy names. The rows are real; a tally by hand beside
them says what may be."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.harness import SEND_INVOICE, add_member, make_user, make_workspace, scripted_profile
from workspaces.actions import calls, steps
from workspaces.actions.approvals import revoke_standing
from workspaces.actions.errors import Refused
from workspaces.actions.escalations import answer_escalation, ask_to_approve, expire_escalation
from workspaces.actions.leases import claim
from workspaces.actions.ledger import Turn
from workspaces.actions.pen import writing
from workspaces.actions.tasks import create_task
from workspaces.domain.effects import Effect, arguments_hash
from workspaces.domain.escalations import Decision
from workspaces.domain.policy import read_policy, rule_on
from workspaces.domain.results import ResultClass
from workspaces.domain.roles import Role
from workspaces.domain.states import EscalationKind, StepPhase, Verdict
from workspaces.models import Approval, Escalation, StandingApproval, Step, Task, ToolCall
from workspaces.queries.history import next_effect_key
from workspaces.queries.integrity import verify

pytestmark = pytest.mark.django_db

# by amount: 1 any operator, 2 two persons, 3 an owner
POLICY: list[dict[str, Any]] = [
    {"arguments": [{"path": "$.amount", "equals": 2}], "verdict": "hold", "approver": "two_persons",
     "on_expiry": "escalate"},
    {"arguments": [{"path": "$.amount", "equals": 3}], "verdict": "hold", "approver": "owner"},
    {"verdict": "hold", "on_expiry": "escalate"},
]  # fmt: skip
RULES = {"approvals", "leave", "two-persons", "refused", "arguments", "intents", "audit", "effect-once", "questions"}

amounts = st.sampled_from([1, 2, 2, 3])
calls_so_far = st.integers(0, 2)
people = st.sampled_from(["owner", "ann", "bob"])
acts = st.one_of(
    st.tuples(st.just("judge"), amounts),
    st.tuples(st.just("answer"), calls_so_far, people, st.just(Decision.APPROVE)),
    st.tuples(st.just("answer"), calls_so_far, people, st.sampled_from([Decision.APPROVE, Decision.ALWAYS])),
    st.tuples(st.just("answer"), calls_so_far, people, st.just(Decision.REJECT)),
    st.tuples(st.just("edit"), calls_so_far, people, amounts),
    st.tuples(st.just("late"), calls_so_far),
    st.tuples(st.just("lapse"), calls_so_far),
    st.tuples(st.just("forge"), calls_so_far, amounts, st.booleans()),
    st.tuples(st.just("run"), calls_so_far, st.booleans()),
    st.tuples(st.just("run"), calls_so_far, st.booleans()),
    st.tuples(st.just("revoke"), people),
)


class Tally:
    """A task whose calls are judged, answered and started by hand, and what may run by what people have said."""

    def __init__(self) -> None:
        owner, ann, bob = make_user(), make_user(), make_user()
        self.people = {"owner": owner, "ann": ann, "bob": bob}
        workspace = make_workspace(owner)
        add_member(workspace, ann, Role.OPERATOR)
        add_member(workspace, bob, Role.OPERATOR)
        version = scripted_profile(owner, "replies: []", declared_tools=[SEND_INVOICE], policy=POLICY)
        self.task = create_task(workspace=workspace, profile_version=version, instruction="Pay.", actor=owner)
        claimed = claim(self.task.pk, worker="test", lease_s=3600)
        assert claimed is not None
        self.fence = claimed.fence
        steps.begin_running(self.task.pk, self.fence, worker="test", previous_owner="")
        self.made: list[int] = []
        self.said: dict[int, tuple[str, set[str]]] = {}  # call → exact arguments, who approved those
        self.leave: dict[int, str] = {}  # call → exact arguments that may run once
        self.always: dict[str, str] = {}  # exact arguments → who said so
        self.forged = False
        self.ran = 0

    def call(self, back: int) -> ToolCall | None:
        """The newest, the one before it, …; None where there are not so many."""
        if back >= len(self.made):
            return None
        return ToolCall.objects.select_related("step", "task").get(pk=self.made[-1 - back])

    def judge(self, amount: int) -> None:
        task = Task.objects.select_related("branch").get(pk=self.task.pk)
        assert task.branch is not None
        arguments = {"customer": "A", "amount": amount}
        digest = arguments_hash("send_invoice", arguments)
        step = Step.objects.create(
            task=task,
            branch=task.branch,
            number=len(self.made) + 1,
            phase=StepPhase.REPLIED.value,
            started_at=timezone.now(),
        )
        judged = calls.Judged(
            call_id=f"c{step.number}",
            name="send_invoice",
            raw_arguments=json.dumps(arguments),
            arguments=arguments,
            arguments_hash=digest,
            effect=Effect.IRREVERSIBLE,
            verdict=Verdict.HOLD,
            effect_key=next_effect_key(task, task.branch, digest),
            rule=rule_on(read_policy(POLICY), "send_invoice", arguments, Effect.IRREVERSIBLE).rule,
        )
        (call,) = calls.store_judged(self.task.pk, self.fence, step, [judged])
        self.made.append(call.pk)
        self.said[call.pk] = (digest, set())
        if call.status == "held":
            with writing(self.task.pk, fence=self.fence) as pen:
                ask_to_approve(pen, call)
        else:
            assert digest in self.always, "approved by nobody"
            self.leave[call.pk] = digest

    def answer(self, back: int, who: str, decision: Decision, amount: int | None = None) -> None:
        call = self.call(back)
        question = Escalation.objects.filter(tool_call=call, status="open").first()
        if call is None or question is None:
            return
        arguments = None if amount is None else {"customer": "A", "amount": amount}
        try:
            question = answer_escalation(
                question.pk, decision=decision, actor=self.people[who], words="words", arguments=arguments
            )
        except Refused:
            return
        call.refresh_from_db()
        if decision is Decision.REJECT:
            self.leave.pop(call.pk, None)
            return
        digest, approved = self.said[call.pk]
        if digest != call.arguments_hash:
            approved = set()
        approved = {*approved, who}
        self.said[call.pk] = (call.arguments_hash, approved)
        if question.status != "answered":
            return
        assert call.arguments is not None
        needs_owner = call.arguments["amount"] == 3 or question.raised_at is not None
        assert "owner" in approved or not needs_owner, "no owner among those who approved"
        assert len(approved) > 1 or call.arguments["amount"] != 2, "one person was enough"
        self.leave[call.pk] = call.arguments_hash
        if decision is Decision.ALWAYS:
            self.always[call.arguments_hash] = who

    def edit(self, back: int, who: str, amount: int) -> None:
        self.answer(back, who, Decision.EDIT, amount)

    def late(self, back: int) -> None:
        """The deadline of the question passes."""
        call = self.call(back)
        question = Escalation.objects.filter(tool_call=call, status="open").first()
        if call is not None and question is not None:
            Escalation.objects.filter(pk=question.pk).update(deadline=question.opened_at)
            assert expire_escalation(question.pk)

    def lapse(self, back: int) -> None:
        """The approval was not used in time."""
        call = self.call(back)
        if call is not None and Approval.objects.filter(tool_call=call, used_at=None).update(expires_at=timezone.now()):
            self.leave.pop(call.pk, None)

    def forge(self, back: int, amount: int, with_hash: bool) -> None:
        """Somebody changes the arguments past everything."""
        call = self.call(back)
        if call is None or call.attempt:
            return
        arguments = {"customer": "A", "amount": amount}
        fields = {"arguments_hash": arguments_hash("send_invoice", arguments)} if with_hash else {}
        ToolCall.objects.filter(pk=call.pk).update(arguments=arguments, **fields)
        self.forged = True

    def revoke(self, who: str) -> None:
        for standing in StandingApproval.objects.filter(task=self.task, revoked_at=None):
            revoke_standing(standing.pk, reason="no more", actor=self.people[who])
            self.always.pop(standing.arguments_hash)
            for approval in Approval.objects.filter(standing=standing):
                self.leave.pop(approval.tool_call_id, None)

    def run(self, back: int, dies: bool) -> None:
        """Start it, whatever its state. `dies`: no result comes, and it is tried again later."""
        call = self.call(back)
        if call is None or call.status not in ("held", "approved"):
            return
        exactly = arguments_hash(call.name, call.arguments or {})
        try:
            turn = calls.start_call(self.task.pk, self.fence, call, key="k", snapshot_before=None)
        except Refused:
            open_already = Escalation.objects.filter(tool_call=call, status="open").exists()
            if call.status == "approved" and not open_already and not self.forged:
                steps.escalate_call(self.task.pk, self.fence, call, EscalationKind.HELD_CALL, "once more?")
            return
        if turn is Turn.MINE:
            had_leave = self.leave.pop(call.pk, None) == exactly
            assert had_leave or exactly in self.always, "it ran without leave for exactly these arguments"
            self.ran += 1
            if dies:
                calls.retry_call(self.task.pk, self.fence, call, what="tried again")
            else:
                calls.finish_call(self.task.pk, self.fence, call, content="sent", result_class=ResultClass.OK, data={})


@given(st.lists(acts, min_size=4, max_size=25))
@settings(
    max_examples=30,
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],  # not shrunk: what fails is short, and each try is a few dozen writes
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
def test_leave_is_never_used_for_other_arguments_twice_late_or_with_too_few_persons(
    sequence: list[tuple[Any, ...]],
) -> None:
    with transaction.atomic():
        tally = Tally()
        tally.judge(2)
        for act, *details in sequence:
            getattr(tally, act)(*details)
        if not tally.forged:
            broken = [row.what for each in verify(tally.task.pk) if each.rule.name in RULES for row in each.rows]
            assert not [what for what in broken if "ran 2 times" not in what or "effect" not in what], broken
        transaction.set_rollback(True)


def test_the_tally_sees_calls_run() -> None:
    """The property is not empty: what may run does, once."""
    tally = Tally()
    for amount, answers in ((1, ["ann"]), (2, ["ann", "bob"]), (3, ["owner"])):
        tally.judge(amount)
        for who in answers:
            tally.answer(0, who, Decision.APPROVE)
        tally.run(0, False)
    assert tally.ran == 3
    tally.judge(1)
    tally.answer(0, "ann", Decision.ALWAYS)
    tally.run(0, False)
    tally.judge(1)
    tally.run(0, False)
    assert tally.ran == 5
