"""Builds what a model is sent next, and the manifest that says what that was. Nothing is dropped: see `fits`."""

from __future__ import annotations

from workspaces.engine.run import Run
from workspaces.models import Task
from workspaces.queries.calibration import Limits
from workspaces.queries.contexts import Built, build, frame_of


def next_request(run: Run) -> Built:
    """As of the newest event. That, the scratchpad and the task's own limits are of one row, so of one moment.

    What is changed later is for the next request: a call that is under way keeps what it began with.
    """
    columns = ("last_seq", "scratchpad", "model_override", "max_output_tokens_override")
    as_of, scratchpad, model, output = Task.objects.values_list(*columns).get(pk=run.task.pk)
    run.task.model_override, run.task.max_output_tokens_override = model, output
    return build(
        run.branch, run.version, frame_of(run.tools), as_of=as_of, scratchpad=scratchpad, limits=Limits.of(run.version)
    )
