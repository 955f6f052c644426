"""Tool calls: judged, started, finished. An intent is written before a call runs, its result after."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from workspaces.domain.effects import Effect, arguments_hash, canonical_json
from workspaces.domain.events import EXCERPT_CHARS, EventKind
from workspaces.domain.policy import CallRule
from workspaces.domain.results import ResultClass
from workspaces.domain.states import CallStatus, StepPhase, TaskStatus, Verdict, WaitingFor
from workspaces.domain.text import clean_json, clean_text, clip
from workspaces.models import Approval, LedgerEntry, Message, Snapshot, Step, ToolCall

from .approvals import use_standing
from .errors import Refused
from .ledger import ELSEWHERE, Turn, complete, take_up
from .pen import Pen, writing

ELSEWHERE_RECHECK = timedelta(minutes=5)  # whoever makes the effect wakes those who wait; this is for a lost wake-up


@dataclass(frozen=True, slots=True)
class Judged:
    """One proposed call with its verdict, as the gate hands it over. `told`: what the model reads (correct, replay)."""

    call_id: str
    name: str
    raw_arguments: str
    arguments: dict[str, Any] | None
    arguments_hash: str
    effect: Effect | None
    verdict: Verdict
    effect_key: str = ""
    problems: Sequence[dict[str, str]] = field(default_factory=tuple)
    told: str = ""
    replay_of: int | None = None
    replay_class: str = ""
    rule: CallRule | None = None  # of the policy: the one that decided


def store_judged(task_id: int, fence: int, step: Step, judged: Sequence[Judged]) -> list[ToolCall]:
    """Write down every verdict of a step at once; corrected and replayed calls have their result with it."""
    with writing(task_id, fence=fence) as pen:
        calls = [_store_one(pen, step, position, item) for position, item in enumerate(judged)]
        step.phase = StepPhase.JUDGED.value
        pen.change(step, "phase")
        return calls


def _store_one(pen: Pen, step: Step, position: int, item: Judged) -> ToolCall:
    call = ToolCall.objects.create(
        task=pen.task,
        branch_id=pen.task.current_branch_id,
        step=step,
        position=position,
        call_id=clean_text(item.call_id)[:200],
        name=clean_text(item.name)[:200],
        raw_arguments=clean_text(item.raw_arguments),
        arguments=clean_json(item.arguments),
        arguments_hash=item.arguments_hash,
        effect=item.effect.value if item.effect else "",
        verdict=item.verdict.value,
        problems=clean_json(list(item.problems)),
        effect_key=item.effect_key,
        policy_rule=item.rule.scope.number if item.rule else None,
        status=(CallStatus.HELD if item.verdict is Verdict.HOLD else CallStatus.APPROVED).value,
    )
    tell_judged(pen, call, item.rule)
    if item.verdict is Verdict.CORRECT:
        store_result(pen, call, item.told, ResultClass.ERROR)
    elif item.verdict is Verdict.REPLAY:
        pen.event(
            EventKind.CALL_REPLAYED,
            step=step.number,
            tool_call=call.pk,
            name=call.name,
            of=item.replay_of,
            result=clip(item.told, EXCERPT_CHARS),
        )
        store_result(pen, call, item.told, ResultClass(item.replay_class or ResultClass.OK.value))
    return call


def tell_judged(pen: Pen, call: ToolCall, rule: CallRule | None) -> None:
    """The verdict, and by which rule. A held call that a standing approval allows is approved with it."""
    decided: dict[str, Any] = {}
    if rule is not None:
        decided = {"rule": rule.scope.number, "rule_name": rule.scope.name}
        if rule.verdict is Verdict.HOLD:
            decided["approver"] = rule.approver.value
    if call.status == CallStatus.HELD.value:
        standing = use_standing(pen, call)
        if standing is not None:
            call.status = CallStatus.APPROVED.value
            call.save(update_fields=["status"])
            decided |= {"standing": standing.pk, "standing_by": standing.given_by.get_username()}
    pen.event(
        EventKind.CALL_JUDGED,
        step=call.step.number,
        tool_call=call.pk,
        name=call.name,
        arguments=clip(call.raw_arguments, EXCERPT_CHARS),
        effect=call.effect,
        verdict=call.verdict,
        problems=call.problems,
        **decided,
    )


def start_call(task_id: int, fence: int, call: ToolCall, *, key: str, snapshot_before: Snapshot | None) -> Turn:
    """Write the intent, if it is this call's turn to make its effect. A held call spends its approval here.

    1. the ledger's row is taken up (ledger.py). When the effect is made already, its recorded result is stored in the
    call's place; when another call makes it now, the task waits for that. 2. the approval; 3. the intent.
    Raises Refused when the approval is missing, expired, used, or for other arguments; nothing is written.
    """
    with writing(task_id, fence=fence) as pen:
        if call.effect_key:
            found = take_up(pen, call)
            if found.turn is Turn.DONE:
                _replay(pen, call, found.entry)
            elif found.turn is Turn.ELSEWHERE and pen.task.status == TaskStatus.RUNNING.value:
                other = found.entry.tool_call
                reason = f"{ELSEWHERE}: task {other.task_id} runs {other.name} with the same arguments"
                pen.wait(WaitingFor.TIMER, reason, pen.now + ELSEWHERE_RECHECK)
            if found.turn is not Turn.MINE:
                return found.turn
        if call.verdict == Verdict.HOLD.value:
            _spend_approval(pen, call)
        call.status = CallStatus.RUNNING.value
        call.attempt += 1
        call.snapshot_before = snapshot_before
        call.started_at = pen.now
        pen.change(call, "status", "attempt", "snapshot_before", "started_at")
        pen.event(
            EventKind.CALL_STARTED,
            step=call.step.number,
            tool_call=call.pk,
            name=call.name,
            effect=call.effect,
            attempt=call.attempt,
            key=key,
            arguments=clip(_shown(call), EXCERPT_CHARS),
        )
        return Turn.MINE


def _replay(pen: Pen, call: ToolCall, entry: LedgerEntry) -> None:
    """Another call of the lineage made this effect while this one was held, or waited for its turn."""
    call.verdict = Verdict.REPLAY.value
    pen.event(
        EventKind.CALL_REPLAYED,
        step=call.step.number,
        tool_call=call.pk,
        name=call.name,
        of=entry.tool_call_id,
        result=clip(entry.result, EXCERPT_CHARS),
    )
    store_result(pen, call, entry.result, ResultClass(entry.result_class or ResultClass.OK.value))


def _spend_approval(pen: Pen, call: ToolCall) -> None:
    exactly = arguments_hash(call.name, call.arguments or {})  # of what will run, not of what was judged
    left = Approval.objects.filter(tool_call=call, arguments_hash=exactly, used_at=None, expires_at__gt=pen.now)
    if left.update(used_at=pen.now) == 1:
        return
    if call.arguments_hash != exactly or use_standing(pen, call) is None or left.update(used_at=pen.now) != 1:
        raise Refused("no unexpired approval of exactly these arguments is left")


def finish_call(
    task_id: int,
    fence: int,
    call: ToolCall,
    *,
    content: str,
    result_class: ResultClass,
    data: dict[str, Any],
    control: str = "",
) -> None:
    """Write the result; an effect outside the sandbox is completed in the ledger with it."""
    with writing(task_id, fence=fence) as pen:
        if call.effect_key:
            complete(pen, call, content, result_class)
        call.control = control
        _answered(pen, call, content, result_class, data)
        pen.change(call, "control", *ANSWERED)


def answer_call(task_id: int, fence: int, call: ToolCall, content: str, result_class: ResultClass) -> None:
    """A result in the call's place: it is not run."""
    with writing(task_id, fence=fence) as pen:
        store_result(pen, call, content, result_class)


