"""What is known of a model's counting and of its provider's real window. Bounded: the newest calls, few rows."""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import F, Min
from django.db.models.functions import Coalesce

from workspaces.domain.incidents import IncidentState
from workspaces.domain.states import ModelCallStatus
from workspaces.domain.tokens import SAMPLES, UNKNOWN, Calibration, calibrate, endpoint_of
from workspaces.models import LearnedWindow, ModelCall, ProfileVersion

COUNTED = F("input_tokens") + Coalesce(F("cached_input_tokens"), 0) + Coalesce(F("cache_write_tokens"), 0)


@dataclass(frozen=True, slots=True)
class Limits:
    """What a request has to keep to. A step's manifest stores it, so that the request stays what it was."""

    window_tokens: int  # of the profile
    calibration: Calibration = UNKNOWN
    learned_tokens: int | None = None  # the provider holds less than the profile says

    @classmethod
    def of(cls, version: ProfileVersion) -> Limits:
        """As they are now. Two queries."""
        return cls(version.context_window_tokens, calibration_of(version), learned_window(version))


def endpoint(version: ProfileVersion) -> str:
    return endpoint_of(version.provider, version.base_url, version.pk)


def calibration_of(version: ProfileVersion) -> Calibration:
    """From the newest calls of the model at its endpoint, in any task; those whose prompt was cut say nothing."""
    pairs = (
        ModelCall.objects.filter(
            endpoint=endpoint(version),
            model=version.model,
            status=ModelCallStatus.REPLIED.value,
            input_tokens__isnull=False,
            estimated_tokens__isnull=False,
            prompt_truncated=False,
        )
        .order_by("-pk")
        .values_list("estimated_tokens", COUNTED)[:SAMPLES]
    )
    return calibrate(list(pairs))


def learned_window(version: ProfileVersion) -> int | None:
    """The smallest that an incident has shown and nobody has resolved."""
    found = LearnedWindow.objects.filter(profile_version=version, model=version.model).exclude(
        incident__state=IncidentState.RESOLVED.value
    )
    return found.aggregate(least=Min("tokens"))["least"]
