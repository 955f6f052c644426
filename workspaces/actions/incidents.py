"""Incidents: reported with their evidence, answered by the runtime, acknowledged and resolved by people.

One trouble is one incident while it grows: the finding's fingerprint says whether it is known. Reporting the same
finding again, as after a crash, changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from workspaces.domain.alerts import AlertKind, Edge
from workspaces.domain.events import EXCERPT_CHARS, EventKind
from workspaces.domain.incidents import Finding, IncidentState, Rung, Severity
from workspaces.domain.text import clean_json, clean_text, clip
from workspaces.models import Incident, User

from .alert_signals import signal
from .errors import Refused
from .pen import Pen, writing
from .words import taken

S = IncidentState


@dataclass(frozen=True, slots=True)
class Reported:
    """`is_new`, `grew`: whether this report opened the incident, or added to it."""

    incident: Incident
    is_new: bool = False
    grew: bool = False


def report(pen: Pen, finding: Finding, *, pool: int | None = None) -> Reported:
    """Open an incident on the task's current branch, or let the one that is open grow. `pool`: that it is about."""
    known = (
        Incident.objects.filter(task=pen.task, branch_id=pen.task.current_branch_id, fingerprint=finding.fingerprint)
        .exclude(state=S.RESOLVED.value)
        .first()
    )
    if known is None:
        return Reported(_open(pen, finding, pool), is_new=True)
    if finding.last_seq <= known.last_seq:
        return Reported(known)
    worse = finding.severity.rank > Severity(known.severity).rank
    if worse:
        known.severity = finding.severity.value
    _take(known, finding)
    known.grew_at = pen.now
    known.save()
    pen.event(
        EventKind.INCIDENT_GREW,
        step=known.last_step,
        incident=known.pk,
        incident_kind=known.kind,
        count=known.count,
        severity=known.severity,
        words=clip(known.words, EXCERPT_CHARS),
    )
    if worse:
        _signal(pen, known, Edge.WORSE, known.words)
    return Reported(known, grew=True)


def _open(pen: Pen, finding: Finding, pool: int | None) -> Incident:
    incident = Incident(
        task=pen.task,
        branch_id=pen.task.current_branch_id,
        kind=finding.kind.value,
        severity=finding.severity.value,
        pattern=finding.pattern,
        cause=clip(clean_text(finding.cause), 240),
        fingerprint=finding.fingerprint,
        pool_id=pool,
        first_seq=finding.first_seq,
        opened_at=pen.now,
        grew_at=pen.now,
    )
    _take(incident, finding)
    steps = [place.step for place in finding.evidence if place.step is not None]
    incident.first_step = min(steps, default=None)
    incident.save()
    pen.event(
        EventKind.INCIDENT_OPENED,
        step=incident.last_step,
        incident=incident.pk,
        incident_kind=incident.kind,
        pattern=incident.pattern,
        severity=incident.severity,
        words=clip(incident.words, EXCERPT_CHARS),
        seqs=[place["seq"] for place in incident.evidence],
    )
    _signal(pen, incident, Edge.BEGAN, incident.words)
    return incident


def _take(incident: Incident, finding: Finding) -> None:
    incident.words = clean_text(finding.words)
    incident.evidence = clean_json(finding.kept_evidence())
    incident.last_seq = finding.last_seq
    incident.count = finding.count
    incident.last_step = max((place.step for place in finding.evidence if place.step is not None), default=None)


def respond(pen: Pen, incident: Incident, rung: Rung, words: str) -> int:
    """Write down what the runtime does about it; returns the event's seq."""
    if rung.rank > Rung(incident.rung).rank:
        incident.rung = rung.value
    if rung is Rung.NUDGED:
        incident.nudges += 1
        incident.nudge_helped = None
    seq = pen.event(
        EventKind.INCIDENT_RESPONDED,
        step=incident.last_step,
        incident=incident.pk,
        incident_kind=incident.kind,
        rung=rung.value,
        words=clip(words, EXCERPT_CHARS),
    )
    entry = {
        "rung": rung.value,
        "seq": seq,
        "at": pen.now.isoformat(),
        "words": clean_text(words),
        "count": incident.count,
        "step": incident.last_step,
    }
    incident.responses = [*incident.responses, entry]
    incident.save()
    return seq