def store_result(
    pen: Pen,
    call: ToolCall,
    content: str,
    result_class: ResultClass,
    data: dict[str, Any] | None = None,
) -> None:
    """The call is done: its row, its event, and the tool message that the model will read."""
    _answered(pen, call, content, result_class, data or {})
    call.save()


ANSWERED = ("status", "result", "result_hash", "result_class", "result_data", "finished_at", "seq")


def _answered(pen: Pen, call: ToolCall, content: str, result_class: ResultClass, data: dict[str, Any]) -> None:
    """The same without its row, whose fields are set."""
    content = clean_text(content)
    call.status = CallStatus.DONE.value
    call.result = content
    call.result_hash = hashlib.sha256(content.encode()).hexdigest()
    call.result_class = result_class.value
    call.result_data = clean_json(data)
    call.finished_at = pen.now
    duration = (pen.now - call.started_at) if call.started_at else timedelta()
    seq = pen.event(
        EventKind.CALL_FINISHED,
        step=call.step.number,
        tool_call=call.pk,
        name=call.name,
        result_class=result_class.value,
        result=clip(content, EXCERPT_CHARS),
        duration_s=round(duration.total_seconds(), 3),
        data={key: value for key, value in call.result_data.items() if _is_small(value)},
    )
    call.seq = seq
    pen.message(Message.Role.TOOL.value, content, seq=seq, call_id=call.call_id)


def hold_call(pen: Pen, call: ToolCall) -> None:
    """The call waits for an operator (a question that it asks, or an outcome that is not known)."""
    call.status = CallStatus.HELD.value
    call.save(update_fields=["status"])


def retry_call(task_id: int, fence: int, call: ToolCall, *, what: str) -> None:
    """An interrupted call whose effect is undone or none goes back to approved; `what` was done about it."""
    with writing(task_id, fence=fence) as pen:
        call.status = CallStatus.APPROVED.value
        call.save(update_fields=["status"])
        pen.event(
            EventKind.CALL_UNKNOWN,
            step=call.step.number,
            tool_call=call.pk,
            name=call.name,
            effect=call.effect,
            what=what,
        )


def _shown(call: ToolCall) -> str:
    return canonical_json(call.arguments) if call.arguments is not None else call.raw_arguments


def _is_small(value: Any) -> bool:
    return not isinstance(value, str) or len(value) <= EXCERPT_CHARS * 4
