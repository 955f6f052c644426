"""Builds what a model is sent next, and the manifest that says what that was. Nothing is dropped: see `fits`."""

from __future__ import annotations

from workspaces.engine.run import Run
from workspaces.models import Task
from workspaces.queries.calibration import Limits
from workspaces.queries.contexts import Built, build, frame_of


def next_request(run: Run) -> Built:
    """As of the newest event. That and the scratchpad are of one row, so they are of one moment."""
    as_of, scratchpad = Task.objects.values_list("last_seq", "scratchpad").get(pk=run.task.pk)
    return build(
        run.branch, run.version, frame_of(run.tools), as_of=as_of, scratchpad=scratchpad, limits=Limits.of(run.version)
    )
