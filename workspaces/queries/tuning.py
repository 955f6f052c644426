"""What a task asks its model with: its profile version, and over it what a person has set for this task alone.

The profile version itself never changes. What comes out is a copy that is never saved; a step's manifest keeps what
it was made with, so that a past request can be made again whatever was changed since.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from genai_prices.data_snapshot import get_snapshot

from workspaces.models import ProfileVersion, Task


def asked_with(task: Task) -> ProfileVersion:
    """The version itself where the task has nothing of its own."""
    return tuned(task.profile_version, model=task.model_override, max_output_tokens=task.max_output_tokens_override)


def tuned(
    version: ProfileVersion, *, model: str = "", max_output_tokens: int | None = None, window_tokens: int | None = None
) -> ProfileVersion:
    """A copy with another model or output limit. `window_tokens` None: what is known of the other model.

    The profile's own prices are of its own model: another one is priced by the list.
    """
    if not model and max_output_tokens is None:
        return version
    made = copy.copy(version)
    made.tuned = True
    if max_output_tokens is not None:
        made.max_output_tokens = max_output_tokens
    if model and model != version.model:
        made.model = model
        made.input_usd_per_mtok = made.output_usd_per_mtok = None
        made.context_window_tokens = window_tokens or listed_window(model) or version.context_window_tokens
    return made


def answering(own: ProfileVersion, fallback: ProfileVersion) -> ProfileVersion:
    """A copy of a fallback's version that speaks for the task: its model, key, limits and prices are the fallback's,
    what the model is told and how it is asked are the task's own. It has no fallback itself.
    """
    made = copy.copy(fallback)
    made.tuned = True
    made.fallback = {}
    made.system_prompt, made.temperature, made.context_policy = own.system_prompt, own.temperature, own.context_policy
    return made


def as_sent(version: ProfileVersion, manifest: Mapping[str, Any]) -> ProfileVersion:
    """What the step of a manifest was asked with."""
    asked = manifest.get("asked_with")
    return tuned(version, **asked) if asked else version


def manifest_of(version: ProfileVersion) -> dict[str, Any] | None:
    """What a manifest keeps of a tuned version."""
    if not version.tuned:
        return None
    return {
        "model": version.model,
        "max_output_tokens": version.max_output_tokens,
        "window_tokens": version.context_window_tokens,
    }


@lru_cache(maxsize=256)
def listed_window(model: str) -> int | None:
    """The context window of a model, in tokens, as the maintained price list has it."""
    try:
        _, found = get_snapshot().find_provider_model(model, None, None, None)
    except LookupError:
        return None
    return found.context_window
