"""What detectors found, and the runtime's answer to it, in the transaction that ends the step.

All of it derives from durable rows (the incident's answers, what people said), so a worker that dies before the commit
leaves nothing, and one that comes after it finds everything done. Never decides by itself: see domain/ladder.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from django.db.models import Max, Q

from workspaces.domain.detection import Detection
from workspaces.domain.events import EventKind
from workspaces.domain.incidents import Finding, IncidentKind, IncidentState, Rung
from workspaces.domain.ladder import (
    HELPED_AFTER,
    PASSING,
    QUIET_STEPS,
    claim_rung,
    next_rung,
    nudge,
    question,
    verdict,
)
from workspaces.domain.states import EscalationKind, EscalationStatus, TaskStatus
from workspaces.domain.storms import FORK, WINDOW_S, Happening, storms
from workspaces.models import Escalation, Event, Incident
from workspaces.queries.profiles import detectors_of

from .escalations import open_escalation, wait_for_operator
from .incidents import close, measure, report, respond
from .pen import Pen, writing
from .tasks import end_task

ANSWER_WITHIN = timedelta(days=7)
MOST_CLAIMS_STANDING = 100  # of one task: past that another is no news, and every step reads all that stand
MOST_FORKS_SEEN = 500
PASSING_KINDS = frozenset(kind.value for kind in PASSING)


@dataclass(frozen=True, slots=True)
class Detected:
    """What one step showed. `did`: the calls that it made, in words, for the measure of an earlier nudge."""

    step: int
    detection: Detection
    findings: tuple[Finding, ...] = ()
    did: str = ""
    held_back: bool = field(default=False)  # its end was held back and a person is to be asked


def answer(pen: Pen, detected: Detected, *, succeeded: bool = False) -> bool:
    """Record what was found, measure what was done before, and do the next thing. Whether the task goes on.

    1. findings that are new or grew; 2. whether an earlier nudge helped; 3. unless the task has just `succeeded`, the
    next rung of the ladder, one for the whole step; 4. what has not been seen for a while is over.
    """
    grown = _reported(pen, _bounded(pen, detected.findings))
    standing = _standing(pen, {incident.pk: incident for _, incident in grown})
    _measure(pen, standing, {incident.pk for _, incident in grown}, detected, succeeded)
    goes_on = True
    if not succeeded:
        if not detected.detection.observe_only:
            goes_on = _climb(pen, grown, detected.detection)
        if goes_on and detected.held_back and _asks(pen):
            goes_on = not _wait(pen)
    _let_pass(pen, standing, {incident.pk for _, incident in grown}, detected.step, succeeded)
    return goes_on


def hold_end(pen: Pen, findings: Sequence[Finding]) -> str:
    """The end of a task claims what was not done: what the model is told instead of it, or "" when it may end.

    The first time the model is told; the next time a person is asked as well (the task waits when the step is settled).
    """
    grown = _reported(pen, findings)
    known = {incident.fingerprint: incident for _, incident in grown}
    standing = Incident.objects.filter(task=pen.task).exclude(state=IncidentState.RESOLVED.value)
    for one in standing.filter(fingerprint__in=[finding.fingerprint for finding in findings]):
        known.setdefault(one.fingerprint, one)
    rungs = []
    for finding in findings:
        incident = known.get(finding.fingerprint)
        if incident is not None:  # else a person has resolved it: what it claims is taken as it is
            rung = claim_rung(incident.responses, person_seq=_person_seq(pen, incident))
            if rung is not None:
                rungs.append((rung, finding, incident))
    if not rungs:
        return ""
    told = " ".join(finding.words for _, finding, _ in rungs)
    asked = [item for item in rungs if item[0] is Rung.ESCALATED]
    words = (
        f"The task is not finished. {told} Do it now and then finish, or finish with words that say only what was "
        "really done."
    )
    for rung, finding, incident in rungs:
        respond(pen, incident, rung, words if rung is Rung.NUDGED else question(finding, nudges=incident.nudges))
    if asked:
        _, finding, incident = asked[0]
        _ask(
            pen,
            incident,
            f"The agent wants to end the task. {told} It was told once. To let it end as it is, resolve the incident "
            "and go on; else tell it what to do, or give the task up.",
        )
    return words


def note(task_id: int, fence: int, findings: Sequence[Finding], *, others: int, pool: int | None) -> None:
    """Record what the agent can do nothing about: a storm on a pool, with how many `others` are in it."""
    if not findings:
        return
    with writing(task_id, fence=fence) as pen:
        for _, incident in _reported(pen, findings, pool=pool):
            if not incident.responses:
                alone = f"{others} other tasks draw on the same allowance. " if others else ""
                respond(
                    pen, incident, Rung.NOTED, f"{alone}Each try waits longer than the one before, or as long as asked."
                )


def forked(pen: Pen, seq: int) -> None:
    """The event at `seq` tells of a fork: many of one task within a minute are a storm, whoever makes them."""
    earlier = Event.objects.filter(
        task=pen.task, kind=EventKind.TASK_FORKED.value, at__gt=pen.now - timedelta(seconds=WINDOW_S)
    )
    made = [*earlier.order_by("-seq").values_list("seq", "at")[:MOST_FORKS_SEEN], (seq, pen.now)]
    happened = [Happening(at.timestamp(), FORK, at_seq, source=f"task {pen.task.pk}") for at_seq, at in made]
    for _, incident in _reported(pen, storms(happened, detectors_of(pen.task.profile_version).thresholds)):
        if not incident.responses:
            respond(pen, incident, Rung.NOTED, "Each fork has a disk and a sandbox of its own, and spends for itself.")


def _reported(pen: Pen, findings: Sequence[Finding], *, pool: int | None = None) -> list[tuple[Finding, Incident]]:
    """Those that are new or grew. What was seen up to here before, also by an incident that is over, is not news."""
    if not findings:
        return []
    seen = dict(
        Incident.objects.filter(task=pen.task, fingerprint__in=[finding.fingerprint for finding in findings])
        .values("fingerprint")
        .annotate(newest=Max("last_seq"))
        .values_list("fingerprint", "newest")
    )
    taken = _taken_as_they_are(pen, findings)
    grown = []
    for finding in findings:
        if finding.last_seq <= seen.get(finding.fingerprint, 0) or finding.fingerprint in taken:
            continue
        reported = report(pen, finding, pool=pool)
        if reported.is_new or reported.grew:
            grown.append((finding, reported.incident))
    return grown


def _bounded(pen: Pen, findings: Sequence[Finding]) -> Sequence[Finding]:
    """Without claims that would be one incident more than anybody reads: a model may make forty of them a step."""
    claims = [finding for finding in findings if finding.kind is IncidentKind.FALSE_CLAIM]
    if not claims:
        return findings
    standing = Incident.objects.filter(task=pen.task, kind=IncidentKind.FALSE_CLAIM.value).exclude(
        state=IncidentState.RESOLVED.value
    )
    room = max(0, MOST_CLAIMS_STANDING - standing.count())
    return [finding for finding in findings if finding not in claims[room:]]


def _taken_as_they_are(pen: Pen, findings: Sequence[Finding]) -> set[str]:
    """Claims that a person has closed: they know better what was done outside."""
    claims = [finding.fingerprint for finding in findings if finding.kind is IncidentKind.FALSE_CLAIM]
    if not claims:
        return set()
    return set(
        Incident.objects.filter(task=pen.task, fingerprint__in=claims, state=IncidentState.RESOLVED.value)
        .exclude(resolved_by=None)
        .values_list("fingerprint", flat=True)
    )


def _standing(pen: Pen, grown: dict[int, Incident]) -> list[Incident]:
    """Every incident of the task that is not resolved, as it is now."""
    found = Incident.objects.filter(task=pen.task).exclude(state=IncidentState.RESOLVED.value).order_by("pk")
    return [grown.get(incident.pk, incident) for incident in found]


def _measure(pen: Pen, standing: Sequence[Incident], grown: set[int], detected: Detected, succeeded: bool) -> None:
    for incident in standing:
        if not incident.nudges or incident.nudge_helped is not None:
            continue
        told = [entry for entry in incident.responses if entry["rung"] == Rung.NUDGED.value][-1]
        since = told.get("step") or 0
        if detected.step - since > HELPED_AFTER or _person_seq(pen, incident) > told["seq"]:
            continue  # a person has spoken since: it cannot be told what made the difference
        if incident.pk in grown:
            measure(pen, incident, False, f"It went on at step {detected.step}.")
        elif detected.step > since and (succeeded or detected.step - since >= HELPED_AFTER):
            steps = f"step {detected.step}" if detected.step == since + 1 else f"steps {since + 1} to {detected.step}"
            measure(pen, incident, True, f"It was not seen again in {steps}. The newest did {detected.did}.")


def _climb(pen: Pen, grown: Sequence[tuple[Finding, Incident]], detection: Detection) -> bool:
    """The highest rung that any finding asks for, and only that. Whether the task goes on."""
    asked_for = []
    for finding, incident in grown:
        person_seq = _person_seq(pen, incident)
        rung = next_rung(finding, incident.responses, person_seq=person_seq, ladder=detection.ladder)
        if rung is not None:
            asked_for.append((rung, finding, incident))
    if not asked_for:
        return True
    rung, finding, incident = max(asked_for, key=lambda item: (item[0].rank, item[1].severity.rank))
    match rung:
        case Rung.STOPPED:
            asked = sum(entry["rung"] == Rung.ESCALATED.value for entry in incident.responses)
            words = verdict(finding, asked=asked)
            respond(pen, incident, rung, words)
            end_task(pen, TaskStatus.FAILED, words)
            return False
        case Rung.ESCALATED:
            words = question(finding, nudges=_told(incident))
            respond(pen, incident, rung, words)
            _ask(pen, incident, words)
            return not _wait(pen)
        case Rung.NUDGED:
            words = nudge(finding)
            pen.message("user", words, seq=respond(pen, incident, rung, words))
    return True


def _told(incident: Incident) -> int:
    return sum(entry["rung"] == Rung.NUDGED.value for entry in incident.responses)


def _ask(pen: Pen, incident: Incident, words: str) -> None:
    standing = Escalation.objects.filter(incident=incident, status=EscalationStatus.OPEN.value).exists()
    if not standing:
        open_escalation(
            pen, kind=EscalationKind.INCIDENT, question=words, deadline=pen.now + ANSWER_WITHIN, incident=incident
        )


def _asks(pen: Pen) -> bool:
    return Escalation.objects.filter(
        task=pen.task, kind=EscalationKind.INCIDENT.value, status=EscalationStatus.OPEN.value
    ).exists()


def _wait(pen: Pen) -> bool:
    """A task that is pausing is left so: its pause comes first. Whether it waits now."""
    if pen.task.status != TaskStatus.RUNNING.value:
        return False
    wait_for_operator(pen)
    return True


def _person_seq(pen: Pen, incident: Incident) -> int:
    """Of the newest event, after the runtime's first answer, by which a person had a say in the task."""
    if not incident.responses:
        return 0
    said = Event.objects.filter(task=pen.task, seq__gt=incident.responses[0]["seq"]).filter(
        Q(kind=EventKind.MESSAGE_ADDED.value, data__role="operator")
        | Q(kind__in=[EventKind.ESCALATION_ANSWERED.value, EventKind.TASK_RESUMED.value])
    )
    return said.order_by("-seq").values_list("seq", flat=True).first() or 0


def _let_pass(pen: Pen, standing: Sequence[Incident], grown: set[int], step: int, succeeded: bool) -> None:
    for incident in standing:
        if incident.kind not in PASSING_KINDS or incident.pk in grown:
            continue
        quiet = step - (incident.last_step or 0)
        if succeeded:
            close(pen, incident, "The task succeeded without it.")
        elif quiet >= QUIET_STEPS and incident.last_step is not None:
            close(pen, incident, f"It was not seen again for {quiet} steps.")


def rolled_back(pen: Pen, *, seq: int) -> None:
    """What was seen after a checkpoint is no longer on the line."""
    for incident in Incident.objects.filter(task=pen.task, last_seq__gt=seq).exclude(
        state=IncidentState.RESOLVED.value
    ):
        close(pen, incident, f"The task was taken back to before it, to event {seq}.")
