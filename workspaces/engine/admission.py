"""How a worker asks for leave to make a model call, and what follows when there is none: the task waits."""

from __future__ import annotations

from collections.abc import Callable

from workspaces.actions import model_calls
from workspaces.actions.admission import NotAdmitted
from workspaces.actions.wishes import Wish
from workspaces.engine.run import Ended, Run
from workspaces.models import ModelCall, Step
from workspaces.providers.base import ChatRequest

ASKED_AGAIN = 3


def wish_of(run: Run, step: Step, request: ChatRequest, *, tokens: int) -> Wish:
    """What the request would take. `tokens`: of its prompt, estimated."""
    failed = bool(step.pk) and ModelCall.objects.filter(step=step, purpose=request.purpose, status="failed").exists()
    return Wish(run.version, request.model, tokens, request.max_output_tokens, retry=failed)


def admitted(run: Run, wish: Wish, intend: Callable[[], ModelCall]) -> ModelCall:
    """The call, its intent written down and all that it may take set aside. Raises Ended when the task waits."""
    for _ in range(ASKED_AGAIN):
        try:
            return intend()
        except NotAdmitted:
            if model_calls.wait_for_room(run.task.pk, run.fence, wish):
                raise Ended from None
    raise Ended  # room came and went: the task is still due, and asks again
