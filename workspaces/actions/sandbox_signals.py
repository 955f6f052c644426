"""What a workspace signals whose sandbox does not start or cannot be put to sleep, and that it is over. Does none."""

from __future__ import annotations

from workspaces.domain.alerts import AlertKind, Edge
from workspaces.domain.incidents import Severity
from workspaces.models import Task, Workspace
from workspaces.queries.signals import standing

from .alert_signals import signal

KIND = AlertKind.SANDBOX_UNHEALTHY
WAKE, SLEEP = "wake", "sleep"


def does_not_wake(workspace_id: int, why: str) -> None:
    """Each time that it was tried."""
    _signal(WAKE, workspace_id, Edge.BEGAN, f"{{}} does not start: {why}")


def woke(workspace_id: int) -> None:
    """Says so where it did not before."""
    if standing(KIND, [_subject(WAKE, workspace_id)]):
        _signal(WAKE, workspace_id, Edge.ENDED, "{} has woken.")


def does_not_sleep(workspace_id: int, why: str) -> None:
    """Once: it is tried again every second."""
    if not standing(KIND, [_subject(SLEEP, workspace_id)]):
        words = f"{{}} cannot be put to sleep: it goes on running, and what is on its disk is not saved. {why}"
        _signal(SLEEP, workspace_id, Edge.BEGAN, words)


def slept(workspace_id: int) -> None:
    """Says so where it could not before."""
    if standing(KIND, [_subject(SLEEP, workspace_id)]):
        _signal(SLEEP, workspace_id, Edge.ENDED, "{} sleeps, and its disk is saved.")


def cause_of(workspace: Workspace) -> str:
    """One for all sandboxes of an engine: when it is gone, none of them starts."""
    return f"sandbox/{workspace.node or workspace.driver}"


def _signal(what: str, workspace_id: int, edge: Edge, words: str) -> None:
    workspace = Workspace.objects.select_related("held_by").get(pk=workspace_id)
    task: Task | None = workspace.held_by
    signal(
        KIND,
        edge,
        _subject(what, workspace_id),
        words=words.replace("{}", f"The sandbox of {workspace}", 1),
        severity=Severity.ERROR,
        task=task,
        detail=what,
        cause=cause_of(workspace),
        workspace=workspace_id,
        user=task.created_by_id if task else workspace.owner_id,
    )


def _subject(what: str, workspace_id: int) -> str:
    return f"{what}:{workspace_id}"
