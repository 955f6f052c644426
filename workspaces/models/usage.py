"""What was used, at what price, and the sums of it. Records and prices are append-only (a trigger)."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import Q

from workspaces.domain.states import UsagePurpose

from .fields import choices, one_of, usd
from .profiles import AgentProfile
from .tasks import Step, Task
from .trace import ModelCall
from .workspaces import Workspace


def amount() -> models.DecimalField:
    """Tokens, seconds or GiB-hours, with 6 places."""
    return models.DecimalField(max_digits=24, decimal_places=6)


class UsageRecord(models.Model):
    """A priced quantity, booked to one user and workspace, and to the task, step and model call that it is of.

    Written by actions/usage.py only, with its rollup.
    """

    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, related_name="usage")
    workspace = models.ForeignKey(Workspace, models.PROTECT, related_name="usage")
    task = models.ForeignKey(Task, models.PROTECT, null=True, blank=True, related_name="usage")
    step = models.ForeignKey(Step, models.PROTECT, null=True, blank=True, related_name="usage")
    model_call = models.ForeignKey(ModelCall, models.PROTECT, null=True, blank=True, related_name="usage")
    profile = models.ForeignKey(AgentProfile, models.PROTECT, null=True, blank=True, related_name="+")
    model = models.CharField(max_length=200, blank=True, default="", db_default="")
    purpose = models.CharField(
        max_length=16, choices=choices(UsagePurpose), default=UsagePurpose.STEP.value, db_default="step"
    )
    unit = models.CharField(max_length=32)
    quantity = amount()
    unit_price_usd = models.DecimalField(max_digits=24, decimal_places=15, null=True, blank=True)  # of one
    cost_usd = usd(null=True)  # null: the price is unknown
    price_source = models.CharField(max_length=120)
    created_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["model_call", "unit"], name="usage_once"),
            one_of("purpose", UsagePurpose, table="usage"),
        ]

    def __str__(self) -> str:
        return f"{self.quantity} {self.unit} of task {self.task_id}"


class UsageRollup(models.Model):
    """The records of one hour (UTC) that are alike, summed. Always equal to them: written in the same transaction."""

    hour = models.DateTimeField()
    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, related_name="+")
    workspace = models.ForeignKey(Workspace, models.PROTECT, related_name="+")
    task = models.ForeignKey(Task, models.PROTECT, null=True, blank=True, related_name="+")
    profile = models.ForeignKey(AgentProfile, models.PROTECT, null=True, blank=True, related_name="+")
    model = models.CharField(max_length=200, blank=True, default="")
    purpose = models.CharField(max_length=16, choices=choices(UsagePurpose))
    unit = models.CharField(max_length=32)
    records = models.IntegerField()
    quantity = amount()
    cost_usd = usd(default=0)  # of the records with a price
    unpriced = models.IntegerField(default=0)  # records without one
    unpriced_quantity = amount()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["hour", "task", "workspace", "user", "profile", "model", "purpose", "unit"],
                name="usage_rollup_once",
                nulls_distinct=False,
            )
        ]
        indexes = [
            models.Index(fields=["model", "unit"], condition=Q(unpriced__gt=0), name="usage_rollup_unpriced"),
        ]

    def __str__(self) -> str:
        return f"{self.quantity} {self.unit} in the hour {self.hour:%Y-%m-%d %H}"


class UsageDay(models.Model):
    """The records of one day (UTC) that are alike but for their unit, summed: what pages about many days read.

    With the task among its keys two tasks never write one row. Written with the records, as UsageRollup is.
    """

    day = models.DateField()
    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, related_name="+")
    workspace = models.ForeignKey(Workspace, models.PROTECT, related_name="+")
    task = models.ForeignKey(Task, models.PROTECT, null=True, blank=True, related_name="+")
    profile = models.ForeignKey(AgentProfile, models.PROTECT, null=True, blank=True, related_name="+")
    model = models.CharField(max_length=200, blank=True, default="")
    purpose = models.CharField(max_length=16, choices=choices(UsagePurpose))
    records = models.IntegerField()
    cost_usd = usd(default=0)  # of the records with a price
    unpriced = models.IntegerField(default=0)  # records without one

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["day", "task", "workspace", "user", "profile", "model", "purpose"],
                name="usage_day_once",
                nulls_distinct=False,
            )
        ]

    def __str__(self) -> str:
        return f"{self.cost_usd} USD for {self.purpose} on {self.day}"


class SandboxMeter(models.Model):
    """How far one machine of a workspace's sandbox was booked: its counters as they were last read."""

    workspace = models.ForeignKey(Workspace, models.CASCADE, related_name="meters")
    machine = models.CharField(max_length=80)  # the container's id
    cpu_s = models.FloatField()
    age_s = models.FloatField()
    memory_bytes = models.BigIntegerField()
    at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["workspace", "machine"], name="sandbox_meter_once")]

    def __str__(self) -> str:
        return f"{self.machine[:12]} of workspace {self.workspace_id}"


class StorageMeter(models.Model):
    """How far a workspace's stored bytes were booked, and how many there were."""

    workspace = models.OneToOneField(Workspace, models.CASCADE, related_name="storage_meter")
    disk_bytes = models.BigIntegerField()
    snapshot_bytes = models.BigIntegerField()
    at = models.DateTimeField()

    class Meta:
        indexes = [models.Index(fields=["at"], name="storage_meter_due")]

    def __str__(self) -> str:
        return f"workspace {self.workspace_id}: {self.disk_bytes + self.snapshot_bytes} bytes"


class Price(models.Model):
    """The site's own price, from `valid_from` on. A change is a new row; the newest that is valid counts."""

    SANDBOX = "sandbox"
    STORAGE = "storage"

    subject = models.CharField(max_length=200)  # glob of model names, or SANDBOX, or STORAGE
    unit = models.CharField(max_length=32)
    usd = usd(null=True, blank=True)  # of a million tokens, a CPU hour, a GiB hour, a GiB month; null: no longer ours
    valid_from = models.DateTimeField()
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, related_name="+")
    created_at = models.DateTimeField()
    reason = models.TextField()

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(usd__isnull=True) | Q(usd__gte=0), name="price_not_negative")]
        indexes = [models.Index(fields=["subject", "unit", "-valid_from"], name="price_newest")]

    def __str__(self) -> str:
        return f"{self.unit} of {self.subject}: {self.usd}"
