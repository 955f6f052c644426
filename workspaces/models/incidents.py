"""Detected failures: what was found, the evidence, and what the runtime and people did about it."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.db import models
from django.db.models import Case, Q, Value, When

from workspaces.domain.incidents import IncidentKind, IncidentState, Rung, Severity

from .fields import choices, one_of
from .quotas import QuotaPool
from .tasks import Branch, Task


def rank(field: str, order: list[Any]) -> Case:
    """The place of the field's value in `order`, from 0."""
    places = [When(**{field: value.value}, then=Value(place)) for place, value in enumerate(order)]
    return Case(*places, output_field=models.PositiveSmallIntegerField())


class Incident(models.Model):
    """Written by actions/incidents.py only. Its life is in the trace as well (`incident.*`)."""

    task = models.ForeignKey(Task, models.CASCADE, related_name="incidents")
    branch = models.ForeignKey(Branch, models.CASCADE, related_name="incidents")
    kind = models.CharField(max_length=24, choices=choices(IncidentKind))
    severity = models.CharField(max_length=16, choices=choices(Severity))
    pattern = models.CharField(max_length=48)  # the rule that found it
    cause = models.CharField(max_length=240)  # equal across tasks for the same structural trouble
    fingerprint = models.CharField(max_length=64)  # equal in this task while it grows
    words = models.TextField()
    evidence = models.JSONField(default=list)  # domain/incidents.Evidence, as objects
    pool = models.ForeignKey(QuotaPool, models.SET_NULL, null=True, blank=True, related_name="incidents")  # it is about
    first_seq = models.BigIntegerField()
    last_seq = models.BigIntegerField()
    first_step = models.PositiveIntegerField(null=True)
    last_step = models.PositiveIntegerField(null=True)
    count = models.PositiveIntegerField(default=1)

    rung = models.CharField(max_length=16, choices=choices(Rung), default=Rung.NOTED.value)
    responses = models.JSONField(
        default=list, blank=True
    )  # [{rung, seq, at, words, count, step, helped?}]: what the runtime did
    nudges = models.PositiveIntegerField(default=0)
    nudge_helped = models.BooleanField(null=True)  # null: not nudged, or not known yet

    state = models.CharField(max_length=16, choices=choices(IncidentState), default=IncidentState.OPEN.value)
    opened_at = models.DateTimeField()
    grew_at = models.DateTimeField()
    acknowledged_by = models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, null=True, related_name="+")
    acknowledged_at = models.DateTimeField(null=True)
    resolved_by = models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, null=True, related_name="+")
    resolved_at = models.DateTimeField(null=True)  # also by the runtime: then nobody stands in resolved_by
    resolution = models.TextField(blank=True, default="")

    # what needs a person first: 0 is open and critical, 3 open and mere information, 11 resolved
    attention = models.GeneratedField(
        expression=rank("state", list(IncidentState)) * len(Severity) + rank("severity", list(Severity)[::-1]),
        output_field=models.PositiveSmallIntegerField(),
        db_persist=True,
    )

    class Meta:
        constraints = [
            one_of("kind", IncidentKind, table="incident"),
            one_of("severity", Severity, table="incident"),
            one_of("state", IncidentState, table="incident"),
            one_of("rung", Rung, table="incident"),
            models.UniqueConstraint(
                fields=["task", "branch", "fingerprint"],
                condition=~Q(state=IncidentState.RESOLVED.value),
                name="incident_once_while_open",
            ),
            models.CheckConstraint(
                condition=Q(state=IncidentState.RESOLVED.value, resolved_at__isnull=False)
                | (~Q(state=IncidentState.RESOLVED.value) & Q(resolved_at__isnull=True)),
                name="incident_resolved_says_when",
            ),
        ]
        indexes = [
            models.Index(fields=["attention", "-grew_at", "-id"], name="incident_attention"),
            models.Index(fields=["task", "-grew_at"], name="incident_of_task"),
            models.Index(fields=["cause"], name="incident_cause"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} in task {self.task_id}: {self.state}"
