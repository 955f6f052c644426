"""What is never sent: a request that lacks a pinned text, or that does not fit. A person is asked instead."""

from __future__ import annotations

import hashlib

from workspaces.actions import compactions, steps
from workspaces.domain import compaction as rules
from workspaces.domain.compaction import Pinned
from workspaces.domain.context import SegmentKind
from workspaces.domain.incidents import Evidence, Finding, IncidentKind, Severity
from workspaces.domain.states import EscalationKind
from workspaces.engine.run import Ended, Run
from workspaces.models import Step
from workspaces.queries.contexts import Built


def check_pinned(run: Run, step: Step, built: Built) -> None:
    """Before every request: a real look at what would be sent. Raises Ended."""
    lost = rules.missing(pinned_in(built), [message.content for message in built.request.messages])
    if lost:
        _ask_about_lost(run, step, built, lost)


def _ask_about_lost(run: Run, step: Step, built: Built, lost: list[Pinned]) -> None:
    names = ", ".join(item.what for item in lost[:5])
    seq = built.manifest.as_of_seq
    words = f"The next request lacks what is pinned: {names}. It was not sent."
    finding = Finding(
        IncidentKind.TRUNCATION,
        Severity.CRITICAL,
        pattern="pinned_missing",
        first_seq=seq,
        last_seq=seq,
        evidence=(Evidence(seq, step.number, f"the request as of this event lacks {names}"),),
        words=words,
        cause="truncation/pinned_missing",
        fingerprint=_sha(f"pinned_missing {names}"),
    )
    incident = compactions.report_context(run.task.pk, run.fence, finding)
    steps.escalate(run.task.pk, run.fence, EscalationKind.INCIDENT, words, incident=incident)
    raise Ended


def ask_about_full(run: Run, step: Step, built: Built, *, went: bool, failed: str) -> None:
    """`went`: it was made smaller; `failed`: why no summary was had. Raises Ended."""
    manifest = built.manifest
    pinned = pinned_in(built)
    tried = ["Nothing in it could be made smaller."]
    if went:
        tried = ["It has been made smaller already."]
    if failed:
        tried.append(f"No summary: {failed}.")
    if manifest.learned_tokens is not None:
        tried.append(
            f"The profile's window is {run.version.context_window_tokens:,}, but the provider was seen to hold only "
            f"{manifest.learned_tokens:,}: resolve the incident about it when the server holds more."
        )
    words = rules.why_full(
        pinned,
        tools=manifest.tokens(SegmentKind.TOOLS),
        other=manifest.tokens(SegmentKind.RECENT, SegmentKind.TOOL_OUTPUT, SegmentKind.SUMMARY),
        prompt=manifest.expected_tokens,
        reserved=manifest.reserved_output_tokens,
        window=manifest.window_tokens,
        tried=" ".join(tried),
    )
    seq = manifest.as_of_seq
    finding = Finding(
        IncidentKind.CONTEXT_FULL,
        Severity.ERROR,
        pattern="does_not_fit",
        first_seq=seq,
        last_seq=seq,
        evidence=(Evidence(seq, step.number, f"{manifest.expected_tokens:,} tokens are to be sent as of this event"),),
        words=words,
        cause="context_full/does_not_fit",
        fingerprint=_sha("context_full"),
    )
    incident = compactions.report_context(run.task.pk, run.fence, finding)
    steps.escalate(run.task.pk, run.fence, EscalationKind.CONTEXT_FULL, words, incident=incident)
    raise Ended


def pinned_in(built: Built) -> list[Pinned]:
    return rules.pinned_of(built.history, system=built.system, notes=built.notes)


def _sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
