"""The parts of an incident's page as template contexts. The view and the socket build them here, so both show the same.

`LIVE` names the parts that the socket sends again when they have changed.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.urls import reverse

from workspaces.domain.attempts import compared, summary
from workspaces.domain.incident_words import CLUSTERS, KINDS, MODES, RUNGS, SEVERITIES, STATES, Words
from workspaces.domain.incidents import IncidentKind, IncidentState, Rung, Severity, clusters_of, mode_of
from workspaces.models import Incident, Step, User
from workspaces.queries import incident_page as reads
from workspaces.queries.access import may_operate
from workspaces.queries.alert_page import alerts_of
from workspaces.queries.history import line_of
from workspaces.queries.task_page import Controls
from workspaces.queries.trace import current_line
from workspaces.queries.windows import context_of

from .task_parts import head_context
from .trace_rows import diff_lines, rows_of

LIVE = {
    "head": "incidents/_head.html",
    "alerts": "alerts/_of_noun.html",
    "evidence": "incidents/_evidence.html",
    "attempts": "incidents/_attempts.html",
    "timeline": "incidents/_timeline.html",
    "answers": "incidents/_answers.html",
    "acts": "incidents/_acts.html",
    "task": "tasks/_header.html",
}
REPLY_CHARS = 1_200


def named(incident: Incident) -> dict[str, Any]:
    """Kind, failure mode, clusters and severity with their lines."""
    kind = IncidentKind(incident.kind)
    clusters: list[tuple[str, Words]] = [(cluster.value, CLUSTERS[cluster]) for cluster in clusters_of(kind)]
    mode = mode_of(kind)
    return {
        "kind": KINDS[kind],
        "mode": MODES[mode],
        "mode_value": mode.value,
        "clusters": clusters,
        "severity_line": SEVERITIES[Severity(incident.severity)],
        "state_line": STATES[IncidentState(incident.state)],
    }


def page_context(incident: Incident, user: User) -> dict[str, Any]:
    """Everything on the page. A bounded number of queries, whatever the length of the trace."""
    task = reads.task_of(incident)
    operate = may_operate(user, task.workspace)
    spans = line_of(incident.branch)
    proof = reads.proof_of(incident, spans)
    own = [place.seq for place in proof.places if place.task_id == task.pk]
    timeline = reads.timeline_of(incident, spans, own)
    attempts = compared(proof.attempts)
    cards = reads.questions_of(user, incident)
    checkpoint = reads.checkpoint_before(incident, spans)
    deciding = reads.deciding_step(incident)
    return {
        **head_context(task, operate, user),
        "incident": incident,
        "noun_alerts": alerts_of(user, incident=incident.pk),
        **named(incident),
        "is_resolved": incident.state == IncidentState.RESOLVED.value,
        "places": proof.places,
        "attempts": [{"shown": each, "result_diff": diff_lines(each.result)} for each in attempts],
        "attempts_summary": summary(attempts),
        "replies": [{"reply": reply, "text": reply.text[:REPLY_CHARS]} for reply in proof.replies],
        "rows": [
            {"row": row, "gap": timeline.gaps.get(row.seq), "proof": row.seq in own}
            for row in rows_of(timeline.events, current_line(task))
        ],
        "answers": [
            {**answer, "line": RUNGS[Rung(answer["rung"])], "at": datetime.fromisoformat(answer["at"])}
            for answer in incident.responses
            if isinstance(answer, dict)
        ],
        "cards": cards,
        "asked": [card for card in cards if card.escalation.incident_id == incident.pk],
        "asks_for_a_limit": reads.asks_for_a_limit(cards),
        "checkpoint": checkpoint,
        "controls": Controls.of(task, has_checkpoint=checkpoint is not None),
        "others": reads.others_with_cause(user, incident),
        "deciding": deciding,
        "use": context_of(deciding) if deciding else None,
        "context_address": _context_address(deciding),
    }


def _context_address(step: Step | None) -> str:
    """The page with the exact request of a step that asked a model."""
    if step is None or "as_of_seq" not in step.manifest:
        return ""
    return f"{reverse('task-context', args=[step.task_id, step.number])}?branch={step.branch.number}"
