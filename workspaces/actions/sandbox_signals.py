"""What a workspace whose sandbox does not start signals, and that it starts again. Starts none."""

from __future__ import annotations

from workspaces.domain.alerts import AlertKind, Edge
from workspaces.domain.incidents import Severity
from workspaces.models import Task, Workspace
from workspaces.queries.signals import standing

from .alert_signals import signal

KIND = AlertKind.SANDBOX_UNHEALTHY


def does_not_wake(workspace_id: int, why: str) -> None:
    """Each time that it was tried."""
    _signal(workspace_id, Edge.BEGAN, why)


def woke(workspace_id: int) -> None:
    """Says so where it did not before."""
    if standing(KIND, [_subject(workspace_id)]):
        _signal(workspace_id, Edge.ENDED, "It has woken.")


def cause_of(workspace: Workspace) -> str:
    """One for all sandboxes of an engine: when it is gone, none of them starts."""
    return f"sandbox/{workspace.node or workspace.driver}"


def _signal(workspace_id: int, edge: Edge, words: str) -> None:
    workspace = Workspace.objects.select_related("held_by").get(pk=workspace_id)
    task: Task | None = workspace.held_by
    signal(
        KIND,
        edge,
        _subject(workspace_id),
        words=f"The sandbox of {workspace} does not start: {words}" if edge is Edge.BEGAN else words,
        severity=Severity.ERROR,
        task=task,
        detail="wake",
        cause=cause_of(workspace),
        workspace=workspace_id,
        user=task.created_by_id if task else workspace.owner_id,
    )


def _subject(workspace_id: int) -> str:
    return f"workspace:{workspace_id}"
