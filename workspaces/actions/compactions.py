"""Compactions: what is sent in other messages' places from now on, with the receipt; and what could not be done."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from workspaces.domain.compaction import Cut
from workspaces.domain.context import Replaced, Summarised
from workspaces.domain.events import EventKind
from workspaces.domain.incidents import Finding, Rung
from workspaces.domain.text import clean_json, clean_text
from workspaces.models import Event, Incident, ModelCall, Replacement, Step, Summary

from .incidents import report, respond
from .model_calls import begin_step
from .pen import Pen, writing


def store_compaction(
    task_id: int,
    fence: int,
    step: Step,
    *,
    replaced: Sequence[Replaced],
    summaries: Sequence[tuple[Cut, Summarised, ModelCall]],
    receipt: dict[str, Any],
) -> None:
    """All rows and their receipt at one seq: a rollback to before it has none of them on its line.

    Of several summaries the last one counts; each stands for what the ones before it stood for. The receipt has the
    size of what went, never that of the history.
    """
    with writing(task_id, fence=fence) as pen:
        _begun(pen, step)
        seq = pen.event(EventKind.CONTEXT_COMPACTED, step=step.number, **receipt)
        branch_id = pen.task.current_branch_id
        Replacement.objects.bulk_create(
            Replacement(
                task=pen.task,
                branch_id=branch_id,
                seq=seq,
                message_id=item.message_id,
                how=item.how.value,
                text=clean_text(item.text),
                calls=None if item.calls is None else clean_json(list(item.calls)),
                tokens=item.tokens,
                path=item.path,
            )
            for item in replaced
        )
        if summaries:
            _, summary, call = summaries[-1]
            entries = [entry for cut, _, _ in summaries for entry in cut.covered]
            covered = [entry.line.message_id for entry in entries if entry.line]
            earlier = summaries[0][0].earlier
            Summary.objects.create(
                task=pen.task,
                branch_id=branch_id,
                seq=seq,
                first_message_id=min(covered),
                last_message_id=summary.upto,
                messages=len(covered),
                replies=summary.replies,
                text=clean_text(summary.text),
                tokens_before=sum(entry.tokens for entry in entries) + (earlier.tokens if earlier else 0),
                tokens_after=summary.tokens,
                model_call=call,
            )


def refuse_summary(task_id: int, fence: int, step: Step, call: ModelCall, why: str) -> None:
    """Say once why a summary is not taken; come to again after a crash, it is said already."""
    with writing(task_id, fence=fence) as pen:
        said = Event.objects.filter(task=pen.task, kind=EventKind.SUMMARY_REFUSED.value, data__model_call=call.pk)
        if not said.exists():
            pen.event(EventKind.SUMMARY_REFUSED, step=step.number, model_call=call.pk, why=why)


def report_context(task_id: int, fence: int, finding: Finding) -> Incident:
    """An incident of the context, before a person is asked. The same finding again changes nothing."""
    with writing(task_id, fence=fence) as pen:
        reported = report(pen, finding)
        if reported.is_new:
            respond(pen, reported.incident, Rung.ESCALATED, "Nothing was sent. An operator is asked.")
        return reported.incident


def _begun(pen: Pen, step: Step) -> None:
    if not step.pk:
        begin_step(pen, step)
        step.save()
