"""What commands tried to reach through the proxy, brought from its log into the trace. Never judges."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.conf import settings

from workspaces.actions.network import connections_made
from workspaces.domain.isolation import NetworkMode, network_of
from workspaces.engine.boxes import sandbox_for
from workspaces.engine.run import Run
from workspaces.models import Task, Workspace
from workspaces.sandboxes.base import Sandbox

if TYPE_CHECKING:
    from workspaces.engine.disk import Disk


def record_connections(run: Run, disk: Disk, *, step: int) -> None:
    """Those made since the last time, as events of the task that holds the workspace."""
    if _has_a_proxy(run.task.workspace):
        _record(run.task.workspace, disk.sandbox, run.task.pk, fence=run.fence, step=step)


def record_last_connections(workspace: Workspace) -> None:
    """Of what a task left running: into its trace, when the sandbox has ended."""
    task_id = workspace.held_by_id or (
        Task.objects.filter(workspace=workspace).order_by("-last_event_at").values_list("pk", flat=True).first()
    )
    if task_id is not None and _has_a_proxy(workspace):
        _record(workspace, sandbox_for(workspace), task_id)


def _has_a_proxy(workspace: Workspace) -> bool:
    """Also one whose list was taken away after its sandbox started: what is in the log is to be told."""
    chosen = network_of(workspace.network, settings.SANDBOX_NETWORK)
    return chosen is NetworkMode.ALLOWLIST or workspace.network_read > 0


def _record(
    workspace: Workspace, sandbox: Sandbox, task_id: int, *, fence: int | None = None, step: int | None = None
) -> None:
    found, position = sandbox.connections(workspace.network_read)
    if found:
        connections_made(task_id, found, after=workspace.network_read, position=position, fence=fence, step=step)
        workspace.network_read = position
