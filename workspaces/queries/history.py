"""A task's lines of history: which branches make one up, its conversation, its effects."""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import Q, QuerySet

from workspaces.domain.context import Line
from workspaces.domain.effects import effect_key
from workspaces.domain.events import EventKind
from workspaces.domain.states import CallStatus, Verdict, WaitingFor
from workspaces.models import Branch, Checkpoint, Event, LedgerEntry, Message, Task, ToolCall

NO_SANDBOX = "the sandbox does not start"


@dataclass(frozen=True, slots=True)
class Span:
    """The part of a branch that lies on a line: everything up to `last_seq` (None: to its end)."""

    branch_id: int
    task_id: int
    last_seq: int | None


def line_of(branch: Branch) -> list[Span]:
    """The spans that lead to a branch's end, oldest first; they may begin in another task (a fork)."""
    spans = [Span(branch.pk, branch.task_id, None)]
    while branch.parent_id is not None:
        cut = branch.parent_seq
        branch = Branch.objects.get(pk=branch.parent_id)
        spans.append(Span(branch.pk, branch.task_id, cut))
    return spans[::-1]


def on_line(spans: list[Span]) -> Q:
    """A filter for rows that have `branch` and `seq`."""
    wanted = Q(pk__in=[])
    for span in spans:
        part = Q(branch_id=span.branch_id)
        if span.last_seq is not None:
            part &= Q(seq__lte=span.last_seq)
        wanted |= part
    return wanted


def conversation(branch: Branch) -> list[Message]:
    """Every message of the line, in the order in which it was written."""
    return list(Message.objects.filter(on_line(line_of(branch))).order_by("pk"))


def as_lines(messages: list[Message]) -> list[Line]:
    return [
        Line(
            seq=message.seq,
            part=message.part,
            role=message.role,
            content=message.content,
            calls=tuple(message.calls),
            call_id=message.call_id,
            tokens=message.tokens,
            pinned=message.pinned,
            message_id=message.pk,
        )
        for message in messages
    ]


def next_effect_key(task: Task, branch: Branch, call_hash: str, *, earlier_in_step: int = 0) -> str:
    """The ledger key that the next such call on this line has (see domain/effects.py)."""
    done_before = (
        ToolCall.objects.filter(on_line(line_of(branch)), arguments_hash=call_hash)
        .exclude(effect_key="")
        .filter(Q(attempt__gt=0) | Q(verdict=Verdict.REPLAY.value))
        .count()
    )
    return effect_key(task.root_id_or_own, call_hash, done_before + earlier_in_step + 1)


def effects_since(checkpoint: Checkpoint) -> QuerySet[LedgerEntry]:
    """Completed or unknown effects of the task after a checkpoint: what a rollback cannot undo."""
    return (
        LedgerEntry.objects.filter(tool_call__task=checkpoint.task)
        .exclude(state=LedgerEntry.State.NOT_DONE)
        .filter(
            Q(tool_call__seq__gt=checkpoint.seq)
            | Q(tool_call__seq=None, tool_call__started_at__gt=checkpoint.created_at)
        )
        .select_related("tool_call__step")
        .order_by("created_at")
    )


def latest_checkpoint(task: Task) -> Checkpoint | None:
    """The newest on the task's current branch."""
    own = Checkpoint.objects.filter(task=task, branch_id=task.current_branch_id)
    return own.select_related("snapshot").order_by("-seq").first()


def is_under_way(task_id: int) -> bool:
    """Whether a tool call has begun and has no result: its command may run, whatever became of its worker."""
    return ToolCall.objects.filter(task_id=task_id, status=CallStatus.RUNNING.value).exists()


def waits_since_checkpoint(task_id: int) -> int:
    """How often in a row the task has waited for its sandbox without coming further."""
    newest = Checkpoint.objects.filter(task_id=task_id).order_by("-seq").values_list("seq", flat=True).first() or 0
    return Event.objects.filter(
        task_id=task_id,
        seq__gt=newest,
        kind=EventKind.TASK_WAITING.value,
        data__waiting_for=WaitingFor.TIMER.value,
        data__reason__startswith=NO_SANDBOX,
    ).count()
