"""Think: one model call, its intent first. What fails for a while is tried again, what fails for good asks a person."""

from __future__ import annotations

from django.db import connection

from workspaces.actions import model_calls
from workspaces.actions.streams import TextStream
from workspaces.actions.wishes import Wish
from workspaces.domain.effects import canonical_json
from workspaces.domain.replies import ProposedCall
from workspaces.domain.states import ModelCallStatus
from workspaces.engine.admission import Asking, admitted, wish_of
from workspaces.engine.compaction import fitting_request
from workspaces.engine.disk import Disk
from workspaces.engine.gate import read
from workspaces.engine.patience import patiently
from workspaces.engine.provider_calls import after_failure, provider_of
from workspaces.engine.run import Ended, Run
from workspaces.models import ModelCall, ProfileVersion, Step
from workspaces.providers.base import ProviderError
from workspaces.queries.calibration import endpoint
from workspaces.queries.contexts import Built, remade
from workspaces.queries.prices import price_book
from workspaces.wire.driving import CallInterrupted


def think(run: Run, step: Step, disk: Disk) -> ModelCall | None:
    """Phase think of a step: the call whose reply is stored. None when an order came; the caller obeys it.

    Raises Ended when the task waits instead.
    """
    try:
        built = fitting_request(run, step, disk)
    except CallInterrupted:  # of a summary; what it was is recorded
        return None

    def instead(version: ProfileVersion) -> Asking | None:
        other = remade(built, version)
        return _asking(run, step, other, version) if other.manifest.fits else None

    asked, call = admitted(run, _asking(run, step, built, run.version), instead)
    try:
        _ask(run, step, call, asked)
    except ProviderError as error:
        model_calls.store_failure(run.task.pk, run.fence, step, call, error)
        after_failure(run, call, error)
        raise Ended from error
    except CallInterrupted as dropped:
        why = run.orders.why()
        if not run.orders.lost:
            model_calls.drop(run.task.pk, run.fence, step, call, why=why, partial=dropped.partial)
        return None
    return call


def _asking(run: Run, step: Step, built: Built, version: ProfileVersion) -> Asking:
    wish = wish_of(run, step, built.request, tokens=built.manifest.expected_tokens, version=version)

    def intend(wish: Wish) -> ModelCall:
        return model_calls.intend(
            run.task.pk,
            run.fence,
            step,
            wish=wish,
            manifest=built.manifest,
            frame=built.frame,
            endpoint=endpoint(version),
        )

    return Asking(built.request, wish, intend)


def _ask(run: Run, step: Step, call: ModelCall, asked: Asking) -> None:
    request, provider, prices = asked.request, provider_of(asked.version), price_book()
    connection.close()  # nothing is held while the model thinks
    reply = provider.complete(request, on_text=TextStream(run.task.pk, call.pk), interrupt=run.orders.interrupt)
    reading = read(run, step, reply.text, reply.tool_calls, reply.finish_reason)
    read_calls = [_as_sent(call) for call in reading.calls]
    priced = prices.priced(asked.version, request.model, reply.usage, answered=reply.model)
    patiently(
        lambda: model_calls.store_reply(
            run.task.pk, run.fence, step, call, reply, read_calls=read_calls, priced=priced
        ),
        written=lambda: ModelCall.objects.filter(pk=call.pk, status=ModelCallStatus.REPLIED.value).exists(),
    )


def _as_sent(call: ProposedCall) -> dict[str, str]:
    """The call as the conversation keeps it: what could be read in one form, what could not as it was written."""
    text = call.raw if call.arguments is None else canonical_json(call.arguments)
    return {"call_id": call.call_id, "name": call.name, "arguments": text}
