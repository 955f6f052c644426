"""A task's events, in pages by seq: for the task page, its socket and the API. Never reads another table per row."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from django.db.models import QuerySet

from workspaces.domain.events import EventKind
from workspaces.domain.states import CallStatus, ModelCallStatus
from workspaces.models import Event, ModelCall, Task, ToolCall

PAGE_EVENTS = 60


class KindGroup(StrEnum):
    """The filters of the trace."""

    MODEL = "model"
    TOOLS = "tools"
    CHECKPOINTS = "checkpoints"
    PEOPLE = "people"
    STATE = "state"


_GROUP_OF_PREFIX = {
    "model": KindGroup.MODEL,
    "reply": KindGroup.MODEL,
    "context": KindGroup.MODEL,
    "summary": KindGroup.MODEL,
    "call": KindGroup.TOOLS,
    "checkpoint": KindGroup.CHECKPOINTS,
    "escalation": KindGroup.PEOPLE,
    "approval": KindGroup.PEOPLE,
    "message": KindGroup.PEOPLE,
    "note": KindGroup.PEOPLE,
    "limit": KindGroup.PEOPLE,
    "command": KindGroup.PEOPLE,
}
_GROUP_OF_KIND = {
    EventKind.TASK_ROLLED_BACK.value: KindGroup.CHECKPOINTS,
    EventKind.TASK_FORKED.value: KindGroup.CHECKPOINTS,
}


def group_of(kind: str) -> KindGroup:
    """The filter under which a kind of event is found; what is no other's is the task's state."""
    return _GROUP_OF_KIND.get(kind) or _GROUP_OF_PREFIX.get(kind.partition(".")[0], KindGroup.STATE)


KINDS_OF_GROUP: dict[KindGroup, list[str]] = {
    group: [kind.value for kind in EventKind if group_of(kind.value) is group] for group in KindGroup
}


@dataclass(frozen=True, slots=True)
class TraceFilter:
    """Which events are wanted. Empty: all."""

    group: KindGroup | None = None
    branch: int | None = None

    @classmethod
    def from_words(cls, group: object, branch: object) -> TraceFilter:
        """From a URL or a socket's hello; what is not understood filters nothing."""
        wanted = str(group or "")
        number = str(branch or "")
        return cls(
            group=KindGroup(wanted) if wanted in KindGroup._value2member_map_ else None,
            branch=int(number) if number.isascii() and number.isdigit() and len(number) < 9 else None,
        )

    def apply(self, events: QuerySet[Event]) -> QuerySet[Event]:
        if self.group is not None:
            events = events.filter(kind__in=KINDS_OF_GROUP[self.group])
        if self.branch is not None:
            events = events.filter(branch_number=self.branch)
        return events


@dataclass(frozen=True, slots=True)
class TracePage:
    """Newest first. `older_than`: pass it as `before` to get the next page; None: the beginning is reached."""

    events: list[Event] = field(default_factory=list)
    older_than: int | None = None


def trace_page(task: Task, wanted: TraceFilter, *, before: int | None = None, limit: int = PAGE_EVENTS) -> TracePage:
    """One page of events up to `task.last_seq` as it was read, so that a socket can go on after exactly that."""
    ceiling = task.last_seq + 1 if before is None else min(before, task.last_seq + 1)
    rows = wanted.apply(Event.objects.filter(task=task, seq__lt=ceiling).select_related("actor"))
    found = list(rows.order_by("-seq")[: limit + 1])
    events = found[:limit]
    return TracePage(events, events[-1].seq if len(found) > limit else None)


def events_after(task_id: int, seq: int, *, limit: int) -> list[Event]:
    """The next events in the order in which they were written."""
    rows = Event.objects.filter(task_id=task_id, seq__gt=seq).select_related("actor")
    return list(rows.order_by("seq")[:limit])


@dataclass(frozen=True, slots=True)
class CurrentLine:
    """Which of a task's own events lie on its current line of history: branch number → last seq (None: all)."""

    last_seq: dict[int, int | None]

    def holds(self, branch_number: int, seq: int) -> bool:
        if branch_number not in self.last_seq:
            return False
        last = self.last_seq[branch_number]
        return last is None or seq <= last


def current_line(task: Task) -> CurrentLine:
    """One query, however often the task was rolled back."""
    branches = {branch.pk: branch for branch in task.branches.all()}
    found: dict[int, int | None] = {}
    tip = branches.get(task.branch_id or 0)
    cut: int | None = None
    while tip is not None:
        found[tip.number] = cut
        cut = tip.parent_seq
        tip = branches.get(tip.parent_id or 0)
    return CurrentLine(found)


@dataclass(frozen=True, slots=True)
class Running:
    """A call under way: `what` is "model" or "tool"."""

    what: str
    pk: int
    name: str


def running_now(task: Task) -> list[Running]:
    """Model and tool calls with an intent and no result."""
    models: Iterable[ModelCall] = ModelCall.objects.filter(task=task, status=ModelCallStatus.RUNNING.value).only(
        "pk", "model"
    )
    tools: Iterable[ToolCall] = ToolCall.objects.filter(task=task, status=CallStatus.RUNNING.value).only("pk", "name")
    return [Running("model", call.pk, call.model) for call in models] + [
        Running("tool", call.pk, call.name) for call in tools
    ]
