"""A profile's `detectors`: thresholds, the ladder, whether anything is done at all, and how claims are taken. Pure.

    {same_result: 5, empty_again: 0, ladder: {nudges: 2}, observe_only: false, claims: hold, claims_model: true}

Names that do not stand here are thresholds (thresholds.py); 0 turns one off. What is left out has its default.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any

from workspaces.domain import ladder as ladders
from workspaces.domain import thresholds as limits
from workspaces.domain.ladder import Ladder
from workspaces.domain.thresholds import Thresholds


class Claims(StrEnum):
    OFF = "off"
    RECORD = "record"  # an incident, and nothing is held
    HOLD = "hold"  # an end that claims what was not done goes back to the model once, then to a person


@dataclass(frozen=True, slots=True)
class Detection:
    thresholds: Thresholds
    ladder: Ladder = field(default_factory=Ladder)
    observe_only: bool = False  # incidents are recorded, the agent is left alone
    claims: Claims = Claims.RECORD
    claims_model: bool = False  # what the rules find no claim in, a model is asked about

    def differs(self) -> dict[str, Any]:
        """Only what is not the default, flat, for a page."""
        default = Detection(Thresholds())
        found: dict[str, Any] = {}
        for part, usual in ((self.thresholds, default.thresholds), (self.ladder, default.ladder)):
            for each in fields(part):
                value = getattr(part, each.name)
                if value != getattr(usual, each.name):
                    found[each.name] = value
        for name in ("observe_only", "claims", "claims_model"):
            if getattr(self, name) != getattr(default, name):
                found[name] = getattr(self, name)
        return found


OWN = ("ladder", "observe_only", "claims", "claims_model")


def problems(settings: Any) -> list[str]:
    """What is wrong with a profile's `detectors`, in sentences; an empty list when it can be used."""
    if not isinstance(settings, Mapping):
        return ["The detectors must be one object."]
    found = limits.problems({name: value for name, value in settings.items() if name not in OWN})
    found += ladders.problems(settings.get("ladder", {}))
    for name in ("observe_only", "claims_model"):
        if not isinstance(settings.get(name, False), bool):
            found.append(f"{name} must be true or false.")
    if settings.get("claims", "record") not in {choice.value for choice in Claims}:
        found.append(f"claims must be one of {', '.join(choice.value for choice in Claims)}.")
    return found


def detection_of(settings: Mapping[str, Any]) -> Detection:
    """Raises ValueError with every problem."""
    if wrong := problems(settings):
        raise ValueError(" ".join(wrong))
    return Detection(
        thresholds=limits.thresholds_of({name: value for name, value in settings.items() if name not in OWN}),
        ladder=Ladder(**settings.get("ladder", {})),
        observe_only=settings.get("observe_only", False),
        claims=Claims(settings.get("claims", Claims.RECORD.value)),
        claims_model=settings.get("claims_model", False),
    )
