"""Down from a task to its steps, and from a step to each of its model calls with quantity, price and price source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from django.db.models import Count, Q, Sum

from workspaces.domain.cost_periods import Period
from workspaces.models import ModelCall, Step, Task, UsageRecord

STEPS_A_PAGE = 100


@dataclass(frozen=True, slots=True)
class StepCost:
    step: Step
    usd: Decimal
    records: int
    unpriced: int
    calls: int
    unanswered: int  # calls that failed or were dropped: what they took, nobody said


@dataclass(frozen=True, slots=True)
class StepCosts:
    """The newest steps with costs in the period first."""

    rows: Sequence[StepCost]
    page: int
    more: bool


def steps_of(task: Task, period: Period, page: int) -> StepCosts:
    page = max(1, min(page, 1_000))
    found = (
        UsageRecord.objects.filter(task=task, step__isnull=False, created_at__gte=period.start)
        .filter(created_at__lt=period.until)
        .order_by()
        .values("step")
        .annotate(usd=Sum("cost_usd"), records=Count("pk"), unpriced=Count("pk", filter=Q(cost_usd=None)))
        .order_by("-step")[(page - 1) * STEPS_A_PAGE : page * STEPS_A_PAGE + 1]
    )
    rows = list(found)
    more = len(rows) > STEPS_A_PAGE
    rows = rows[:STEPS_A_PAGE]
    keys = [row["step"] for row in rows]
    steps = Step.objects.select_related("branch").defer("manifest").in_bulk(keys)
    counted = ModelCall.objects.filter(step__in=keys).order_by().values("step")
    calls = {
        row["step"]: (row["count"], row["unanswered"])
        for row in counted.annotate(
            count=Count("pk"), unanswered=Count("pk", filter=Q(status__in=("failed", "dropped")))
        )
    }
    return StepCosts(
        [
            StepCost(
                steps[row["step"]],
                row["usd"] or Decimal(0),
                row["records"],
                row["unpriced"],
                *calls.get(row["step"], (0, 0)),
            )
            for row in rows
        ],
        page,
        more,
    )


@dataclass(slots=True)
class CallCost:
    """`call` None: what the step used beside its model calls, which is time in the sandbox."""

    call: ModelCall | None
    records: list[UsageRecord] = field(default_factory=list)

    @property
    def usd(self) -> Decimal:
        return sum((record.cost_usd for record in self.records if record.cost_usd is not None), Decimal(0))

    @property
    def unpriced(self) -> int:
        return sum(1 for record in self.records if record.cost_usd is None)


def calls_of(step: Step) -> list[CallCost]:
    """In the order in which they were made, the sandbox last."""
    calls = ModelCall.objects.filter(step=step).defer("text", "calls").order_by("pk")
    found: dict[int | None, CallCost] = {call.pk: CallCost(call) for call in calls}
    for record in UsageRecord.objects.filter(step=step).order_by("pk"):
        found.setdefault(record.model_call_id, CallCost(None)).records.append(record)
    return list(found.values())


def step_named(task: Task, number: int, branch: int | None) -> Step | None:
    """Of that branch; without one, of the newest that has the step."""
    steps = Step.objects.filter(task=task, number=number).select_related("branch")
    if branch is not None:
        steps = steps.filter(branch__number=branch)
    return steps.order_by("-branch__number").first()
