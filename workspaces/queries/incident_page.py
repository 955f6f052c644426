"""What an incident's page reads: its evidence, the calls in question, the trace around it, the way back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from django.contrib.auth.models import AnonymousUser
from django.db.models import Q

from workspaces.domain.attempts import Attempt
from workspaces.domain.states import EscalationKind, EscalationStatus
from workspaces.models import Branch, Checkpoint, Event, Incident, ModelCall, Step, Task, ToolCall, User

from .access import visible_escalations, visible_tasks
from .escalations import Card, cards_of
from .history import Span, line_of

AROUND = 6  # events before the first and after the last one of an incident
NEAR_EVIDENCE = 1  # events on each side of a piece of evidence in a long one
WHOLE_EVENTS = 60  # a timeline up to this long is shown without gaps
MOST_EVENTS = 150
RESULT_CHARS = 60_000


@dataclass(frozen=True, slots=True)
class Place:
    """A piece of evidence with the task in whose trace it stands: a fork's may be its parent's."""

    seq: int
    step: int | None
    what: str
    task_id: int
    tool_call: int | None
    model_call: int | None


@dataclass(frozen=True, slots=True)
class Timeline:
    """Events in order; `gaps`: for an event before which some are left out, the seq of the one that is shown before."""

    events: Sequence[Event]
    gaps: dict[int, int]


@dataclass(frozen=True, slots=True)
class Proof:
    """The evidence, resolved against the rows that it names."""

    places: Sequence[Place]
    attempts: Sequence[Attempt]
    replies: Sequence[ModelCall]  # those named as evidence, when no call is


def proof_of(incident: Incident, spans: Sequence[Span]) -> Proof:
    """Only rows of tasks on the incident's own line are read, whatever its evidence names."""
    raw = [place for place in incident.evidence if isinstance(place, dict)]
    tasks = {span.task_id for span in spans}
    wanted = [place["tool_call"] for place in raw if place.get("tool_call")]
    calls = {
        call.pk: call
        for call in ToolCall.objects.filter(pk__in=wanted, task_id__in=tasks).select_related("step").order_by("pk")
    }
    named = [place["model_call"] for place in raw if place.get("model_call")]
    replies = {
        reply.pk: reply
        for reply in ModelCall.objects.filter(pk__in=named, task_id__in=tasks).select_related("step").order_by("pk")
    }
    places = [_place(place, incident, calls, replies) for place in raw]
    return Proof(places, [_attempt(call) for call in calls.values()], [] if calls else list(replies.values()))


def _place(raw: dict[str, Any], incident: Incident, calls: dict[int, ToolCall], replies: dict[int, ModelCall]) -> Place:
    call, reply = calls.get(raw.get("tool_call") or 0), replies.get(raw.get("model_call") or 0)
    owner = call or reply
    return Place(
        seq=int(raw.get("seq") or 0),
        step=raw.get("step"),
        what=str(raw.get("what") or ""),
        task_id=owner.task_id if owner else incident.task_id,
        tool_call=call.pk if call else None,
        model_call=reply.pk if reply else None,
    )


def _attempt(call: ToolCall) -> Attempt:
    return Attempt(
        seq=call.seq,
        step=call.step.number,
        tool_call=call.pk,
        name=call.name,
        arguments=call.arguments,
        raw=call.raw_arguments,
        verdict=call.verdict,
        result_class=call.result_class,
        result=call.result[:RESULT_CHARS],
    )


