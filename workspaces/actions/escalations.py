"""Questions to operators: opened by the engine, answered once by a person, expired by the scheduler."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from workspaces.domain.effects import arguments_hash, canonical_json
from workspaces.domain.escalations import Decision, problem_with
from workspaces.domain.events import EXCERPT_CHARS, EventKind
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
from workspaces.models import Approval, Escalation, ToolCall, User
from workspaces.queries.history import next_effect_key
from workspaces.queries.profiles import tools_of

from .calls import store_result
from .errors import Refused
from .ledger import give_up, happened, not_done
from .pen import Pen, writing
from .tasks import end_task, void_lease
from .waits import wake
from .words import MESSAGE_CHARS, taken

MAX_STEPS = 10_000


def open_escalation(
    pen: Pen, *, kind: EscalationKind, question: str, deadline: datetime, tool_call: ToolCall | None = None
) -> Escalation:
    """Ask, inside a locked task. The task itself is made to wait by `wait_for_operator`."""
    escalation = Escalation.objects.create(
        task=pen.task,
        tool_call=tool_call,
        kind=kind.value,
        question=clean_text(question),
        opened_at=pen.now,
        deadline=deadline,
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
    return escalation


def wait_for_operator(pen: Pen) -> None:
    """running → waiting/operator, until the first deadline of what is open."""
    first = _open(pen).order_by("deadline").first()
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
) -> Escalation:
    """Decide once. `arguments`: the edited call (EDIT), which has to fit the tool's schema.

    1. lock the task; 2. take the escalation from open to answered by a conditional UPDATE: the second of two
    operators gets Refused with who was first; 3. do what the decision says; 4. event, audit; 5. queue the task
    when nothing else is open.
    """
    words = taken(words, "answer", MESSAGE_CHARS)
    task_id = Escalation.objects.values_list("task_id", flat=True).get(pk=escalation_id)
    with writing(task_id, actor=actor) as pen:
        escalation = Escalation.objects.select_related("tool_call__step", "answered_by").get(pk=escalation_id)
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
        )
        pen.audit(f"escalation.{decision.value}", reason=words, escalation=escalation.pk)
        if escalation.tool_call is not None:
            _settle_call(pen, escalation.tool_call, decision, words, arguments)
        elif decision is Decision.GIVE_UP:
            void_lease(pen)
            end_task(pen, TaskStatus.FAILED, words)
            return escalation
        else:
            _settle_task(pen, decision, words, extra_steps)
        _go_on(pen)
        escalation.refresh_from_db()
        return escalation


def expire_escalation(escalation_id: int) -> bool:
    """The deadline passed: a held call is rejected, a question answered so, anything else pauses the task."""
    task_id = Escalation.objects.values_list("task_id", flat=True).get(pk=escalation_id)
    with writing(task_id) as pen:
        escalation = Escalation.objects.select_related("tool_call__step").get(pk=escalation_id)
        if escalation.deadline > pen.now:
            return False
        expired = Escalation.objects.filter(pk=escalation_id, status=EscalationStatus.OPEN.value).update(
            status=EscalationStatus.EXPIRED.value
        )
        if expired != 1:
            return False
        pen.event(EventKind.ESCALATION_EXPIRED, escalation=escalation.pk, escalation_kind=escalation.kind)
        if escalation.kind in (EscalationKind.HELD_CALL.value, EscalationKind.QUESTION.value):
            assert escalation.tool_call is not None
            store_result(
                pen,
                escalation.tool_call,
                "No operator answered before the deadline. The call was not run.",
                ResultClass.ERROR,
            )
            _go_on(pen)
        elif pen.task.status == TaskStatus.WAITING.value:
            pen.move(TaskStatus.PAUSED)
            pen.event(EventKind.TASK_PAUSED, mode="boundary", reason=f"no answer in time: {escalation.question}")
        return True


def has_open(pen: Pen) -> bool:
    """Whether an operator still has something to answer."""
    return bool(_open(pen).exists())


def _open(pen: Pen) -> Any:
    return Escalation.objects.filter(task=pen.task, status=EscalationStatus.OPEN.value)


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


def _settle_call(pen: Pen, call: ToolCall, decision: Decision, words: str, arguments: dict[str, Any] | None) -> None:
    match decision:
        case Decision.APPROVE | Decision.EDIT | Decision.NOT_DONE:
            if decision is Decision.EDIT:
                assert arguments is not None
                call.proposed_arguments, call.arguments = call.arguments, arguments
                call.arguments_hash = arguments_hash(call.name, arguments)
                effect = tools_of(pen.task.profile_version)[call.name].spec.effect_of(arguments)
                call.effect = effect.value
                leaves = effect.leaves_sandbox
                call.effect_key = next_effect_key(pen.task, pen.branch, call.arguments_hash) if leaves else ""
            if decision is Decision.NOT_DONE:
                not_done(call)
            call.status = CallStatus.APPROVED.value
            call.save()
            assert pen.actor is not None
            version = pen.task.profile_version
            Approval.objects.filter(tool_call=call, used_at=None).update(used_at=pen.now)
            Approval.objects.create(
                tool_call=call,
                arguments_hash=call.arguments_hash,
                given_by=pen.actor,
                given_at=pen.now,
                expires_at=pen.now + timedelta(seconds=version.approval_expires_s),
            )
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


def _settle_task(pen: Pen, decision: Decision, words: str, extra_steps: int) -> None:
    if decision is Decision.RAISE:
        old = pen.task.max_steps
        pen.set(max_steps=old + extra_steps)
        pen.event(EventKind.LIMIT_RAISED, what="max_steps", old=old, new=old + extra_steps, reason=words)
    if words:
        seq = pen.event(EventKind.MESSAGE_ADDED, role="operator", text=clip(words, EXCERPT_CHARS))
        pen.message("user", f"Message from the operator: {words}", seq=seq, pinned=True)


def _go_on(pen: Pen) -> None:
    if pen.task.status == TaskStatus.WAITING.value and not has_open(pen):
        wake(pen, why="an operator answered" if pen.actor else "the deadline passed")
