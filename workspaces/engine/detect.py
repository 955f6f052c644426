"""Detect: what durable history shows when a step is to be settled. Decides nothing: see actions/detections.py."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from workspaces.actions.detections import Detected
from workspaces.domain import claim_evidence
from workspaces.domain.claims import claims_in
from workspaces.domain.detection import Claims, Detection
from workspaces.domain.detectors import find
from workspaces.domain.events import EventKind
from workspaces.domain.incidents import Finding, IncidentKind
from workspaces.domain.occurrences import hollow_repeated, nothing_ran
from workspaces.domain.states import ModelCallPurpose, ModelCallStatus
from workspaces.domain.trail import Trail
from workspaces.engine import claim_check
from workspaces.engine.run import Run
from workspaces.models import Event, ModelCall, Step, ToolCall
from workspaces.queries.profiles import detectors_of
from workspaces.queries.trails import calls_on_line, trail_of

logger = logging.getLogger(__name__)

FINISH = "finish"
# these say more exactly what is wrong with replies of which nothing could run
SAYS_MORE = frozenset({IncidentKind.PARALYSIS, IncidentKind.BAD_CALL, IncidentKind.TRUNCATION})


def seen(run: Run, step: Step, calls: Sequence[ToolCall], *, disk: str) -> Detected:
    """What the line shows with this step at its end. `disk`: the snapshot that the step leaves."""
    settings = detectors_of(run.version)
    trail = trail_of(run.task, run.branch, disk=disk)
    found = _found(trail, settings)
    hollow = hollow_repeated(trail)
    if hollow is not None:
        found.append(hollow)
    silent = nothing_ran(trail, limit=settings.thresholds.no_action)
    if silent is not None and all(finding.kind not in SAYS_MORE for finding in found):
        found.append(silent)
    if settings.claims is not Claims.OFF:
        found += _claims(run, step, calls, trail)
    # what lies before a cut is no news: a person has been there
    found = [finding for finding in found if finding.last_seq > _cut(run)]
    return Detected(
        step=step.number,
        detection=settings,
        findings=tuple(found),
        did=", ".join(dict.fromkeys(call.name for call in calls)) or "nothing",
        held_back=any(call.name == FINISH and not call.control for call in calls)
        or (not calls and FINISH not in run.tools),
    )


def _found(trail: Trail, settings: Detection) -> list[Finding]:
    """A detector that fails on what it sees must not stop the task that it looks at: it is logged, finds nothing."""
    try:
        return list(find(trail, settings.thresholds))
    except Exception:
        logger.exception("a detector failed at step %s", trail.turns[-1].step if trail.turns else None)
        return []


def _cut(run: Run) -> int:
    branch = run.branch
    same_task = branch.parent is not None and branch.parent.task_id == run.task.pk
    return branch.parent_seq if same_task else 0


def _claims(run: Run, step: Step, calls: Sequence[ToolCall], trail: Trail) -> list[Finding]:
    """Of the reply's words, and of those with which it ends the task."""
    newest = trail.turns[-1] if trail.turns and trail.turns[-1].step == step.number else None
    seq = newest.seq if newest is not None else 0
    end = "\n".join(summary_of(call) for call in calls if call.name == FINISH and call.control)
    found = _of_an_end(run, step, end, seq) if end else []
    known = {finding.fingerprint for finding in found}
    words = _by_rules(run, step, newest.text, seq) if newest is not None else []
    return [*found, *(finding for finding in words if finding.fingerprint not in known)]


def summary_of(call: ToolCall) -> str:
    """The words with which a call ends the task."""
    return "\n".join(str(value) for value in (call.arguments or {}).values())


def claims_to_hold(run: Run, step: Step, text: str) -> list[Finding]:
    """What an end claims and the trace does not bear out, where the profile holds such an end."""
    if detectors_of(run.version).claims is not Claims.HOLD:
        return []
    return _of_an_end(run, step, text, _reply_seq(run, step))


def claims_of_the_end(run: Run, step: Step, text: str) -> Detected:
    """For a task that ends with a text, not with a call."""
    settings = detectors_of(run.version)
    found = _of_an_end(run, step, text, _reply_seq(run, step)) if settings.claims is not Claims.OFF else []
    return Detected(step=step.number, detection=settings, findings=tuple(found), did="nothing")


def _of_an_end(run: Run, step: Step, text: str, seq: int) -> list[Finding]:
    """By the rules, and by a model where the profile says so: that is asked about ends only."""
    found = _by_rules(run, step, text, seq)
    if detectors_of(run.version).claims_model and text.strip():
        quoted = " ".join(finding.words for finding in found)
        said = claim_check.unsupported(run, step, text, seq=seq or run.task.last_seq, model_call=_reply(step))
        found += [finding for finding in said if finding.evidence[0].what.removeprefix("it says: ") not in quoted]
    return found


def _by_rules(run: Run, step: Step, text: str, seq: int) -> list[Finding]:
    if not claims_in(text):  # most steps claim nothing, and the whole line need not be read
        return []
    return claim_evidence.findings(
        text,
        seq=seq or run.task.last_seq,  # a reply that lies before a cut has no event of its own here
        step=step.number,
        model_call=_reply(step),
        calls=calls_on_line(run.branch),
    )


def _reply(step: Step) -> int | None:
    replied = ModelCall.objects.filter(
        step=step, purpose=ModelCallPurpose.STEP.value, status=ModelCallStatus.REPLIED.value
    )
    return replied.values_list("pk", flat=True).first()


def _reply_seq(run: Run, step: Step) -> int:
    newest = Event.objects.filter(task=run.task, step_number=step.number, kind=EventKind.MODEL_REPLIED.value)
    return newest.order_by("-seq").values_list("seq", flat=True).first() or 0
