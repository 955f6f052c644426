"""What every call of a model shares: its provider, and what follows when the call fails. Stores no reply."""

from __future__ import annotations

from cryptography.fernet import InvalidToken

from workspaces.actions import steps
from workspaces.domain.states import EscalationKind
from workspaces.engine import storms
from workspaces.engine.run import Run
from workspaces.models import ModelCall, ProfileVersion
from workspaces.providers import make_provider
from workspaces.providers.base import Provider, ProviderConfig, ProviderError

PASSING_ATTEMPTS = 8  # of one call, then a person is asked


def provider_of(version: ProfileVersion) -> Provider:
    """The provider of a profile version, with its key opened. Raises ProviderError when that cannot be."""
    try:
        key = version.key.open() if version.key else ""
        options = version.opened_options()
    except InvalidToken as error:
        raise ProviderError(
            "the stored key cannot be opened: the site's encryption key has changed. Save a new version with the key",
            kind="auth",
            permanent=True,
        ) from error
    config = ProviderConfig(
        base_url=version.base_url,
        api_key=key,
        timeout_s=version.model_timeout_s,
        options=options,
    )
    try:
        return make_provider(version.provider, config)
    except ValueError as error:  # a scenario that is none
        raise ProviderError(str(error), kind="bad_request", permanent=True) from error


def after_failure(run: Run, call: ModelCall, error: ProviderError) -> None:
    """What fails for good, or again and again, asks a person. Else the task is still due: it asks its pool for leave
    to try again, and the pool says when (actions/quotas.py). No task waits by a clock of its own.
    """
    storms.look(run, call, error.kind)
    if error.permanent or call.attempt % PASSING_ATTEMPTS == 0:
        again = "" if error.permanent else f" ({call.attempt} attempts)"
        steps.escalate(run.task.pk, run.fence, EscalationKind.PROVIDER, f"The model call failed{again}: {error}")
