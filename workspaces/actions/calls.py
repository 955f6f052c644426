"""Tool calls: judged, started, finished. An intent is written before a call runs, its result after."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from workspaces.domain.effects import Effect, canonical_json
from workspaces.domain.events import EXCERPT_CHARS, EventKind
from workspaces.domain.results import ResultClass
from workspaces.domain.states import CallStatus, StepPhase, Verdict
from workspaces.domain.text import clean_json, clean_text, clip
from workspaces.models import Approval, LedgerEntry, Message, Snapshot, Step, ToolCall

from .errors import Refused
from .pen import Pen, writing


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


def store_judged(task_id: int, fence: int, step: Step, judged: Sequence[Judged]) -> list[ToolCall]:
    """Write down every verdict of a step at once; corrected and replayed calls have their result with it."""
    with writing(task_id, fence=fence) as pen:
        calls = [_store_one(pen, step, position, item) for position, item in enumerate(judged)]
        Step.objects.filter(pk=step.pk).update(phase=StepPhase.JUDGED.value)
        step.phase = StepPhase.JUDGED.value
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
        status=(CallStatus.HELD if item.verdict is Verdict.HOLD else CallStatus.APPROVED).value,
    )
    pen.event(
        EventKind.CALL_JUDGED,
        step=step.number,
        tool_call=call.pk,
        name=call.name,
        arguments=clip(call.raw_arguments, EXCERPT_CHARS),
        effect=call.effect,
        verdict=call.verdict,
        problems=call.problems,
    )
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


def start_call(task_id: int, fence: int, call: ToolCall, *, key: str, snapshot_before: Snapshot | None) -> None:
    """Write the intent. A held call spends its approval here, in the same transaction.

    Raises Refused when the approval is missing, expired, used, or for other arguments; nothing is written.
    """
    with writing(task_id, fence=fence) as pen:
        if call.verdict == Verdict.HOLD.value:
            _spend_approval(call, pen.now)
        if call.effect_key:
            entry, _ = LedgerEntry.objects.get_or_create(
                key=call.effect_key,
                defaults={
                    "root_task_id": pen.task.root_id_or_own,
                    "tool_call": call,
                    "created_at": pen.now,
                },
            )
            if entry.state == LedgerEntry.State.COMPLETED:
                raise Refused("this effect is already completed")
            if entry.tool_call_id != call.pk:
                if entry.state != LedgerEntry.State.NOT_DONE:
                    raise Refused("another call has this very effect under way, its outcome is not known")
                LedgerEntry.objects.filter(pk=entry.pk).update(tool_call=call, state=LedgerEntry.State.INTENDED)
            elif entry.state == LedgerEntry.State.NOT_DONE:
                LedgerEntry.objects.filter(pk=entry.pk).update(state=LedgerEntry.State.INTENDED)
        call.status = CallStatus.RUNNING.value
        call.attempt += 1
        call.snapshot_before = snapshot_before
        call.started_at = pen.now
        call.save(update_fields=["status", "attempt", "snapshot_before", "started_at"])
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


def _spend_approval(call: ToolCall, now: datetime) -> None:
    spent = Approval.objects.filter(
        tool_call=call, arguments_hash=call.arguments_hash, used_at=None, expires_at__gt=now
    ).update(used_at=now)
    if spent != 1:
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
            LedgerEntry.objects.filter(key=call.effect_key).update(
                state=LedgerEntry.State.COMPLETED,
                result=clean_text(content),
                result_class=result_class.value,
                completed_at=pen.now,
            )
        call.control = control
        store_result(pen, call, content, result_class, data)


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
    content = clean_text(content)
    call.status = CallStatus.DONE.value
    call.result = content
    call.result_class = result_class.value
    call.result_data = clean_json(data or {})
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
    call.save()
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
