"""How a worker asks for leave to make a model call, and what follows when there is none: the task waits.

Or another profile's model answers, where the task's profile says so: it is asked for as any other call, from its own
pool, and only where the request fits it. There is no fallback of a fallback.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from workspaces.actions import model_calls
from workspaces.actions.admission import NotAdmitted
from workspaces.actions.quotas import pool_of
from workspaces.actions.wishes import Wish
from workspaces.domain.quotas import Use
from workspaces.engine.run import Ended, Run
from workspaces.models import ModelCall, ProfileVersion, Step
from workspaces.providers.base import ChatRequest
from workspaces.queries.quota_outlook import fallback_now
from workspaces.queries.tuning import answering

ASKED_AGAIN = 3


@dataclass(frozen=True, slots=True)
class Asking:
    """A request, whose model is to answer it, and how its intent is written down."""

    request: ChatRequest
    wish: Wish
    intend: Callable[[Wish], ModelCall]

    @property
    def version(self) -> ProfileVersion:
        return self.wish.version


def wish_of(run: Run, step: Step, request: ChatRequest, *, tokens: int, version: ProfileVersion) -> Wish:
    """What the request would take. `tokens`: of its prompt, as its provider is expected to count."""
    failed = bool(step.pk) and ModelCall.objects.filter(step=step, purpose=request.purpose, status="failed").exists()
    return Wish(version, request.model, tokens, request.max_output_tokens, retry=failed)


def admitted(run: Run, asking: Asking, instead: Callable[[ProfileVersion], Asking | None]) -> tuple[Asking, ModelCall]:
    """The call, its intent written down and all that it may take set aside, and what it is that is asked.

    `instead`: the same for a fallback's version; None where the request does not fit it. Raises Ended when the task
    waits.
    """
    for _ in range(ASKED_AGAIN):
        try:
            return asking, asking.intend(asking.wish)
        except NotAdmitted:
            answered = _by_fallback(run, asking, instead)
            if answered is not None:
                return answered
            if model_calls.wait_for_room(run.task.pk, run.fence, asking.wish):
                raise Ended from None
    raise Ended  # room came and went: the task is still due, and asks again


def _by_fallback(
    run: Run, asking: Asking, instead: Callable[[ProfileVersion], Asking | None]
) -> tuple[Asking, ModelCall] | None:
    wish = asking.wish
    pool = pool_of(wish.version, wish.model)
    found = fallback_now(run.task.profile_version, pool, run.task.pk, Use(1, wish.input_tokens, wish.output_tokens))
    if found is None:
        return None
    version, why = found
    other = instead(answering(run.version, version))
    if other is None:
        return None
    try:
        return other, other.intend(replace(other.wish, retry=False, instead_of=pool, why_instead=why))
    except NotAdmitted:
        return None
