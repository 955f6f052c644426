"""Sandboxes are put to rest: when no task holds their workspace, and when the whole installation stops."""

from __future__ import annotations

import logging
from collections import Counter

from workspaces.actions.workspaces import while_free
from workspaces.domain.states import CallStatus
from workspaces.engine.boxes import driver_named, sandbox_for
from workspaces.models import ToolCall, Workspace
from workspaces.sandboxes.base import SandboxError

logger = logging.getLogger(__name__)


def rest(workspace_id: int) -> None:
    """Stop the sandbox of a workspace that no task holds. Its disk stays."""
    with while_free(workspace_id) as workspace:
        if workspace is not None:
            try:
                sandbox_for(workspace).stop()
            except SandboxError as error:
                logger.warning("workspace %s was not put to rest: %s", workspace_id, error)


def rest_all(driver: str) -> Counter[str]:
    """For a stop of the installation: idle sandboxes end, one with a command in flight is frozen where it stands.

    Returns how many were "stopped" and "frozen". The next worker waits for the frozen commands. Call it when no
    worker runs any more. Raises SandboxUnavailable.
    """
    done: Counter[str] = Counter()
    for workspace in Workspace.objects.filter(driver=driver, sandbox_key__in=driver_named(driver).awake()):
        in_flight = ToolCall.objects.filter(task__workspace=workspace, status=CallStatus.RUNNING.value).exists()
        sandbox = sandbox_for(workspace)
        if in_flight:
            sandbox.freeze()
        else:
            sandbox.stop()
        done["frozen" if in_flight else "stopped"] += 1
    return done
