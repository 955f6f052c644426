"""Brings a task's attachments into its workspace before step 1: files, an archive, a git repository.

`task.intake`: {"files": [{"name", "path"}], "archive": {"name", "path"}, "git_url": str}; `path` is a file under
AGENTDESK_HOME/uploads. Either everything comes in, or a person is asked and the disk is as it was.
"""

from __future__ import annotations

from workspaces.engine.disk import Disk
from workspaces.engine.run import Run


def bring_in(run: Run, disk: Disk) -> None:
    """Does nothing when there is nothing to bring in, or it is in already. Raises Ended when a person is asked."""
    if run.task.intake_done:
        return
