"""Calls of a model that are not the step's own reply: a summary, a check. Recorded, priced and counted like any other.

Safe to come to again after a crash: a reply that was stored for exactly this request is not asked for again.
"""

from __future__ import annotations

from django.db import connection

from workspaces.actions import model_calls
from workspaces.actions.streams import TextStream
from workspaces.domain.context import estimate_tokens
from workspaces.domain.states import ModelCallPurpose, ModelCallStatus
from workspaces.engine.admission import admitted, wish_of
from workspaces.engine.patience import patiently
from workspaces.engine.provider_calls import provider_of, wait_or_escalate
from workspaces.engine.run import Ended, Run
from workspaces.models import ModelCall, Step
from workspaces.providers.base import ChatRequest, ProviderError
from workspaces.queries.calibration import endpoint
from workspaces.queries.contexts import request_hash
from workspaces.queries.prices import price_book
from workspaces.wire.driving import CallInterrupted


def ask(run: Run, step: Step, request: ChatRequest, *, may_wait: bool = True) -> ModelCall:
    """The replied call of this step for exactly this request, `request.purpose` says what for.

    Raises ProviderError when it failed for good, or at all if the task may not wait for it (it is recorded, and nobody
    is asked: the caller may do without), Ended when the task waits for the provider, CallInterrupted when an order
    came: let that go up to the step.
    """
    purpose = ModelCallPurpose(request.purpose)
    if purpose is ModelCallPurpose.STEP:
        raise ValueError("a step's own reply moves the step on: it is asked for in think")
    digest = request_hash(request)
    known = stored(step, purpose, digest)
    if known is not None:
        return known
    tokens = sum(estimate_tokens(message.content) for message in request.messages)
    wish = wish_of(run, step, request, tokens=tokens)
    call = admitted(
        run,
        wish,
        lambda: model_calls.intend_side(
            run.task.pk,
            run.fence,
            step,
            purpose=purpose,
            wish=wish,
            request_hash=digest,
            tokens=tokens,
            endpoint=endpoint(run.version, request.model),
        ),
    )
    try:
        return _asked(run, step, call, request)
    except ProviderError as error:
        model_calls.store_failure(run.task.pk, run.fence, step, call, error)
        if error.permanent or not may_wait:
            raise
        wait_or_escalate(run, call, error)
        raise Ended from error
    except CallInterrupted as dropped:
        why = run.orders.why()
        if not run.orders.lost:
            model_calls.drop(run.task.pk, run.fence, step, call, why=why, partial=dropped.partial)
        raise


def stored(step: Step, purpose: ModelCallPurpose, digest: str) -> ModelCall | None:
    """The reply that this step has already had for a request, by its hash."""
    if not step.pk:
        return None
    return ModelCall.objects.filter(
        step=step, purpose=purpose.value, request_hash=digest, status=ModelCallStatus.REPLIED.value
    ).first()


def _asked(run: Run, step: Step, call: ModelCall, request: ChatRequest) -> ModelCall:
    provider, prices = provider_of(run.version), price_book()
    connection.close()  # nothing is held while the model thinks
    reply = provider.complete(request, on_text=TextStream(run.task.pk, call.pk), interrupt=run.orders.interrupt)
    priced = prices.priced(run.version, request.model, reply.usage, answered=reply.model)
    patiently(
        lambda: model_calls.store_side_reply(run.task.pk, run.fence, step, call, reply, priced=priced),
        written=lambda: ModelCall.objects.filter(pk=call.pk, status=ModelCallStatus.REPLIED.value).exists(),
    )
    return call