def timeline_of(incident: Incident, spans: Sequence[Span], evidence: Sequence[int]) -> Timeline:
    """Events of the incident's own branch and line, from a few before the first to a few after the last.

    A long one shows its two ends and what stands around each piece of evidence; gaps are counted.
    """
    first, last = incident.first_seq, incident.last_seq
    rows = Event.objects.filter(_on_line(incident, spans), task_id=incident.task_id).order_by("seq")
    ends = rows.filter(seq__lt=first).order_by("-seq").values_list("seq", flat=True)[:AROUND]
    start = min(ends, default=first)
    tail = rows.filter(seq__gt=last).values_list("seq", flat=True)[:AROUND]
    end = max(tail, default=last)
    if end - start >= WHOLE_EVENTS:
        near = Q(seq__range=(start, first + NEAR_EVIDENCE)) | Q(seq__range=(last - NEAR_EVIDENCE, end))
        for seq in evidence:
            near |= Q(seq__range=(seq - NEAR_EVIDENCE, seq + NEAR_EVIDENCE))
        chosen = rows.filter(near, seq__range=(start, end))
    else:
        chosen = rows.filter(seq__range=(start, end))
    events = list(chosen.select_related("actor")[:MOST_EVENTS])
    if len(events) == MOST_EVENTS and events[-1].seq < end:
        keep = list(rows.filter(seq__range=(last - NEAR_EVIDENCE, end)).select_related("actor")[: AROUND * 2])
        events = events[: MOST_EVENTS - len(keep)] + [event for event in keep if event.seq > events[-1].seq]
    shown = [event.seq for event in events]
    gaps = {seq: before for before, seq in pairwise(shown) if seq > before + 1}
    return Timeline(events, gaps)


def _on_line(incident: Incident, spans: Sequence[Span]) -> Q:
    """The incident's branch to its end, and what leads to it; other branches are another history."""
    numbers = dict(Branch.objects.filter(pk__in=[span.branch_id for span in spans]).values_list("pk", "number"))
    wanted = Q(pk__in=[])
    for span in spans:
        if span.task_id != incident.task_id:
            continue
        part = Q(branch_number=numbers[span.branch_id])
        if span.last_seq is not None:
            part &= Q(seq__lte=span.last_seq)
        wanted |= part
    return wanted


def checkpoint_before(incident: Incident, spans: Sequence[Span]) -> Checkpoint | None:
    """The newest one on the incident's line that was saved before it began and can still be gone back to."""
    own = [span for span in spans if span.task_id == incident.task_id]
    wanted = Q(pk__in=[])
    for span in own:
        part = Q(branch_id=span.branch_id)
        if span.last_seq is not None:
            part &= Q(seq__lte=span.last_seq)
        wanted |= part
    found = Checkpoint.objects.filter(wanted, task_id=incident.task_id, seq__lt=incident.first_seq)
    return found.filter(snapshot__dropped_at=None).select_related("snapshot", "branch").order_by("-seq").first()


def deciding_step(incident: Incident) -> Step | None:
    """The step whose reply made the last piece of evidence: what the model saw there is what decided."""
    if incident.last_step is None:
        return None
    spans = line_of(incident.branch)
    found = Step.objects.filter(branch_id__in=[span.branch_id for span in spans], number=incident.last_step)
    return found.select_related("task", "branch").order_by("-pk").first()


def questions_of(user: User | AnonymousUser, incident: Incident) -> list[Card]:
    """What is asked because of it, and whatever else of its task waits for a person; open ones first."""
    found = (
        visible_escalations(user)
        .filter(Q(incident=incident) | Q(task_id=incident.task_id, status=EscalationStatus.OPEN.value))
        .select_related("task__workspace", "task__profile_version__profile", "tool_call__step", "answered_by")
        .order_by("-pk")[:20]
    )
    cards = cards_of(user, list(found))
    return sorted(cards, key=lambda card: not card.is_open)


def asks_for_a_limit(cards: Sequence[Card]) -> bool:
    return any(card.is_open and card.escalation.kind == EscalationKind.LIMIT.value for card in cards)


def others_with_cause(user: User | AnonymousUser, incident: Incident) -> int:
    """Other tasks of the user's in which the same cause was seen, counted to 1,000 at most."""
    tasks = Incident.objects.filter(cause=incident.cause, task__in=visible_tasks(user)).exclude(task=incident.task_id)
    return len(set(tasks.values_list("task_id", flat=True)[:1000]))


def task_of(incident: Incident) -> Task:
    related = ("workspace", "created_by", "profile_version__profile", "latch__placed_by", "branch")
    return Task.objects.select_related(*related).get(pk=incident.task_id)
