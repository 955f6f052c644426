"""Model calls: the intent before the request, the reply or its failure after. Usage is booked with the reply."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy

from workspaces.domain.budgets import ZERO
from workspaces.domain.context import Manifest
from workspaces.domain.events import EXCERPT_CHARS, EventKind
from workspaces.domain.prices import PricedUnit, total
from workspaces.domain.states import ModelCallPurpose, ModelCallStatus, StepPhase
from workspaces.domain.text import clean_json, clean_text, clip
from workspaces.models import ContextFrame, Message, ModelCall, Step
from workspaces.providers.base import ChatReply, ProviderError
from workspaces.queries.contexts import Frame

from . import admission
from .admission import NotAdmitted, Wish
from .pen import Pen, writing
from .usage import book, of_call

# what a provider may have worked on, and bill, although no reply was read
MAYBE_BILLED = ("timeout", "malformed")


def intend(
    task_id: int, fence: int, step: Step, *, wish: Wish, manifest: Manifest, frame: Frame, endpoint: str = ""
) -> ModelCall:
    """Write down what will be sent, before it is; a new step begins here. What a dead worker left is dropped.

    Raises NotAdmitted, and writes nothing, when quota or budget has no room for it.
    """
    with _as_it_was(step), writing(task_id, fence=fence) as pen:
        is_new = begin_step(pen, step)
        _keep_frame(frame)
        if step.manifest.get("request_hash") != manifest.request_hash:
            step.manifest = manifest.as_json()
            pen.event(
                EventKind.CONTEXT_BUILT,
                step=step.number,
                messages=manifest.messages,
                tokens=manifest.prompt_tokens,
                window_tokens=manifest.window_tokens,
                ranges=[list(span) for span in manifest.ranges],
                as_of_seq=manifest.as_of_seq,
                request_hash=manifest.request_hash,
            )
        step.save()
        return _intent(
            pen,
            step,
            ModelCallPurpose.STEP,
            wish,
            request_hash=manifest.request_hash,
            tokens=manifest.prompt_tokens,
            endpoint=endpoint,
            is_new=is_new,
        )


def intend_side(
    task_id: int,
    fence: int,
    step: Step,
    *,
    purpose: ModelCallPurpose,
    wish: Wish,
    request_hash: str,
    tokens: int,
    endpoint: str = "",
) -> ModelCall:
    """The same for a call that is not the step's own reply. It may be what a step begins with."""
    with _as_it_was(step), writing(task_id, fence=fence) as pen:
        is_new = begin_step(pen, step)
        step.save()
        return _intent(
            pen, step, purpose, wish, request_hash=request_hash, tokens=tokens, endpoint=endpoint, is_new=is_new
        )


@contextmanager
def _as_it_was(step: Step) -> Iterator[None]:
    """A step in hand forgets what a transaction wrote that was rolled back because there was no room."""
    before, state = dict(step.__dict__), copy(step._state)
    try:
        yield
    except NotAdmitted:
        step.__dict__.clear()
        step.__dict__.update(before, _state=state)
        raise


def wait_for_room(task_id: int, fence: int, wish: Wish) -> bool:
    """Put the task into the queue, waiting. False: there is room after all, ask again.

    What a dead worker left is dropped first: nobody else would give back what it holds. That may be the room, and it
    ends the transaction: the pool was locked last in it, so no budget may be any more.
    """
    with writing(task_id, fence=fence) as pen:
        return False if drop_unfinished(pen, why="its worker ended") else admission.wait(pen, wish)


def _keep_frame(frame: Frame) -> None:
    """Once for all steps that are framed alike."""
    if not ContextFrame.objects.filter(pk=frame.hash).exists():
        row = ContextFrame(hash=frame.hash, rules=frame.rules, tools=frame.tools_json())
        ContextFrame.objects.bulk_create([row], ignore_conflicts=True)


def begin_step(pen: Pen, step: Step) -> bool:
    """Its first event; or the end of what a dead worker left of it. The caller saves it. Whether it is new."""
    if step.pk:
        drop_unfinished(pen, why="its worker ended")
        return False
    step.started_at = pen.now
    pen.event(EventKind.STEP_STARTED, step=step.number)
    return True


def _intent(
    pen: Pen,
    step: Step,
    purpose: ModelCallPurpose,
    wish: Wish,
    *,
    request_hash: str,
    tokens: int,
    endpoint: str,
    is_new: bool,
) -> ModelCall:
    earlier = 0 if is_new else ModelCall.objects.filter(step=step, purpose=purpose.value).count()
    held = admission.reservation(pen, wish)
    call = ModelCall.objects.create(
        task=pen.task,
        step=step,
        purpose=purpose.value,
        attempt=earlier + 1,
        model=wish.model,
        request_hash=request_hash,
        endpoint=endpoint,
        estimated_tokens=tokens,
        pool_id=held.pool_id,
        reserved_input_tokens=wish.input_tokens,
        reserved_output_tokens=wish.output_tokens,
        reserved_usd=held.need.held.usd,
        held_tokens=held.need.held.tokens,
        held_in=list(held.account_ids),
        version_id=wish.version.pk if wish.instead_of is not None else None,
        started_at=pen.now,
    )
    pen.event(
        EventKind.MODEL_CALLED,
        step=step.number,
        model_call=call.pk,
        model=wish.model,
        attempt=call.attempt,
        tokens=tokens,
        **_purpose(call),
        **({"fallback": str(wish.version), "why": wish.why_instead} if wish.instead_of is not None else {}),
    )
    admission.admit(pen, call, wish, held)
    return call


