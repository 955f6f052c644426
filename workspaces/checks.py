"""Checks of the configuration: what is wrong, by an id, and what to do. Never talks to a server."""

from __future__ import annotations

import os
import stat
from typing import Any

from cryptography.fernet import Fernet
from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, Warning, register

from agentdesk import environment
from workspaces.domain.mail import sender_problem

SECRET_KEY_MIN = 50


@register(Tags.security)
def keys(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    if settings.KEYS_PROBLEM:
        return []  # said by the check of the home
    found: list[CheckMessage] = []
    if len(settings.SECRET_KEY) < SECRET_KEY_MIN:
        found.append(
            Error(
                f"The secret key has {len(settings.SECRET_KEY)} characters.",
                hint=f"Give AGENTDESK_SECRET_KEY {SECRET_KEY_MIN} or more random ones, or unset it: "
                "one is then made and kept in AGENTDESK_HOME.",
                id="workspaces.E001",
            )
        )
    if not _all_fernet(settings.FIELD_ENCRYPTION_KEYS):
        found.append(
            Error(
                "A key for secrets at rest is not a Fernet key.",
                hint="AGENTDESK_FIELD_KEYS holds 32 bytes each in URL-safe base64, separated by commas.",
                id="workspaces.E003",
            )
        )
    return found


@register(Tags.files)
def home(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    place = settings.AGENTDESK_HOME
    nearest = next(folder for folder in (place, *place.parents) if folder.exists())
    why = settings.KEYS_PROBLEM or ("" if os.access(nearest, os.W_OK | os.X_OK) else "permission denied")
    if why:
        return [
            Error(
                f"AGENTDESK_HOME ({place}) cannot be written: {why}.",
                hint="Point AGENTDESK_HOME at a folder that this user owns.",
                id="workspaces.E002",
            )
        ]
    if (place / environment.RESTORING).exists():
        return [
            Error(
                f"A restore into {place} was cut short, and what is there is not whole.",
                hint="Remove that folder (and empty the database that DATABASE_URL names), then restore again.",
                id="workspaces.E006",
            )
        ]
    kept = place / "keys"
    open_keys = [key.name for key in kept.iterdir() if _others_may_read(key)] if kept.is_dir() else []
    if open_keys:
        return [
            Warning(
                f"Others on this machine may read {', '.join(open_keys)} in {kept}.",
                hint=f"chmod 600 {kept}/*",
                id="workspaces.W002",
            )
        ]
    return []


@register(Tags.security, deploy=True)
def sandboxes(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    if settings.SANDBOX_DRIVER == "local" and not settings.DEBUG:
        return [
            Warning(
                "The local sandbox driver isolates nothing: an agent's commands run as this very user.",
                hint="Set AGENTDESK_SANDBOX_DRIVER=docker.",
                id="workspaces.W001",
            )
        ]
    return []


@register()
def limits(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    found: list[CheckMessage] = []
    if settings.UPLOAD_MAX_EXPANDED_BYTES < settings.UPLOAD_MAX_BYTES:
        found.append(
            Error(
                "An archive may be larger than what may be unpacked from it.",
                hint="AGENTDESK_UPLOAD_MAX_EXPANDED_MB must not be below AGENTDESK_UPLOAD_MAX_MB.",
                id="workspaces.E004",
            )
        )
    refused = set(settings.GIT_ALLOWED_SCHEMES) - {"https", "http", "ssh", "git"}
    if refused:
        found.append(
            Error(
                f"Git may not clone by {', '.join(sorted(refused))}: that reads this machine's own files.",
                hint="AGENTDESK_GIT_SCHEMES takes https, http, ssh and git.",
                id="workspaces.E005",
            )
        )
    return found


@register()
def email(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    if not settings.EMAIL_HOST:
        return []
    found: list[CheckMessage] = []
    if problem := sender_problem(settings.EMAIL_FROM):
        found.append(
            Error(
                f"A mail server is named, but nobody that mail comes from: {problem}.",
                hint="Set AGENTDESK_EMAIL_FROM to an address that the server sends for, "
                "as `agentdesk@example.com` or `agentdesk <agentdesk@example.com>`.",
                id="workspaces.E007",
            )
        )
    if bool(settings.EMAIL_HOST_USER) != bool(settings.EMAIL_HOST_PASSWORD):
        found.append(
            Error(
                "A name for the mail server without its password, or a password without a name.",
                hint="Set AGENTDESK_EMAIL_USER and AGENTDESK_EMAIL_PASSWORD, or neither.",
                id="workspaces.E008",
            )
        )
    if settings.EMAIL_HOST_PASSWORD and settings.EMAIL_SECURITY == "none":
        found.append(
            Warning(
                "The mail server's password and the links in every mail are sent without encryption.",
                hint="Set AGENTDESK_EMAIL_SECURITY to starttls or tls.",
                id="workspaces.W003",
            )
        )
    return found


def _all_fernet(keys: list[str]) -> bool:
    try:
        return bool(keys) and all(Fernet(key) for key in keys)
    except ValueError:
        return False


def _others_may_read(path: Any) -> bool:
    return bool(stat.S_IMODE(path.stat().st_mode) & 0o077)
