"""What people were asked and what they did: escalations, approvals, audit entries."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import Q

from workspaces.domain.policy import Approver, OnExpiry
from workspaces.domain.states import EscalationKind, EscalationStatus

from .fields import choices, one_of
from .incidents import Incident
from .tasks import Branch, Task
from .trace import ToolCall
from .workspaces import Workspace


class Escalation(models.Model):
    """A question to an operator with a deadline.

    `approver`, `on_expiry` and `expires_s` (of the approval, and of a second deadline) are those of the rule that held
    its call. The first of two approvals stands here until the second comes; an edit takes its place.
    """

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
    approver = models.CharField(
        max_length=16,
        choices=choices(Approver),
        default=Approver.ANY_OPERATOR.value,
        db_default=Approver.ANY_OPERATOR.value,
    )
    on_expiry = models.CharField(
        max_length=16, choices=choices(OnExpiry), default=OnExpiry.REJECT.value, db_default=OnExpiry.REJECT.value
    )
    expires_s = models.PositiveIntegerField(null=True)  # null: the profile's
    raised_at = models.DateTimeField(null=True, blank=True)  # when nobody had answered and it went to an owner
    first_approved_by = models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, null=True, related_name="+")
    first_approved_at = models.DateTimeField(null=True, blank=True)
    first_hash = models.CharField(max_length=64, blank=True, default="", db_default="")  # of the arguments approved

    class Meta:
        constraints = [
            one_of("kind", EscalationKind, table="escalation"),
            one_of("status", EscalationStatus, table="escalation"),
            one_of("approver", Approver, table="escalation"),
            one_of("on_expiry", OnExpiry, table="escalation"),
            models.UniqueConstraint(
                fields=["tool_call"],
                condition=Q(status=EscalationStatus.OPEN.value),
                name="escalation_one_open_a_call",
            ),
        ]
        indexes = [models.Index(fields=["status", "deadline"], name="escalation_inbox")]

    def __str__(self) -> str:
        return f"{self.kind} of task {self.task_id}: {self.status}"


class StandingApproval(models.Model):
    """Leave to run one exact call whenever it comes again in this task, until it is revoked.

    It holds on the line of history on which it was given (`branch`, `seq`): not before that, and in no fork.
    """

    task = models.ForeignKey(Task, models.CASCADE, related_name="standing_approvals")
    branch = models.ForeignKey(Branch, models.CASCADE, related_name="+")
    seq = models.BigIntegerField()  # of the event that gave it
    name = models.CharField(max_length=200)
    arguments = models.JSONField()
    arguments_hash = models.CharField(max_length=64)
    effect = models.CharField(max_length=16)
    reason = models.TextField()
    given_by = models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, related_name="+")
    given_at = models.DateTimeField()
    revoked_by = models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, null=True, related_name="+")
    revoked_at = models.DateTimeField(null=True)
    revoke_reason = models.TextField(blank=True, default="")

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["branch", "arguments_hash"],
                condition=Q(revoked_at__isnull=True),
                name="standing_approval_once_a_branch",
            )
        ]

    def __str__(self) -> str:
        return f"standing approval of {self.name} in task {self.task_id}"


class Approval(models.Model):
    """Leave to run exactly the call whose hash it holds: single-use, expiring.

    `also_by`: the first of two persons. `standing`: what it was made from, when nobody was asked.
    """

    tool_call = models.ForeignKey(ToolCall, models.CASCADE, related_name="approvals")
    arguments_hash = models.CharField(max_length=64)
    given_by = models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, related_name="+")
    also_by = models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, null=True, related_name="+")
    standing = models.ForeignKey(StandingApproval, models.PROTECT, null=True, related_name="approvals")
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
