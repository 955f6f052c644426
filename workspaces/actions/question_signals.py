"""What questions to operators signal: asked, no longer asked, overdue, and that a person has come. Changes no question.

An overdue question is one that nobody answered by its deadline: it went to an owner, or it expired. Its trouble lasts
until it is answered, or until a person acts on its task, or the task ends.
"""

from __future__ import annotations

from typing import Any

from workspaces.domain.alerts import AlertKind, Edge
from workspaces.domain.incidents import Severity
from workspaces.domain.states import EscalationKind, EscalationStatus
from workspaces.models import Escalation
from workspaces.queries.signals import standing_of_task

from .alert_signals import signal
from .pen import Pen
from .sandbox_signals import cause_of

# agentdesk itself cannot go on, or an effect may have happened: graver than a wish to be told something
GRAVE = frozenset({EscalationKind.SANDBOX.value, EscalationKind.INTERNAL.value, EscalationKind.UNKNOWN_OUTCOME.value})


def asked(pen: Pen, question: Escalation) -> None:
    """With the incident that it asks about, if there is one: the two are one trouble."""
    _signal(pen, AlertKind.ESCALATION_OPENED, Edge.BEGAN, question, question.question)
    if question.kind == EscalationKind.SANDBOX.value:
        sandbox = f"The sandbox of task {pen.task.pk} fails: {question.question}"
        _signal(pen, AlertKind.SANDBOX_UNHEALTHY, Edge.BEGAN, question, sandbox)


def over(pen: Pen, question: Escalation, words: str) -> None:
    """Answered or withdrawn. `question` as it was read before."""
    _no_longer_asked(pen, question, words)
    if question.raised_at is not None:
        _signal(pen, AlertKind.ESCALATION_OVERDUE, Edge.ENDED, question, words)


def raised(pen: Pen, question: Escalation) -> None:
    """Nobody answered, and it went to an owner."""
    words = f"Nobody answered by the deadline. An owner has to, by {question.deadline:%Y-%m-%d %H:%M} UTC: "
    _signal(pen, AlertKind.ESCALATION_OVERDUE, Edge.BEGAN, question, words + question.question)


def expired(pen: Pen, question: Escalation) -> None:
    """Nobody answered, and nobody can any more."""
    _no_longer_asked(pen, question, "The deadline has passed, and nobody had answered.")
    edge = Edge.BEGAN if question.raised_at is None else Edge.WORSE
    words = f"Nobody answered before the deadline: {question.question}"
    _signal(pen, AlertKind.ESCALATION_OVERDUE, edge, question, words)


def _no_longer_asked(pen: Pen, question: Escalation, words: str) -> None:
    _signal(pen, AlertKind.ESCALATION_OPENED, Edge.ENDED, question, words)
    if question.kind == EscalationKind.SANDBOX.value:
        _signal(pen, AlertKind.SANDBOX_UNHEALTHY, Edge.ENDED, question, words)


def attended(pen: Pen, words: str) -> None:
    """A person acts on the task, or it has ended: what expired without an answer is nobody's lack any more."""
    overdue = standing_of_task(AlertKind.ESCALATION_OVERDUE, pen.task.pk)
    if overdue:
        closed = Escalation.objects.filter(pk__in=overdue).exclude(status=EscalationStatus.OPEN.value)
        for question in closed.order_by("pk"):
            _signal(pen, AlertKind.ESCALATION_OVERDUE, Edge.ENDED, question, words)


def _signal(pen: Pen, kind: AlertKind, edge: Edge, question: Escalation, words: str) -> None:
    grave = kind is AlertKind.ESCALATION_OVERDUE or question.kind in GRAVE
    data: dict[str, Any] = {"question": question.question, "deadline": question.deadline.isoformat()}
    signal(
        kind,
        edge,
        _SUBJECTS[kind].format(question.pk),
        words=words,
        severity=Severity.ERROR if grave else Severity.WARNING,
        at=pen.now,
        task=pen.task,
        detail=question.kind,
        cause=cause_of(pen.task.workspace) if kind is AlertKind.SANDBOX_UNHEALTHY else f"escalation/{question.kind}",
        data=data,
        escalation=question.pk,
        incident=question.incident_id,
    )


# of each kind its own, so that the end of one is not the end of another
_SUBJECTS = {
    AlertKind.ESCALATION_OPENED: "escalation:{}",
    AlertKind.ESCALATION_OVERDUE: "overdue:{}",
    AlertKind.SANDBOX_UNHEALTHY: "sandbox:{}",
}
