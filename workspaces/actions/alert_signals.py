"""The only door for what may alert: a row in the transaction of what it tells of. Looks at no rule and locks nothing.

Lost is nothing: a signal is committed exactly when the incident, the question or the end is, and the digest
(actions/alerts.py) finds what nobody told it of.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.db.models import Exists, OuterRef, Q
from django.db.models.functions import Now

from workspaces import dispatch
from workspaces.domain.alerts import AlertKind, Edge
from workspaces.domain.incidents import Severity
from workspaces.domain.text import clean_json, clean_text, clip
from workspaces.models import AlertSignal, Task

WORDS_CHARS = 2000
KEPT = timedelta(days=30)  # of what is over: a rule's preview looks at it
BATCH = 5_000
# what a watch ends, and no signal (actions/alert_watches.py)
ENDED_BY_OTHERS = (AlertKind.QUOTA_EXHAUSTED.value,)


def signal(
    kind: AlertKind,
    edge: Edge,
    subject: str,
    *,
    words: str,
    severity: Severity = Severity.WARNING,
    at: datetime | None = None,
    task: Task | None = None,
    detail: str = "",
    cause: str = "",
    data: dict[str, Any] | None = None,
    **ids: int | None,
) -> None:
    """`subject` names the trouble ("incident:17"); what ended has the subject of what began.

    `ids`: workspace, user, profile, pool, incident, escalation, budget, endpoint. Of a `task` its own are filled in;
    its user is who made it, to whom its usage is booked.
    """
    if task is not None:
        ids = {
            "workspace": task.workspace_id,
            "user": task.created_by_id,
            "profile": task.profile_version.profile_id,
            **ids,
        }
    AlertSignal.objects.create(
        kind=kind.value,
        edge=edge.value,
        subject=subject,
        severity=severity.value,
        words=clip(clean_text(words), WORDS_CHARS),
        detail=detail,
        cause=clip(clean_text(cause), 240),
        task=task,
        data=clean_json(data or {}),
        at=at or Now(),
        **{f"{name}_id": value for name, value in ids.items()},
    )
    dispatch.alerts()


def forget_old() -> int:
    """Drop what was digested long ago and is over; what goes on stays, however old. Returns how many went."""
    told = AlertSignal.objects.filter(digested_at__lt=Now() - KEPT, at__lt=Now() - KEPT, kind__in=list(AlertKind))
    end = AlertSignal.objects.filter(
        subject=OuterRef("subject"), kind=OuterRef("kind"), edge=Edge.ENDED.value, pk__gte=OuterRef("pk")
    )
    over = told.filter(Q(edge=Edge.HAPPENED.value) | Q(kind__in=ENDED_BY_OTHERS) | Exists(end))
    going = over.order_by("pk").values_list("pk", flat=True)[:BATCH]  # a beginning before its end
    return AlertSignal.objects.filter(pk__in=list(going)).delete()[0]