def _purpose(call: ModelCall) -> dict[str, str]:
    """Named only where it is not the step's own reply."""
    return {} if call.purpose == ModelCallPurpose.STEP.value else {"purpose": call.purpose}


def store_reply(
    task_id: int,
    fence: int,
    step: Step,
    call: ModelCall,
    reply: ChatReply,
    *,
    read_calls: Sequence[dict[str, str]],
    priced: Sequence[PricedUnit],
) -> None:
    """The reply, its usage and the assistant's message, at once: a stored reply is never asked for again.

    `read_calls` are the calls as they were read (domain/replies.py), also those found in the text: the
    message holds them, so that each result has a call to stand behind.
    """
    with writing(task_id, fence=fence) as pen:
        seq = _replied(pen, step, call, reply, priced)
        pen.message(Message.Role.ASSISTANT.value, call.text, seq=seq, calls=list(read_calls))
        step.phase = StepPhase.REPLIED.value
        pen.change(step, "phase")


def store_side_reply(
    task_id: int, fence: int, step: Step, call: ModelCall, reply: ChatReply, *, priced: Sequence[PricedUnit]
) -> None:
    """The reply and its usage. It is no part of the conversation and moves no step on."""
    with writing(task_id, fence=fence) as pen:
        _replied(pen, step, call, reply, priced)


def _replied(pen: Pen, step: Step, call: ModelCall, reply: ChatReply, priced: Sequence[PricedUnit]) -> int:
    """The call with what came of it, its usage and its event, whose seq is returned."""
    calls = clean_json([{"call_id": c.call_id, "name": c.name, "arguments": c.arguments} for c in reply.tool_calls])
    cost = total(priced) if priced else None
    usage = reply.usage
    call.status = ModelCallStatus.REPLIED.value
    call.text = clean_text(reply.text)
    call.calls = calls
    call.finish_reason = reply.finish_reason
    call.cost_usd = cost
    call.first_token_s = reply.first_token_s
    call.finished_at = pen.now
    if usage is not None:
        call.input_tokens = usage.input_tokens
        call.output_tokens = usage.output_tokens
        call.cached_input_tokens = usage.cached_input_tokens
        call.cache_write_tokens = usage.cache_write_tokens
        call.reasoning_tokens = usage.reasoning_tokens
    call.save()
    task = pen.task
    book(of_call(task, call, priced, at=pen.now))
    pen.set(
        prompt_tokens=task.prompt_tokens + (usage.prompt_tokens if usage else 0),
        output_tokens=task.output_tokens + (usage.output_tokens if usage else 0),
        cost_usd=task.cost_usd + (cost or 0),
        unpriced_calls=task.unpriced_calls + (1 if cost is None else 0),
    )
    known = sum((row.cost_usd or ZERO for row in priced), ZERO)
    admission.settle(pen, call, usage, cost, priced=known, rate=reply.rate)
    return pen.event(
        EventKind.MODEL_REPLIED,
        step=step.number,
        model_call=call.pk,
        text=clip(call.text, EXCERPT_CHARS),
        calls=[{"name": c["name"], "arguments": clip(c["arguments"], 500), "call_id": c["call_id"]} for c in calls],
        finish_reason=reply.finish_reason,
        prompt_tokens=usage.prompt_tokens if usage else None,
        output_tokens=usage.output_tokens if usage else None,
        cost_usd=str(cost) if cost is not None else None,
        latency_s=round(reply.latency_s, 3),
        **_purpose(call),
    )


def store_failure(task_id: int, fence: int, step: Step, call: ModelCall, error: ProviderError) -> None:
    with writing(task_id, fence=fence) as pen:
        call.status = ModelCallStatus.FAILED.value
        call.error_kind = error.kind
        call.error = clean_text(str(error))
        call.finished_at = pen.now
        call.save()
        maybe_billed = error.kind in MAYBE_BILLED
        if maybe_billed:
            _count_unpriced(pen)
        admission.failed(pen, call, error, maybe_billed=maybe_billed)
        pen.event(
            EventKind.MODEL_FAILED,
            step=step.number,
            model_call=call.pk,
            error_kind=error.kind,
            message=clip(str(error), EXCERPT_CHARS),
            permanent=error.permanent,
            retry_after_s=error.retry_after_s,
            attempt=call.attempt,
            **_purpose(call),
        )


def drop(task_id: int, fence: int, step: Step, call: ModelCall, *, why: str, partial: str) -> None:
    """The call was given up by an order; what had arrived is kept in the trace."""
    with writing(task_id, fence=fence) as pen:
        call.text = clean_text(partial)
        _drop(pen, call, step.number, why)


def drop_unfinished(pen: Pen, *, why: str) -> int:
    """Calls whose worker is gone: their reply will never be read. How many there were."""
    unfinished = ModelCall.objects.filter(task=pen.task, status=ModelCallStatus.RUNNING.value)
    found = list(unfinished.select_related("step").order_by("pk"))
    for call in found:
        _drop(pen, call, call.step.number, why)
    return len(found)


def _drop(pen: Pen, call: ModelCall, step_number: int, why: str) -> None:
    call.status = ModelCallStatus.DROPPED.value
    call.finished_at = pen.now
    call.save(update_fields=["status", "text", "finished_at"])
    _count_unpriced(pen)
    admission.dropped(pen, call)
    pen.event(
        EventKind.MODEL_DROPPED,
        step=step_number,
        model_call=call.pk,
        why=why,
        partial=clip(call.text, EXCERPT_CHARS),
        **_purpose(call),
    )


def _count_unpriced(pen: Pen) -> None:
    """The provider may bill it and nobody has said how much: no part of the sum, but named beside it."""
    pen.set(unpriced_calls=pen.task.unpriced_calls + 1)
