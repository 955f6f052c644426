"""What is asked of admission, and its answer: see admission.py."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from workspaces.domain.states import WaitingFor
from workspaces.models import ProfileVersion


@dataclass(frozen=True, slots=True)
class Wish:
    """What one model call would take: the prompt as it is estimated, the output at its limit."""

    version: ProfileVersion  # that would answer
    model: str
    input_tokens: int
    output_tokens: int
    retry: bool = False  # after a failure of the same call
    instead_of: int | None = None  # the pool whose place a fallback takes
    why_instead: str = ""


@dataclass(frozen=True, slots=True)
class Waits:
    """For what the task waits, in words, and when it is looked at again at the latest."""

    what: WaitingFor
    reason: str
    until: datetime
