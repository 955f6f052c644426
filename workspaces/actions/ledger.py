"""The effect ledger: which call may make an effect now. Its row is locked while that is decided, for all forks at once.

An effect is known by its key (domain/effects.py), which the branches and forks of one task share. Whoever would make
it takes its row up first; of any number who try, one does, and the others wait for it, get its result, or ask.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from django.db import transaction
from django.db.models import Q

from workspaces.domain.results import ResultClass
from workspaces.domain.states import CallStatus, TaskStatus, WaitingFor
from workspaces.domain.text import clean_text
from workspaces.models import LedgerEntry, Task, ToolCall
from workspaces.queries.history import next_effect_key

from .errors import Refused
from .pen import Pen
from .waits import wake_waiting

S = LedgerEntry.State
ELSEWHERE = "the same effect is under way elsewhere"


class Turn(StrEnum):
    MINE = "mine"  # make it
    DONE = "done"  # it is made: give its recorded result
    ELSEWHERE = "elsewhere"  # another call makes it now
    UNKNOWN = "unknown"  # another call began it, and nobody knows how that ended


@dataclass(frozen=True, slots=True)
class Found:
    turn: Turn
    entry: LedgerEntry


def take_up(pen: Pen, call: ToolCall) -> Found:
    """Whether this call may make its effect. If so, the row names it as under way from this transaction on.

    A call that has not run takes the key that it has now: what stood before it on the line may not have run after all.
    """
    if call.attempt == 0:
        call.effect_key = next_effect_key(pen.task, pen.branch, call.arguments_hash)
        call.save(update_fields=["effect_key"])
    LedgerEntry.objects.get_or_create(
        key=call.effect_key,
        defaults={"root_task_id": pen.task.root_id_or_own, "tool_call": call, "created_at": pen.now},
    )
    entry = _locked(call.effect_key)
    assert entry is not None
    if entry.state == S.COMPLETED:
        return Found(Turn.DONE, entry)
    if _is_made_elsewhere(entry, call):
        return Found(Turn.ELSEWHERE, entry)
    if entry.state == S.UNKNOWN or (entry.state == S.INTENDED and entry.tool_call_id != call.pk):
        return Found(Turn.UNKNOWN, entry)
    LedgerEntry.objects.filter(pk=entry.pk).update(tool_call=call, state=S.INTENDED)
    return Found(Turn.MINE, entry)


def complete(pen: Pen, call: ToolCall, result: str, result_class: ResultClass) -> None:
    """Its effect is made. Who waited for that is called."""
    changed = LedgerEntry.objects.filter(key=call.effect_key, tool_call=call).update(
        state=S.COMPLETED, result=clean_text(result), result_class=result_class.value, completed_at=pen.now
    )
    if changed:
        _call_those_who_wait(pen)


def happened(pen: Pen, call: ToolCall, told: str) -> str:
    """A person found that the effect took place. Returns its recorded result, which is what the model is told.

    Raises Refused while another call makes it.
    """
    entry = _settled_by_a_person(call)
    if entry is None or entry.state == S.COMPLETED:
        return entry.result if entry else told
    LedgerEntry.objects.filter(pk=entry.pk).update(
        state=S.COMPLETED, result=told, result_class=ResultClass.OK.value, completed_at=pen.now
    )
    _call_those_who_wait(pen)
    return told


def not_done(call: ToolCall) -> None:
    """A person found that the effect did not take place. Raises Refused when it did, or while another call makes it."""
    entry = _settled_by_a_person(call)
    if entry is None:
        return
    if entry.state == S.COMPLETED:
        raise Refused(
            f"Task {entry.tool_call.task_id} has completed this very effect meanwhile: {entry.result[:200]} "
            "Say that it happened, or reject the call."
        )
    LedgerEntry.objects.filter(pk=entry.pk).update(state=S.NOT_DONE)


def give_up(pen: Pen, calls: list[ToolCall]) -> None:
    """These calls will never tell how their effects ended: whoever comes to one of them asks a person."""
    ids = [call.pk for call in calls if call.effect_key]
    if ids and LedgerEntry.objects.filter(tool_call__in=ids, state=S.INTENDED).update(state=S.UNKNOWN):
        _call_those_who_wait(pen)


def _settled_by_a_person(call: ToolCall) -> LedgerEntry | None:
    entry = _locked(call.effect_key)
    if entry is not None and _is_made_elsewhere(entry, call):
        raise Refused(f"Task {entry.tool_call.task_id} makes this very effect now. Wait for its result, then answer.")
    return entry


def _is_made_elsewhere(entry: LedgerEntry, call: ToolCall) -> bool:
    other = entry.state == S.INTENDED and entry.tool_call_id != call.pk
    return other and entry.tool_call.status == CallStatus.RUNNING.value


def _locked(key: str) -> LedgerEntry | None:
    # without a join: one who has waited for the lock would look for the new row's call as of before
    return LedgerEntry.objects.select_for_update().filter(key=key).first()


def _call_those_who_wait(pen: Pen) -> None:
    root = pen.task.root_id_or_own
    waiting = list(
        Task.objects.filter(
            Q(pk=root) | Q(root_id=root),
            status=TaskStatus.WAITING.value,
            waiting_for=WaitingFor.TIMER.value,
            waiting_reason__startswith=ELSEWHERE,
        ).values_list("pk", flat=True)
    )

    def call() -> None:
        for task_id in waiting:
            wake_waiting(task_id, waiting_for=WaitingFor.TIMER.value, why="the effect that it waited for is settled")

    transaction.on_commit(call)
