"""Which of the troubles that were signalled go on. Writes nothing; what alerts make of them is queries/alerts.py."""

from __future__ import annotations

from collections.abc import Iterable

from workspaces.domain.alerts import AlertKind, Edge
from workspaces.models import AlertSignal


def standing(kind: AlertKind, subjects: Iterable[str]) -> set[str]:
    """Those that began and have not ended since."""
    told = AlertSignal.objects.filter(kind=kind.value, subject__in=list(subjects))
    newest = told.order_by("subject", "-pk").distinct("subject").values_list("subject", "edge")
    return {subject for subject, edge in newest if edge in (Edge.BEGAN.value, Edge.WORSE.value)}


def standing_of_task(kind: AlertKind, task_id: int) -> list[int]:
    """The questions of a task whose trouble of this kind goes on: ids of escalations, in order."""
    told = AlertSignal.objects.filter(kind=kind.value, task=task_id, escalation__isnull=False)
    newest = told.order_by("escalation", "-pk").distinct("escalation").values_list("escalation", "edge")
    return [question for question, edge in newest if edge in (Edge.BEGAN.value, Edge.WORSE.value)]
