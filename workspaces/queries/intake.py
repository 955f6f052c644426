"""What can be said of an attachment before the engine brings it in. Reads little, unpacks nothing."""

from __future__ import annotations

from pathlib import Path

from django.conf import settings

from workspaces.tools.intake.archives import form_of
from workspaces.tools.intake.base import IntakeError, shown
from workspaces.tools.intake.git import check_url


def git_problem(url: str) -> str:
    """Why this address cannot be cloned from, or an empty string. The network is not asked."""
    try:
        host = check_url(url, allow_http="http" in settings.GIT_ALLOWED_SCHEMES).host
    except IntakeError as error:
        return str(error)
    if settings.GIT_ALLOWED_HOSTS and host not in settings.GIT_ALLOWED_HOSTS:
        return f"This site clones only from {', '.join(settings.GIT_ALLOWED_HOSTS)}."
    return ""


def archive_problem(path: Path, name: str) -> str:
    """Why this file is no archive, or an empty string. Its entries are judged when it is brought in."""
    with path.open("rb") as file:
        if form_of(file) is None:
            return f"{shown(name)} is not a zip or tar archive. Attach it as a plain file."
    return ""
