"""What a provider cut off becomes an incident, what it really holds is kept to, and the model is told once."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from workspaces.domain.incidents import Evidence, Finding, IncidentKind, Rung, Severity
from workspaces.domain.truncation import SentCall
from workspaces.models import LearnedWindow, ModelCall, Step

from .incidents import Reported, report, respond
from .pen import Pen, writing


def prompt_was_cut(
    task_id: int, fence: int, step: Step, *, words: str, held: int, calls: Sequence[SentCall], model: str
) -> None:
    """The provider dropped a part of these prompts: nothing is learned from their counts but the window."""
    finding = Finding(
        kind=IncidentKind.TRUNCATION,
        severity=Severity.ERROR,
        pattern="prompt_truncated",
        first_seq=calls[0].seq,
        last_seq=calls[-1].seq,
        evidence=tuple(
            Evidence(
                call.seq,
                call.step,
                f"sent about {call.estimated:,} tokens, the provider counted {call.counted:,}",
                model_call=call.model_call,
            )
            for call in calls
        ),
        words=words,
        cause=f"truncation/prompt_truncated/{model}",
        fingerprint=_fingerprint("prompt_truncated", model),
        count=len(calls),
    )
    with writing(task_id, fence=fence) as pen:
        found = report(pen, finding)
        if not (found.is_new or found.grew):
            return
        ModelCall.objects.filter(pk__in=[call.model_call for call in calls]).update(prompt_truncated=True)
        if _learn(pen, found, model, held, seq=calls[-1].seq):
            respond(
                pen,
                found.incident,
                Rung.NOTED,
                f"requests keep to a window of {held:,} tokens until this is resolved",
            )


def reply_was_cut(
    task_id: int,
    fence: int,
    step: Step,
    *,
    words: str,
    told: str,
    say: bool,
    seq: int,
    call: ModelCall,
    in_call: str,
    window: int | None,
) -> None:
    """`told`: what the model reads about it; `say`: it reads that here, and not as the correction of its reply."""
    pattern = "call_cut" if in_call else "reply_cut"
    finding = Finding(
        kind=IncidentKind.TRUNCATION,
        severity=Severity.WARNING,
        pattern=pattern,
        first_seq=seq,
        last_seq=seq,
        evidence=(Evidence(seq, step.number, words, model_call=call.pk),),
        words=words,
        cause=f"truncation/{pattern}/{in_call or call.model}",
        fingerprint=_fingerprint(pattern, in_call or call.model),
    )
    with writing(task_id, fence=fence) as pen:
        found = report(pen, finding)
        if not (found.is_new or found.grew):
            return
        if window is not None:
            _learn(pen, found, call.model, window, seq=seq)
        answered = respond(pen, found.incident, Rung.NUDGED, told)
        if say:
            pen.message("user", told, seq=answered)


def _learn(pen: Pen, found: Reported, model: str, tokens: int, *, seq: int) -> bool:
    version = pen.task.profile_version
    _, new = LearnedWindow.objects.get_or_create(
        incident=found.incident,
        tokens=tokens,
        defaults={"profile_version": version, "model": model, "seq": seq, "learned_at": pen.now},
    )
    return new


def _fingerprint(pattern: str, what: str) -> str:
    return hashlib.sha256(f"truncation\n{pattern}\n{what}".encode()).hexdigest()
