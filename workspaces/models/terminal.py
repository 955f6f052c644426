"""What operators typed into the terminals of workspaces."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from workspaces.domain.terminal import OPEN, CommandStatus

from .fields import choices, one_of
from .tasks import Task
from .workspaces import Workspace


class OperatorCommand(models.Model):
    """One command line, written down before it runs. Readers: the terminal, `engine/disk.py` (it may change files).

    While it is open, its workspace's `command` names it, and no task may write to the disk.
    """

    workspace = models.ForeignKey(Workspace, models.PROTECT, related_name="commands")
    task = models.ForeignKey(Task, models.PROTECT, null=True, related_name="operator_commands")  # held the workspace
    actor = models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, related_name="+")
    text = models.TextField()
    limit_s = models.PositiveIntegerField()
    status = models.CharField(max_length=16, choices=choices(CommandStatus), default=CommandStatus.ORDERED.value)
    stopped_by = models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, null=True, related_name="+")
    exit_code = models.IntegerField(null=True)
    timed_out = models.BooleanField(default=False)
    output = models.TextField(blank=True, default="")
    cut = models.BooleanField(default=False)  # some of the output was not kept
    why = models.TextField(blank=True, default="")  # of a command that failed or whose outcome is unknown
    duration_s = models.FloatField(null=True)

    # the lease, as a task has one
    fence = models.BigIntegerField(default=0)
    lease_until = models.DateTimeField(null=True)
    dispatched_at = models.DateTimeField(null=True)

    ordered_at = models.DateTimeField(db_default=Now())
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            one_of("status", CommandStatus, table="command"),
            models.UniqueConstraint(
                fields=["workspace"],
                condition=Q(status__in=[status.value for status in sorted(OPEN)]),
                name="command_one_open_a_workspace",
            ),
        ]
        indexes = [models.Index(fields=["workspace", "-ordered_at"], name="command_newest")]

    def __str__(self) -> str:
        return f"command {self.pk} of {self.workspace_id}"

    @property
    def key(self) -> str:
        """The name under which it runs in the sandbox: never twice."""
        return f"o{self.pk}"

    @property
    def is_open(self) -> bool:
        return self.status in {status.value for status in OPEN}
