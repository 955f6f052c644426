"""What every call of a model shares: its provider, and what follows when the call fails. Stores no reply."""

from __future__ import annotations

import random

from cryptography.fernet import InvalidToken

from workspaces.actions import steps
from workspaces.domain.states import EscalationKind, WaitingFor
from workspaces.engine import storms
from workspaces.engine.run import Run
from workspaces.models import ModelCall, ProfileVersion
from workspaces.providers import make_provider
from workspaces.providers.base import Provider, ProviderConfig, ProviderError

PASSING_ATTEMPTS = 8  # about ten minutes of backing off before a person is asked
BACKOFF_FIRST_S, BACKOFF_MOST_S = 1.0, 300.0


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


def backoff_s(attempt: int, asked_for_s: float | None) -> float:
    """Seconds to wait after the `attempt`-th (1, 2, …) passing failure: full jitter, never before Retry-After."""
    most = min(BACKOFF_MOST_S, BACKOFF_FIRST_S * 2 ** (attempt - 1))
    jittered = random.uniform(most / 2, most)  # noqa: S311 - spreads load, guards nothing
    return max(jittered, asked_for_s or 0.0)


def wait_or_escalate(run: Run, call: ModelCall, error: ProviderError) -> None:
    """What fails for a while waits, with more patience each time; what fails for good asks a person."""
    storms.look(run, call, error.kind)
    if error.permanent or call.attempt % PASSING_ATTEMPTS == 0:
        again = "" if error.permanent else f" ({call.attempt} attempts)"
        steps.escalate(run.task.pk, run.fence, EscalationKind.PROVIDER, f"The model call failed{again}: {error}")
        return
    quota = error.kind in ("rate_limit", "overloaded")
    steps.wait_until(
        run.task.pk,
        run.fence,
        WaitingFor.QUOTA if quota else WaitingFor.TIMER,
        f"attempt {call.attempt} failed, the next follows: {error}",
        backoff_s(call.attempt, error.retry_after_s),
    )
