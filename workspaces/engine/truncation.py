"""Looks at a stored reply for what the provider cut off, of the prompt or of the reply. Safe to do again."""

from __future__ import annotations

from dataclasses import replace

from workspaces.actions import truncation as actions
from workspaces.domain.events import EventKind
from workspaces.domain.replies import ReplyReading
from workspaces.domain.truncation import (
    CutReply,
    cut_reply,
    cut_told,
    cut_words,
    prompt_shortfall,
    prompt_words,
    stuck,
)
from workspaces.engine.run import Run
from workspaces.models import Event, ModelCall, Step
from workspaces.queries.calibration import calibration_of, newest_counts
from workspaces.queries.tuning import as_sent


def look(run: Run, step: Step, reply: ModelCall, reading: ReplyReading) -> CutReply | None:
    """Report what was cut. Returns the cut of the reply, whose words the model is owed if it held no call."""
    _look_at_prompt(run, step)
    return _look_at_reply(run, step, reply, reading)


def _look_at_prompt(run: Run, step: Step) -> None:
    newest = newest_counts(run.branch, run.version.model)
    if len(newest) < 2 or newest[-1].step != step.number or not stuck(newest[-2:]):  # as good as always
        return
    calls = [replace(call, seq=_seq_of(run, call.model_call)) for call in newest]
    found = prompt_shortfall(calls, calibration_of(run.version))
    if found is None:
        return
    actions.prompt_was_cut(
        run.task.pk,
        run.fence,
        step,
        words=prompt_words(found, run.version.context_window_tokens),
        held=found.held,
        calls=found.calls,
        model=run.version.model,
    )


def _look_at_reply(run: Run, step: Step, reply: ModelCall, reading: ReplyReading) -> CutReply | None:
    last = reading.calls[-1] if reading.calls else None
    in_call = last.name if last is not None and last.problem == "cut_off" else ""
    counted = None
    if reply.input_tokens is not None:
        counted = reply.input_tokens + (reply.cached_input_tokens or 0) + (reply.cache_write_tokens or 0)
    cut = cut_reply(
        finish_reason=reply.finish_reason,
        limit=as_sent(run.task.profile_version, step.manifest).max_output_tokens,
        written=reply.output_tokens,
        counted=counted,
        call=in_call,
        whole_calls=len(reading.calls) - (1 if in_call else 0),
    )
    if cut is not None:
        actions.reply_was_cut(
            run.task.pk,
            run.fence,
            step,
            words=cut_words(cut, step.number),
            told=cut_told(cut),
            say=bool(reading.calls),
            seq=_seq_of(run, reply.pk),
            call=reply,
            in_call=in_call,
            window=cut.window,
        )
    return cut


def _seq_of(run: Run, model_call: int) -> int:
    return Event.objects.values_list("seq", flat=True).get(
        task=run.task, kind=EventKind.MODEL_REPLIED.value, data__model_call=model_call
    )
