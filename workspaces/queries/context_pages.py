"""What the pages about a context show: a step by its number, its parts in the order sent, two steps compared."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from workspaces.domain.context import SegmentKind
from workspaces.domain.context_diff import Part
from workspaces.models import Message, Step, Task

from .contexts import Built, Item, items_in
from .history import line_of

STEPS_OFFERED = 300


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a message was written; a fork's first ones were in another task."""

    task_id: int
    seq: int
    tokens: int


def step_named(task: Task, number: int, branch: int | None) -> Step | None:
    """A step by its number: on the branch that is named, else the one on the task's current line."""
    steps = Step.objects.filter(task=task, number=number).select_related("branch", "branch__task")
    if branch is not None:
        return steps.filter(branch__number=branch).first()
    if task.branch is None:
        return None
    line = [span.branch_id for span in line_of(task.branch)]
    found = sorted(steps, key=lambda step: (step.branch_id in line, step.branch.number), reverse=True)
    return found[0] if found else None


def steps_offered(task: Task) -> list[tuple[int, int]]:
    """(number, branch's number) of the newest steps that have asked a model, newest first."""
    steps = Step.objects.filter(task=task, manifest__has_key="as_of_seq").order_by("-pk")
    return list(steps.values_list("number", "branch__number")[:STEPS_OFFERED])


def neighbours(step: Step) -> tuple[int | None, int | None]:
    """The numbers of the steps before and after it on its branch that have asked a model."""
    steps = Step.objects.filter(branch=step.branch_id, manifest__has_key="as_of_seq")
    before = steps.filter(number__lt=step.number).order_by("-number").values_list("number", flat=True).first()
    after = steps.filter(number__gt=step.number).order_by("number").values_list("number", flat=True).first()
    return before, after


def parts_of(built: Built) -> list[Part]:
    """Every part of a request under a name that is the same in any other."""
    return [_part(place, item) for place, item in enumerate(items_in(built))]


def _part(place: int, item: Item) -> Part:
    if item.message_id is not None:
        key, label = f"message {item.message_id}", f"{item.role} #{item.seq}"
    elif item.kind is SegmentKind.SUMMARY:
        key, label = "summary", "summary of earlier turns"
    elif item.kind is SegmentKind.TOOLS:
        key, label = f"tool {item.name}", f"tool {item.name}"
    else:
        key, label = item.name, item.name
    return Part(key, place, label, item.kind, item.text, item.tokens, item.replaced_from_tokens is not None)


def origins_of(items: Iterable[Item]) -> dict[int, Origin]:
    """Message id → where it was written. One query."""
    wanted = [item.message_id for item in items if item.message_id is not None]
    rows = Message.objects.filter(pk__in=wanted).values_list("pk", "task_id", "seq", "tokens")
    return {pk: Origin(task_id, seq, tokens) for pk, task_id, seq, tokens in rows}


def first_places(items: Sequence[Item]) -> dict[SegmentKind, int]:
    """Kind → the place of its first part in the order sent."""
    found: dict[SegmentKind, int] = {}
    for place, item in enumerate(items):
        found.setdefault(item.kind, place)
    return found
