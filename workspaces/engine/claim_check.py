"""The model-based check of an end's claims: one side call, recorded and priced. Its failure never holds the task up."""

from __future__ import annotations

import logging

from workspaces.actions.admission import NotAdmitted
from workspaces.domain import claim_check
from workspaces.domain.incidents import Finding
from workspaces.domain.states import ModelCallPurpose
from workspaces.engine import side_calls
from workspaces.engine.run import Run
from workspaces.models import Step
from workspaces.providers.base import ChatMessage, ChatRequest, ProviderError
from workspaces.queries.trails import calls_on_line

logger = logging.getLogger(__name__)


def unsupported(run: Run, step: Step, text: str, *, seq: int, model_call: int | None) -> list[Finding]:
    """What a model finds unsupported in `text`. An empty list as well when it cannot be asked or answers nonsense.

    Raises CallInterrupted when an order came: the end waits for it, and is checked when the task goes on.
    """
    request = ChatRequest(
        model=run.version.model,
        messages=(
            ChatMessage("system", claim_check.INSTRUCTION),
            ChatMessage("user", claim_check.question(text, calls_on_line(run.branch))),
        ),
        max_output_tokens=claim_check.MAX_OUTPUT_TOKENS,
        purpose=ModelCallPurpose.CLAIM_CHECK.value,
    )
    try:
        call = side_calls.ask(run, step, request, may_wait=False)
        said = claim_check.read_answer(call.text, text)
    except (ProviderError, NotAdmitted, ValueError) as error:  # each recorded; the rules have looked already
        logger.info(
            "task %s: its claims were not checked by a model: %s", run.task.pk, str(error) or "there was no room"
        )
        return []
    return claim_check.findings(said, seq=seq, step=step.number, model_call=model_call, checked_by=call.pk)
