"""Do failure and cost grow with a task's length and with the number of agents? Tasks in, bins out. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from statistics import median

from workspaces.domain.proportions import wilson

STEP_EDGES = (5, 10, 20, 50, 100, 200, 500)  # the last step of each bin; one more bin for what is longer
AGENT_EDGES = (1, 2, 3, 5, 10, 20)


@dataclass(frozen=True, slots=True)
class Ended:
    """A task that ended by itself. `cost_usd` None: the price of a call is not known."""

    task: int
    root: int
    workspace: int
    steps: int
    failed: bool
    cost_usd: Decimal | None
    started: datetime
    ended: datetime


@dataclass(frozen=True, slots=True)
class Span:
    """When a task was there, for counting those at the same time; `ended` None: it still is."""

    root: int
    workspace: int
    started: datetime
    ended: datetime | None


@dataclass(frozen=True, slots=True)
class Bin:
    """Tasks of alike size. Costs are of the `priced` ones among them; None when there is none."""

    label: str
    tasks: int
    failed: int
    priced: int
    median_cost: Decimal | None
    mean_cost: Decimal | None

    @property
    def share(self) -> float | None:
        return self.failed / self.tasks if self.tasks else None

    @property
    def interval(self) -> tuple[float, float]:
        return wilson(self.failed, self.tasks)


def by_steps(tasks: Iterable[Ended]) -> list[Bin]:
    return _binned(((task.steps, task) for task in tasks), STEP_EDGES)


def by_agents(tasks: Sequence[Ended], spans: Iterable[Span]) -> list[Bin]:
    """By how many tasks of the same lineage or the same workspace were there during the task, itself counted."""
    return _binned(zip(_together(tasks, list(spans)), tasks, strict=True), AGENT_EDGES)


def _binned(sized: Iterable[tuple[int, Ended]], edges: tuple[int, ...]) -> list[Bin]:
    """Empty bins are left out: nothing was seen there."""
    found: dict[int, list[Ended]] = defaultdict(list)
    for size, task in sized:
        found[bisect_left(edges, size)].append(task)
    return [_bin(_label(edges, at), found[at]) for at in sorted(found)]


def _bin(label: str, tasks: list[Ended]) -> Bin:
    costs = [task.cost_usd for task in tasks if task.cost_usd is not None]
    return Bin(
        label=label,
        tasks=len(tasks),
        failed=sum(task.failed for task in tasks),
        priced=len(costs),
        median_cost=median(costs) if costs else None,
        mean_cost=sum(costs, Decimal(0)) / len(costs) if costs else None,
    )


def _label(edges: tuple[int, ...], at: int) -> str:
    if at == len(edges):
        return f">{edges[-1]}"
    first = edges[at - 1] + 1 if at else min(1, edges[0])
    return str(edges[at]) if first == edges[at] else f"{first}–{edges[at]}"


def _together(tasks: Sequence[Ended], spans: Sequence[Span]) -> list[int]:
    """For each task the spans that overlap its own and share its root or its workspace: in either, minus in both."""
    lineage = _Overlaps((span.root, span) for span in spans)
    workspace = _Overlaps((span.workspace, span) for span in spans)
    both = _Overlaps(((span.root, span.workspace), span) for span in spans)
    return [
        max(
            1,
            lineage.count(task.root, task)
            + workspace.count(task.workspace, task)
            - both.count((task.root, task.workspace), task),
        )
        for task in tasks
    ]


class _Overlaps:
    """How many spans of a group overlap another one: all that began before its end, without those that had ended."""

    def __init__(self, spans: Iterable[tuple[Hashable, Span]]) -> None:
        self.starts: dict[Hashable, list[datetime]] = defaultdict(list)
        self.ends: dict[Hashable, list[datetime]] = defaultdict(list)
        for key, span in spans:
            self.starts[key].append(span.started)
            if span.ended is not None:
                self.ends[key].append(span.ended)
        for moments in (*self.starts.values(), *self.ends.values()):
            moments.sort()

    def count(self, key: Hashable, task: Ended) -> int:
        began = bisect_right(self.starts.get(key, []), task.ended)
        over = bisect_left(self.ends.get(key, []), task.started)
        return began - over
