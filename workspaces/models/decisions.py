"""What people were asked and what they did: escalations, approvals, audit entries."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import Q

from workspaces.domain.states import EscalationKind, EscalationStatus

from .fields import choices, one_of
from .incidents import Incident
from .tasks import Task
from .trace import ToolCall
from .workspaces import Workspace


class Escalation(models.Model):
    """A question to an operator with a deadline."""

    task = models.ForeignKey(Task, models.CASCADE, related_name="escalations")
    tool_call = models.ForeignKey(ToolCall, models.CASCADE, null=True, blank=True, related_name="escalations")
    incident = models.ForeignKey(Incident, models.SET_NULL, null=True, blank=True, related_name="escalations")
    kind = models.CharField(max_length=24, choices=choices(EscalationKind))
    question = models.TextField()
    status = models.CharField(max_length=16, choices=choices(EscalationStatus), default=EscalationStatus.OPEN.value)
    decision = models.CharField(max_length=24, blank=True, default="")
    words = models.TextField(blank=True, default="")
    answered_by = models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, null=True, related_name="+")
    answered_at = models.DateTimeField(null=True, blank=True)
    opened_at = models.DateTimeField()
    deadline = models.DateTimeField()

    class Meta:
        constraints = [
            one_of("kind", EscalationKind, table="escalation"),
            one_of("status", EscalationStatus, table="escalation"),
            models.UniqueConstraint(
                fields=["tool_call"],
                condition=Q(status=EscalationStatus.OPEN.value),
                name="escalation_one_open_a_call",
            ),
        ]
        indexes = [models.Index(fields=["status", "deadline"], name="escalation_inbox")]

    def __str__(self) -> str:
        return f"{self.kind} of task {self.task_id}: {self.status}"


class Approval(models.Model):
    """Leave to run exactly the call whose hash it holds: single-use, expiring."""

    tool_call = models.ForeignKey(ToolCall, models.CASCADE, related_name="approvals")
    arguments_hash = models.CharField(max_length=64)
    given_by = models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, related_name="+")
    given_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["tool_call"], condition=Q(used_at__isnull=True), name="approval_one_unused_a_call"
            )
        ]

    def __str__(self) -> str:
        return f"approval of {self.tool_call_id}"


class AuditEntry(models.Model):
    """Who did what, why. Append-only (a trigger). `workspace` is null for acts on the whole site."""

    actor = models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, null=True, related_name="+")
    action = models.CharField(max_length=48)
    workspace = models.ForeignKey(Workspace, models.PROTECT, null=True, related_name="audit")
    task = models.ForeignKey(Task, models.PROTECT, null=True, related_name="audit")
    reason = models.TextField(blank=True, default="")
    data = models.JSONField(default=dict)
    at = models.DateTimeField()

    class Meta:
        verbose_name_plural = "audit entries"
        indexes = [models.Index(fields=["task", "-at"], name="audit_of_task")]

    def __str__(self) -> str:
        return f"{self.action} by {self.actor_id}"