def measure(pen: Pen, incident: Incident, helped: bool, words: str) -> None:
    """Write down whether the newest nudge made a difference."""
    seq = pen.event(
        EventKind.INCIDENT_MEASURED,
        step=incident.last_step,
        incident=incident.pk,
        incident_kind=incident.kind,
        helped=helped,
        words=clip(words, EXCERPT_CHARS),
    )
    incident.nudge_helped = helped
    newest = max(at for at, answer in enumerate(incident.responses) if answer["rung"] == Rung.NUDGED.value)
    measured = {**incident.responses[newest], "helped": helped, "measured_seq": seq, "measured": clean_text(words)}
    incident.responses = [*incident.responses[:newest], measured, *incident.responses[newest + 1 :]]
    incident.save()


def acknowledge_incident(incident_id: int, *, actor: User, reason: str = "") -> Incident:
    """A person has seen it and deals with it. Raises Refused."""
    reason = taken(reason, "reason")
    with writing(_task_of(incident_id), actor=actor) as pen:
        changed = Incident.objects.filter(pk=incident_id, state=S.OPEN.value).update(
            state=S.ACKNOWLEDGED.value, acknowledged_by=actor, acknowledged_at=pen.now
        )
        incident = Incident.objects.select_related("acknowledged_by", "resolved_by").get(pk=incident_id)
        if changed != 1:
            raise Refused(_already(incident))
        pen.event(EventKind.INCIDENT_ACKNOWLEDGED, incident=incident.pk, incident_kind=incident.kind, reason=reason)
        pen.audit("incident.acknowledge", reason=reason, incident=incident.pk)
        return incident


def resolve_incident(incident_id: int, *, actor: User, reason: str) -> Incident:
    """A person closes it with words. Raises Refused."""
    reason = taken(reason, "reason")
    if not reason:
        raise Refused("Say how it was resolved: the words stay with the incident.")
    with writing(_task_of(incident_id), actor=actor) as pen:
        incident = Incident.objects.select_related("acknowledged_by", "resolved_by").get(pk=incident_id)
        if incident.state == S.RESOLVED.value:
            raise Refused(_already(incident))
        close(pen, incident, reason)
        pen.audit("incident.resolve", reason=reason, incident=incident.pk)
        return incident


def close(pen: Pen, incident: Incident, words: str) -> None:
    """Resolved, by the pen's actor or by the runtime, inside a locked task."""
    incident.state = S.RESOLVED.value
    incident.resolved_by = pen.actor
    incident.resolved_at = pen.now
    incident.resolution = clean_text(words)
    incident.save()
    pen.event(
        EventKind.INCIDENT_RESOLVED,
        incident=incident.pk,
        incident_kind=incident.kind,
        words=clip(words, EXCERPT_CHARS),
    )
    _signal(pen, incident, Edge.ENDED, words)


def _signal(pen: Pen, incident: Incident, edge: Edge, words: str) -> None:
    signal(
        AlertKind.INCIDENT,
        edge,
        f"incident:{incident.pk}",
        words=words,
        severity=Severity(incident.severity),
        at=pen.now,
        task=pen.task,
        detail=incident.kind,
        cause=incident.cause,
        data={
            "pattern": incident.pattern,
            "first_seq": incident.first_seq,
            "last_seq": incident.last_seq,
            "count": incident.count,
        },
        incident=incident.pk,
        pool=incident.pool_id,
    )


def _task_of(incident_id: int) -> int:
    return Incident.objects.values_list("task_id", flat=True).get(pk=incident_id)


def _already(incident: Incident) -> str:
    if incident.state == S.RESOLVED.value:
        return f"{incident.resolved_by or 'agentdesk'} has already resolved this incident."
    return f"{incident.acknowledged_by} has already acknowledged this incident."
