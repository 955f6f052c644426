"""Storms: what one provider's pool refuses within a minute, over every task that draws on it. Never a poll."""

from __future__ import annotations

from datetime import timedelta

from workspaces.actions.clock import database_now
from workspaces.actions.detections import note
from workspaces.domain.states import ModelCallStatus
from workspaces.domain.storms import Happening, storms
from workspaces.engine.run import Run
from workspaces.models import Event, ModelCall
from workspaces.queries.profiles import detectors_of

# what says that the pool has no room; anything else is a fault and no storm
KINDS = ("rate_limit", "overloaded")
WITHIN = timedelta(seconds=60)
MOST_SEEN = 500


def look(run: Run, call: ModelCall, kind: str) -> None:
    """After a failure is stored. One incident a task, with the pool and the other tasks in its evidence."""
    if kind not in KINDS:
        return
    settings = detectors_of(run.version)
    if not settings.thresholds.retries_per_minute:
        return
    since = database_now() - WITHIN
    failed = list(
        ModelCall.objects.filter(
            status=ModelCallStatus.FAILED.value,
            finished_at__gt=since,
            error_kind__in=KINDS,
            pool=call.pool_id,
        )
        .order_by("-finished_at")
        .values_list("pk", "task_id", "step__number", "error_kind", "finished_at")[:MOST_SEEN]
    )
    if len(failed) < settings.thresholds.retries_per_minute:
        return
    own = _own_seqs(run, [pk for pk, task_id, *_ in failed if task_id == run.task.pk])
    newest = max(own.values(), default=0)
    pool = call.pool.name if call.pool else run.version.get_provider_display()
    happened = [
        Happening(
            at_s=finished_at.timestamp(),
            kind=error_kind,
            seq=own.get(pk, newest),
            step=step if task_id == run.task.pk else None,
            source=pool,
        )
        for pk, task_id, step, error_kind, finished_at in failed
        if finished_at is not None
    ]
    others = len({row[1] for row in failed}) - 1
    note(run.task.pk, run.fence, storms(happened, settings.thresholds), others=others, pool=call.pool_id)


def _own_seqs(run: Run, calls: list[int]) -> dict[int, int]:
    found = Event.objects.filter(task=run.task, kind="model.failed", data__model_call__in=calls)
    return {data["model_call"]: seq for seq, data in found.order_by("-seq").values_list("seq", "data")[:MOST_SEEN]}
