"""Brings a task's attachments into its workspace before step 1: files, an archive, a git repository.

`task.intake`: {"files": [{"name", "path"}], "archive": {"name", "path"}, "git_url": str}; `path` is a file under
AGENTDESK_HOME/uploads. Either everything comes in, or a person is asked and the disk is as it was.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from django.conf import settings
from django.db import connection

from workspaces.actions import steps
from workspaces.engine.disk import Disk
from workspaces.engine.run import Ended, Run
from workspaces.tools.intake import archives, git, uploads
from workspaces.tools.intake.base import IntakeError, IntakeInterrupted, IntakeLimits, IntakeReport


def limits() -> IntakeLimits:
    """The site's limits on attachments."""
    return IntakeLimits(
        file_bytes=settings.UPLOAD_MAX_BYTES,
        total_bytes=settings.UPLOAD_MAX_EXPANDED_BYTES,
        files=settings.UPLOAD_MAX_FILES,
        ratio=settings.UPLOAD_MAX_RATIO,
        git_timeout_s=settings.GIT_CLONE_TIMEOUT_S,
    )


def bring_in(run: Run, disk: Disk) -> None:
    """Does nothing when there is nothing to bring in, or it is in already. Raises Ended when a person is asked."""
    if run.task.intake_done:
        return
    before, _ = disk.saved()
    steps.intake_begins(run.task.pk, run.fence, before)
    disk.changed()
    connection.close()  # nothing is held while files are copied
    try:
        reports = list(_deliver(run, disk))
    except IntakeInterrupted:
        disk.restore(before, why="the attachments were interrupted")
        run.obey(disk)
        raise Ended from None
    except IntakeError as refused:
        disk.restore(before, why="the attachments were refused")
        steps.intake_failed(run.task.pk, run.fence, message=str(refused))
        raise Ended from refused
    steps.intake_done(run.task.pk, run.fence, [report.as_json() for report in reports])


def _deliver(run: Run, disk: Disk) -> Iterator[IntakeReport]:
    intake, sandbox, interrupt = run.task.intake, disk.sandbox, run.orders.interrupt
    if intake.get("git_url"):
        yield git.clone(
            _allowed(intake["git_url"]),
            sandbox,
            limits=limits(),
            allow_http="http" in settings.GIT_ALLOWED_SCHEMES,
            allow_private=_host(intake["git_url"]) in settings.GIT_ALLOWED_HOSTS,
            interrupt=interrupt,
        )
    if intake.get("archive"):
        archive = intake["archive"]
        yield archives.unpack(
            _uploaded(archive["path"]), archive["name"], sandbox, limits=limits(), interrupt=interrupt
        )
    if intake.get("files"):
        with ExitStack() as opened:
            files = [
                (file["name"], opened.enter_context(_uploaded(file["path"]).open("rb"))) for file in intake["files"]
            ]
            yield uploads.place(files, sandbox, limits=limits(), interrupt=interrupt)


def _allowed(url: str) -> str:
    host = _host(url)
    if settings.GIT_ALLOWED_HOSTS and host not in settings.GIT_ALLOWED_HOSTS:
        raise IntakeError(f"This site clones from {', '.join(settings.GIT_ALLOWED_HOSTS)} only, not from {host}.")
    return url


def _host(url: str) -> str:
    return git.check_url(url, allow_http="http" in settings.GIT_ALLOWED_SCHEMES).host


def _uploaded(path: str) -> Path:
    """The upload's file; never one outside the uploads folder. Raises IntakeError when it is gone."""
    root = Path(settings.MEDIA_ROOT).resolve()
    found = (root / path).resolve()
    if not found.is_relative_to(root) or not found.is_file():
        raise IntakeError("An attached file is no longer there. Create the task again with its attachments.")
    return found
