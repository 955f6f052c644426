"""Failure and cost by length and by agents, with the count behind each."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

from workspaces.domain.compounding import Ended, Span, by_agents, by_steps

START = datetime(2026, 1, 1, tzinfo=UTC)


def ended(
    task: int,
    steps: int = 3,
    *,
    failed: bool = False,
    cost: str | None = "1",
    root: int = 0,
    workspace: int = 1,
    start: int = 0,
    end: int = 10,
) -> Ended:
    moments = START + timedelta(minutes=start), START + timedelta(minutes=end)
    return Ended(task, root or task, workspace, steps, failed, Decimal(cost) if cost else None, *moments)


def spans(*tasks: Ended) -> list[Span]:
    return [Span(task.root, task.workspace, task.started, task.ended) for task in tasks]


def test_tasks_are_binned_by_their_steps_and_empty_bins_left_out() -> None:
    bins = by_steps([ended(1, 5), ended(2, 6, failed=True), ended(3, 10), ended(4, 501)])
    assert [(each.label, each.tasks, each.failed) for each in bins] == [("1–5", 1, 0), ("6–10", 2, 1), (">500", 1, 0)]
    low, high = bins[1].interval
    assert low < 0.5 < high


def test_costs_are_of_those_whose_price_is_known() -> None:
    (both,) = by_steps([ended(1, cost="1"), ended(2, cost="4"), ended(3, cost=None)])
    assert (both.tasks, both.priced, both.median_cost, both.mean_cost) == (3, 2, Decimal("2.5"), Decimal("2.5"))
    (none,) = by_steps([ended(1, cost=None)])
    assert none.median_cost is None


def test_agents_are_those_of_a_lineage_or_a_workspace_at_the_same_time() -> None:
    alone = ended(1, workspace=1, start=0, end=10)
    mother = ended(2, workspace=2, start=0, end=10)
    fork = ended(3, root=2, workspace=3, start=5, end=20)
    beside = ended(4, workspace=3, start=6, end=8)
    later = ended(5, workspace=3, start=30, end=40)
    tasks = [alone, mother, fork, beside, later]
    found = {each.label: each.tasks for each in by_agents(tasks, spans(*tasks))}
    assert found == {"1": 2, "2": 2, "3": 1}, "the fork has its mother and the one beside it"


def test_a_task_that_still_runs_counts_for_those_beside_it() -> None:
    done = ended(1, workspace=1)
    running = Span(root=9, workspace=1, started=START + timedelta(minutes=1), ended=None)
    assert [each.label for each in by_agents([done], [*spans(done), running])] == ["2"]


def test_a_lineage_in_one_workspace_is_not_counted_twice() -> None:
    one, two = ended(1, workspace=1), ended(2, root=1, workspace=1)
    assert [(each.label, each.tasks) for each in by_agents([one, two], spans(one, two))] == [("2", 2)]
