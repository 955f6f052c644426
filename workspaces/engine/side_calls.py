"""Calls of a model that are not the step's own reply: a summary, a check. Recorded, priced and counted like any other.

Safe to come to again after a crash: a reply that was stored for exactly this request is not asked for again.
"""

from __future__ import annotations

from dataclasses import replace

from django.db import connection

from workspaces.actions import model_calls
from workspaces.actions.streams import TextStream
from workspaces.actions.wishes import Wish
from workspaces.domain.context import estimate_tokens
from workspaces.domain.states import ModelCallPurpose, ModelCallStatus
from workspaces.engine.admission import Asking, admitted, wish_of
from workspaces.engine.patience import patiently
from workspaces.engine.provider_calls import after_failure, provider_of
from workspaces.engine.run import Ended, Run
from workspaces.models import ModelCall, ProfileVersion, Step
from workspaces.providers.base import ChatRequest, ProviderError
from workspaces.queries.calibration import calibration_of, endpoint
from workspaces.queries.contexts import request_hash
from workspaces.queries.prices import price_book
from workspaces.wire.driving import CallInterrupted


def ask(run: Run, step: Step, request: ChatRequest, *, may_wait: bool = True) -> ModelCall:
    """The replied call of this step for exactly this request, `request.purpose` says what for.

    Raises ProviderError when it failed for good, or at all if the task may not wait for it (it is recorded, and nobody
    is asked: the caller may do without), NotAdmitted when it may not wait and there is no room, Ended when the task
    waits for the provider, CallInterrupted when an order came: let that go up to the step.
    """
    purpose = ModelCallPurpose(request.purpose)
    if purpose is ModelCallPurpose.STEP:
        raise ValueError("a step's own reply moves the step on: it is asked for in think")
    known = stored(step, purpose, request)
    if known is not None:
        return known

    def instead(version: ProfileVersion) -> Asking | None:
        other = replace(request, model=version.model)
        return _asking(run, step, other, version) if _fits(other, version) else None

    asked = _asking(run, step, request, run.version)
    if may_wait:
        asked, call = admitted(run, asked, instead)
    else:
        call = asked.intend(asked.wish)
    try:
        return _asked(run, step, call, asked)
    except ProviderError as error:
        model_calls.store_failure(run.task.pk, run.fence, step, call, error)
        if error.permanent or not may_wait:
            raise
        after_failure(run, call, error)
        raise Ended from error
    except CallInterrupted as dropped:
        why = run.orders.why()
        if not run.orders.lost:
            model_calls.drop(run.task.pk, run.fence, step, call, why=why, partial=dropped.partial)
        raise


def _asking(run: Run, step: Step, request: ChatRequest, version: ProfileVersion) -> Asking:
    tokens = _estimated(request)
    expected = calibration_of(version, request.model).tokens(tokens)

    def intend(wish: Wish) -> ModelCall:
        return model_calls.intend_side(
            run.task.pk,
            run.fence,
            step,
            purpose=ModelCallPurpose(request.purpose),
            wish=wish,
            request_hash=request_hash(request),
            tokens=tokens,
            endpoint=endpoint(version, request.model),
        )

    return Asking(request, wish_of(run, step, request, tokens=expected, version=version), intend)


def _estimated(request: ChatRequest) -> int:
    return sum(estimate_tokens(message.content) for message in request.messages)


def _fits(request: ChatRequest, version: ProfileVersion) -> bool:
    expected = calibration_of(version, request.model).tokens(_estimated(request))
    return expected + request.max_output_tokens <= version.context_window_tokens


def stored(step: Step, purpose: ModelCallPurpose, request: ChatRequest) -> ModelCall | None:
    """The reply that this step has already had for a request: of its model, or of a fallback's."""
    if not step.pk:
        return None
    replied = ModelCall.objects.filter(step=step, purpose=purpose.value, status=ModelCallStatus.REPLIED.value)
    return next(
        (call for call in replied if call.request_hash == request_hash(replace(request, model=call.model))), None
    )


def _asked(run: Run, step: Step, call: ModelCall, asked: Asking) -> ModelCall:
    request, provider, prices = asked.request, provider_of(asked.version), price_book()
    connection.close()  # nothing is held while the model thinks
    reply = provider.complete(request, on_text=TextStream(run.task.pk, call.pk), interrupt=run.orders.interrupt)
    priced = prices.priced(asked.version, request.model, reply.usage, answered=reply.model)
    patiently(
        lambda: model_calls.store_side_reply(run.task.pk, run.fence, step, call, reply, priced=priced),
        written=lambda: ModelCall.objects.filter(pk=call.pk, status=ModelCallStatus.REPLIED.value).exists(),
    )
    return call
