"""A workspace that no task holds is put to rest: its container is removed, its disk stays."""

from __future__ import annotations

import logging

from workspaces.actions.workspaces import while_free
from workspaces.engine.boxes import sandbox_for
from workspaces.sandboxes.base import SandboxError

logger = logging.getLogger(__name__)


def rest(workspace_id: int) -> None:
    with while_free(workspace_id) as workspace:
        if workspace is not None:
            try:
                sandbox_for(workspace).stop()
            except SandboxError as error:
                logger.warning("workspace %s was not put to rest: %s", workspace_id, error)
