"""Parts of a terminal as template contexts, for the view and the socket alike."""

from __future__ import annotations

from typing import Any

from workspaces.models import Workspace
from workspaces.queries.terminal import refusal


def state_context(workspace: Workspace) -> dict[str, Any]:
    """Who has the disk, and why no command is taken, if none is."""
    return {"workspace": workspace, "trouble": refusal(workspace, workspace.held_by)}
