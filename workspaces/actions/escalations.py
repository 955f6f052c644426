"""Questions to operators: opened by the engine, answered once by a person, expired by the scheduler."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any

from django.db.models import QuerySet

from workspaces.domain.diffs import unified_diff
from workspaces.domain.effects import Effect, arguments_hash, canonical_json
from workspaces.domain.escalations import LETS_RUN, Decision, problem_with
from workspaces.domain.events import EXCERPT_CHARS, EventKind
from workspaces.domain.incidents import IncidentState
from workspaces.domain.policy import Approver, OnExpiry, Ruling, rule_on
from workspaces.domain.results import ResultClass
from workspaces.domain.states import (
    CallStatus,
    EscalationKind,
    EscalationStatus,
    TaskStatus,
    Verdict,
    WaitingFor,
)
from workspaces.domain.text import clean_json, clean_text, clip
from workspaces.models import Escalation, Incident, ToolCall, User
from workspaces.queries.history import next_effect_key
from workspaces.queries.profiles import policy_of, tools_of

from . import approvals, question_signals
from .calls import store_result
from .errors import Refused
from .incidents import close
from .ledger import give_up, happened, not_done
from .pen import Pen, writing
from .tasks import end_task, void_lease
from .tuning import tune
from .waits import wake
from .words import MESSAGE_CHARS, taken

MAX_STEPS = 10_000
MAX_MINUTES = 500_000


def open_escalation(
    pen: Pen,
    *,
    kind: EscalationKind,
    question: str,
    deadline: datetime,
    tool_call: ToolCall | None = None,
    incident: Incident | None = None,
    signals: bool = True,
    **needs: Any,
) -> Escalation:
    """Ask, inside a locked task. The task itself is made to wait by `wait_for_operator`.

    `signals`: False where the caller signals it once it stands by an incident (question_signals.asked).
    `needs`: `approver`, `on_expiry` and `expires_s`, where the question is whether a call may run.
    """
    escalation = Escalation.objects.create(
        task=pen.task,
        tool_call=tool_call,
        incident=incident,
        kind=kind.value,
        question=clean_text(question),
        opened_at=pen.now,
        deadline=deadline,
        **needs,
    )
    pen.event(
        EventKind.ESCALATION_OPENED,
        step=tool_call.step.number if tool_call else None,
        escalation=escalation.pk,
        escalation_kind=kind.value,
        question=clip(question, EXCERPT_CHARS),
        deadline=deadline.isoformat(),
        tool_call=tool_call.pk if tool_call else None,
    )
    if signals:
        question_signals.asked(pen, escalation)
    return escalation


def ask_to_approve(pen: Pen, call: ToolCall) -> Escalation:
    """Open the escalation of a held call."""
    what = "cannot be undone" if call.effect == Effect.IRREVERSIBLE.value else f"has the effect {call.effect}"
    rule = policy_of(pen.task.profile_version).rule(call.policy_rule)
    question = f"May the agent call {call.name}? It {what}."
    if rule is not None:
        question += f" Held by {rule.scope.title} of the profile's policy{f': {rule.words}' if rule.words else '.'}"
    return ask_about_call(pen, call, EscalationKind.HELD_CALL, question)


def ask_about_call(
    pen: Pen, call: ToolCall, kind: EscalationKind, question: str, *, signals: bool = True
) -> Escalation:
    """Ask about a call. Where the answer may let it run, whoever the policy names has to give it."""
    rule = policy_of(pen.task.profile_version).rule(call.policy_rule) if call.verdict == Verdict.HOLD.value else None
    ruling = Ruling(Verdict.HOLD, rule)
    expires_s = ruling.expires_s(pen.task.profile_version.approval_expires_s)
    needs = {} if kind is EscalationKind.QUESTION else _needs(ruling)
    deadline = pen.now + timedelta(seconds=expires_s)
    return open_escalation(
        pen, kind=kind, question=question, deadline=deadline, tool_call=call, signals=signals, **needs
    )


def _needs(ruling: Ruling) -> dict[str, Any]:
    expires_s = ruling.rule.expires_s if ruling.rule else None
    return {"approver": ruling.approver.value, "on_expiry": ruling.on_expiry.value, "expires_s": expires_s}


def wait_for_operator(pen: Pen) -> None:
    """running → waiting/operator, until the first deadline of what is open."""
    first = open_questions(pen).order_by("deadline").first()
    assert first is not None, "a task waits for an operator only with a question open"
    pen.wait(WaitingFor.OPERATOR, clip(first.question, 500), first.deadline)


def answer_escalation(
    escalation_id: int,
    *,
    decision: Decision,
    actor: User,
    words: str = "",
    arguments: dict[str, Any] | None = None,
    extra_steps: int = 0,
    extra_minutes: int = 0,
    seen: str = "",
) -> Escalation:
    """Decide once. `arguments`: the edited call (EDIT), which has to fit the tool's schema. `seen`: the hash of the
    arguments that the person had before their eyes, if that is known: others are not let run.

    1. lock the task; 2. whoever lets a call run has to be the approver that its arguments need: of two persons the
    first is recorded here, and the question stays open; 3. take the escalation from open to answered by a conditional
    UPDATE: the second of two operators gets Refused with who was first; 4. do what the decision says; 5. event,
    audit; 6. queue the task when nothing else is open.
    """
    words = taken(words, "answer", MESSAGE_CHARS)
    task_id = Escalation.objects.values_list("task_id", flat=True).get(pk=escalation_id)
    with writing(task_id, actor=actor) as pen:
        found = Escalation.objects.select_related(
            "tool_call__step", "task__workspace", "answered_by", "first_approved_by", "incident"
        )
        escalation = found.get(pk=escalation_id)
        _refuse_if_closed(escalation)
        kind = EscalationKind(escalation.kind)
        problem = problem_with(kind, decision, words)
        if problem:
            raise Refused(problem)
        if decision is Decision.EDIT:
            assert escalation.tool_call is not None
            arguments = _checked_edit(escalation.tool_call, arguments)
        if decision is Decision.RAISE and not 1 <= extra_steps <= MAX_STEPS:
            raise Refused(f"Say by how many steps to raise the limit: 1 to {MAX_STEPS:,}.")
        if decision is Decision.EXTEND and not 1 <= extra_minutes <= MAX_MINUTES:
            raise Refused(f"Say how much more time to give, in minutes: 1 to {MAX_MINUTES:,}.")
        call, before = escalation.tool_call, ""
        if call is not None and decision in LETS_RUN:
            if kind is EscalationKind.HELD_CALL and escalation.deadline <= pen.now:
                raise Refused(
                    f"This had to be approved by {escalation.deadline:%Y-%m-%d %H:%M:%S} UTC. What the profile "
                    "says for that case is done in a moment."
                )
            if seen and seen != call.arguments_hash:
                raise Refused("Somebody has edited the arguments meanwhile. Look at them again, then decide.")
            before = _pretty(call)
            if decision is Decision.EDIT:
                assert arguments is not None
                _edit(pen, escalation, call, arguments)
            if decision is Decision.ALWAYS and escalation.approver == Approver.TWO_PERSONS.value:
                raise Refused("Two persons have to approve this call each time: it cannot be allowed for always.")
            if not approvals.may_approve(pen, escalation, call):
                call.save()
                approvals.record_first(pen, escalation, call, diff=_difference(before, call), words=words)
                return escalation
        changed = Escalation.objects.filter(pk=escalation_id, status=EscalationStatus.OPEN.value).update(
            status=EscalationStatus.ANSWERED.value,
            decision=decision.value,
            words=words,
            answered_by=actor,
            answered_at=pen.now,
        )
        if changed != 1:
            raise Refused("Somebody else has just answered this.")
        pen.event(
            EventKind.ESCALATION_ANSWERED,
            escalation=escalation.pk,
            escalation_kind=kind.value,
            decision=decision.value,
            words=clip(words, EXCERPT_CHARS),
            tool_call=escalation.tool_call_id,
            arguments=clip(canonical_json(arguments), EXCERPT_CHARS) if arguments is not None else "",
            **_how(escalation, call if decision in LETS_RUN else None, before),
        )
        pen.audit(f"escalation.{decision.value}", reason=words, escalation=escalation.pk)
        question_signals.over(pen, escalation, f"{actor}: {decision.value.replace('_', ' ')}. {words}".strip())
        question_signals.attended(pen, f"{actor} answers.")
        _settle_incident(pen, escalation.incident, kind, decision, words)
        if call is not None:
            _settle_call(pen, escalation, call, decision, words)
        elif decision is Decision.GIVE_UP:
            void_lease(pen)
            end_task(pen, TaskStatus.FAILED, words)
            return escalation
        else:
            _settle_task(pen, decision, words, extra_steps, timedelta(minutes=extra_minutes))
        go_on(pen)
        escalation.refresh_from_db()
        return escalation


def _settle_incident(pen: Pen, incident: Incident | None, kind: EscalationKind, decision: Decision, words: str) -> None:
    """What a person has decided is over; what they let go on is over when it is not seen any more."""
    if incident is None or incident.state == IncidentState.RESOLVED.value:
        return
    if kind is EscalationKind.UNKNOWN_OUTCOME or decision is Decision.GIVE_UP:
        close(pen, incident, f"{decision.value.replace('_', ' ')}: {words}" if words else decision.value)


def expire_escalation(escalation_id: int) -> bool:
    """The deadline passed: a held call goes to an owner if its rule says so, else it is rejected; a question is
    answered so; anything else pauses the task.
    """
    task_id = Escalation.objects.values_list("task_id", flat=True).get(pk=escalation_id)
    with writing(task_id) as pen:
        escalation = Escalation.objects.select_related("tool_call__step").get(pk=escalation_id)
        if escalation.deadline > pen.now:
            return False
        if _raise_to_owner(pen, escalation):
            return True
        expired = Escalation.objects.filter(pk=escalation_id, status=EscalationStatus.OPEN.value).update(
            status=EscalationStatus.EXPIRED.value
        )
        if expired != 1:
            return False
        pen.event(EventKind.ESCALATION_EXPIRED, escalation=escalation.pk, escalation_kind=escalation.kind)
        question_signals.expired(pen, escalation)
        if escalation.kind in (EscalationKind.HELD_CALL.value, EscalationKind.QUESTION.value):
            assert escalation.tool_call is not None
            store_result(
                pen,
                escalation.tool_call,
                "Nobody approved this call before the deadline. It was not run."
                if escalation.kind == EscalationKind.HELD_CALL.value
                else "No operator answered before the deadline. The call was not run.",
                ResultClass.ERROR,
            )
            go_on(pen)
        elif pen.task.status == TaskStatus.WAITING.value:
            pen.move(TaskStatus.PAUSED)
            pen.event(EventKind.TASK_PAUSED, mode="boundary", reason=f"no answer in time: {escalation.question}")
        return True


def _raise_to_owner(pen: Pen, escalation: Escalation) -> bool:
    """Once, where the rule says so: an owner has to answer, by a new deadline. Two persons stay two."""
    if escalation.on_expiry != OnExpiry.ESCALATE.value or escalation.kind != EscalationKind.HELD_CALL.value:
        return False
    two = escalation.approver == Approver.TWO_PERSONS.value
    approver = Approver.TWO_PERSONS if two else Approver.OWNER
    within = timedelta(seconds=escalation.expires_s or pen.task.profile_version.approval_expires_s)
    raised = Escalation.objects.filter(pk=escalation.pk, status=EscalationStatus.OPEN.value, raised_at=None).update(
        raised_at=pen.now, approver=approver.value, deadline=pen.now + within
    )
    if raised != 1:
        return False
    pen.event(
        EventKind.ESCALATION_RAISED,
        escalation=escalation.pk,
        escalation_kind=escalation.kind,
        tool_call=escalation.tool_call_id,
        approver=approver.value,
        deadline=(pen.now + within).isoformat(),
    )
    escalation.raised_at, escalation.deadline = pen.now, pen.now + within
    question_signals.raised(pen, escalation)
    if pen.task.status == TaskStatus.WAITING.value:
        first = open_questions(pen).order_by("deadline").first()
        assert first is not None
        pen.set(waiting_until=first.deadline, waiting_reason=clip(first.question, 500))
    return True


def open_questions(pen: Pen) -> QuerySet[Escalation]:
    return Escalation.objects.filter(task=pen.task, status=EscalationStatus.OPEN.value)


def has_open(pen: Pen) -> bool:
    """Whether an operator still has something to answer."""
    return bool(open_questions(pen).exists())


def _refuse_if_closed(escalation: Escalation) -> None:
    if escalation.status == EscalationStatus.ANSWERED.value:
        raise Refused(
            f"{escalation.answered_by} has already answered this ({escalation.decision}) "
            f"at {escalation.answered_at:%H:%M:%S} UTC."
        )
    if escalation.status != EscalationStatus.OPEN.value:
        raise Refused(f"This question is {escalation.status}; it takes no answer any more.")


def _checked_edit(call: ToolCall, arguments: dict[str, Any] | None) -> dict[str, Any]:
    if not isinstance(arguments, dict):
        raise Refused("Edited arguments have to be a JSON object.")
    arguments = clean_json(arguments)
    tool = tools_of(call.task.profile_version).get(call.name)
    if tool is None:
        raise Refused(f"The profile has no tool named {call.name} any more.")
    problems = tool.spec.problems_of(arguments)
    if problems:
        told = "; ".join(f"{problem.path}: {problem.reason}" for problem in problems)
        raise Refused(f"The edited arguments do not fit the tool. {told}")
    return arguments


def _edit(pen: Pen, escalation: Escalation, call: ToolCall, arguments: dict[str, Any]) -> None:
    """The call as the operator wants it, and whom the policy wants for that. Refused when it wants it not at all."""
    version = pen.task.profile_version
    effect = tools_of(version)[call.name].spec.effect_of(arguments)
    ruling = rule_on(policy_of(version), call.name, arguments, effect)
    if ruling.verdict is Verdict.CORRECT and ruling.rule is not None:
        raise Refused(f"{ruling.rule.scope.title} of the profile's policy refuses these arguments: {ruling.rule.words}")
    if call.proposed_arguments is None:
        call.proposed_arguments = call.arguments
    call.arguments = arguments
    call.arguments_hash = arguments_hash(call.name, arguments)
    call.effect = effect.value
    leaves = effect.leaves_sandbox
    call.effect_key = next_effect_key(pen.task, pen.branch, call.arguments_hash) if leaves else ""
    call.policy_rule = ruling.rule.scope.number if ruling.rule else None
    needs = _needs(ruling if ruling.verdict is Verdict.HOLD else Ruling(Verdict.HOLD))
    if escalation.raised_at is not None and needs["approver"] == Approver.ANY_OPERATOR.value:
        needs["approver"] = Approver.OWNER.value
    for name, value in needs.items():
        setattr(escalation, name, value)
    escalation.first_approved_by = escalation.first_approved_at = None
    escalation.first_hash = ""
    escalation.save(update_fields=[*needs, "first_approved_by", "first_approved_at", "first_hash"])


def _how(escalation: Escalation, call: ToolCall | None, before: str) -> dict[str, Any]:
    """What the trace says besides: what an edit changed, and who had approved first."""
    said: dict[str, Any] = {}
    if call is not None and (diff := _difference(before, call)):
        said["diff"] = diff
    first = escalation.first_approved_by
    if call is not None and escalation.approver == Approver.TWO_PERSONS.value and first is not None:
        said["also_by"] = first.get_username()
    return said


def _pretty(call: ToolCall) -> str:
    return json.dumps(call.arguments, indent=2, ensure_ascii=False, sort_keys=True) + "\n"


def _difference(before: str, call: ToolCall) -> str:
    return clip(unified_diff(before, _pretty(call), "arguments"), EXCERPT_CHARS * 4)


def _settle_call(pen: Pen, escalation: Escalation, call: ToolCall, decision: Decision, words: str) -> None:
    match decision:
        case Decision.APPROVE | Decision.EDIT | Decision.ALWAYS | Decision.NOT_DONE:
            if decision is Decision.NOT_DONE:
                not_done(call)
            call.status = CallStatus.APPROVED.value
            call.save()
            approvals.grant(pen, escalation, call)
            if decision is Decision.ALWAYS:
                approvals.allow_always(pen, call, words)
        case Decision.REJECT:
            give_up(pen, [call])
            store_result(pen, call, f"An operator rejected this call: {words}", ResultClass.ERROR)
        case Decision.ANSWER:
            store_result(pen, call, words, ResultClass.OK)
        case Decision.HAPPENED:
            told = happened(pen, call, f"An operator found that this did happen: {words}")
            if call.attempt == 0:  # another call made it
                call.verdict = Verdict.REPLAY.value
            store_result(pen, call, told, ResultClass.OK)
        case _:
            raise AssertionError(f"{decision} does not settle a call")


def _settle_task(pen: Pen, decision: Decision, words: str, extra_steps: int, more_time: timedelta) -> None:
    if decision is Decision.RAISE:
        tune(pen, {"max_steps": pen.task.max_steps + extra_steps}, reason=words)
    if decision is Decision.EXTEND:
        tune(pen, {"deadline": pen.now + more_time}, reason=words)
    if words:
        seq = pen.event(EventKind.MESSAGE_ADDED, role="operator", text=clip(words, EXCERPT_CHARS))
        pen.message("user", f"Message from the operator: {words}", seq=seq, pinned=True)


def go_on(pen: Pen) -> None:
    """Queue the task if it waits and nothing is left to answer."""
    if pen.task.status == TaskStatus.WAITING.value and not has_open(pen):
        wake(pen, why="an operator answered" if pen.actor else "the deadline passed")
