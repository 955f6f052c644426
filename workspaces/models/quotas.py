"""A provider's shared allowance: its pool, who is served when, and what happened to it."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import Q

from workspaces.domain.states import Circuit, ClaimState, NoticeKind

from .fields import choices, one_of
from .tasks import Task
from .trace import ModelCall


class QuotaPool(models.Model):
    """What calls with one key at one address share, for the models that `group` names.

    `state` is domain/quotas.PoolState: read and written under this row's lock only (actions/quotas.py).
    """

    name = models.CharField(max_length=200)
    provider = models.CharField(max_length=16)
    base_url = models.CharField(max_length=500, blank=True, default="")
    account = models.CharField(max_length=64, blank=True, default="")  # ProviderKey.fingerprint, or who else shares it
    group = models.CharField(max_length=200)  # glob of model names
    by_hand = models.BooleanField(default=False)  # made by site staff; otherwise at its first use, for one model
    limits = models.JSONField(default=dict, blank=True)  # set by hand: domain/quotas.Limits
    learned = models.JSONField(default=dict, blank=True)  # {limit: {"value", "at", "from"}}
    policy = models.JSONField(default=dict, blank=True)  # of retries, where it differs from the defaults
    state = models.JSONField(default=dict, blank=True)
    circuit = models.CharField(max_length=16, choices=choices(Circuit), default=Circuit.CLOSED.value)
    blocked_until = models.DateTimeField(null=True, blank=True)
    blocked_reason = models.TextField(blank=True, default="")
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, null=True, blank=True, related_name="+")
    created_at = models.DateTimeField()
    retired_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["provider", "base_url", "account", "group"],
                condition=Q(retired_at__isnull=True),
                name="quota_pool_once",
            ),
            one_of("circuit", Circuit, table="quota_pool"),
        ]

    def __str__(self) -> str:
        return self.name


class QuotaShare(models.Model):
    """What a user has had of a pool, on the pool's virtual clock: the less, the sooner the next call."""

    pool = models.ForeignKey(QuotaPool, models.CASCADE, related_name="shares")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="quota_shares")
    weight = models.FloatField(default=1.0)
    finish = models.FloatField(default=0.0)
    clock = models.FloatField(default=0.0)  # among the user's own tasks
    open = models.IntegerField(default=0)  # claims that wait or are being served
    used_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["pool", "user"], name="quota_share_once"),
            models.CheckConstraint(condition=Q(weight__gt=0, open__gte=0), name="quota_share_positive"),
        ]

    def __str__(self) -> str:
        return f"{self.user} in {self.pool}"


class QuotaClaim(models.Model):
    """A task's place in a pool: in the queue, or served. One row a task and pool; past leases stand in ModelCall."""

    pool = models.ForeignKey(QuotaPool, models.CASCADE, related_name="claims")
    task = models.ForeignKey(Task, models.CASCADE, related_name="quota_claims")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="+")
    state = models.CharField(max_length=16, choices=choices(ClaimState), default=ClaimState.IDLE.value)
    tag = models.FloatField(default=0.0)  # its user's place in the queue when it came, or the one that it took
    task_finish = models.FloatField(default=0.0)
    interactive = models.BooleanField(default=False)
    input_tokens = models.BigIntegerField(default=0)  # estimated
    output_tokens = models.BigIntegerField(default=0)  # at most
    cost = models.FloatField(default=0.0)  # charged to its user when it was granted
    retry = models.BooleanField(default=False)
    not_before = models.DateTimeField(null=True, blank=True)
    queued_at = models.DateTimeField(null=True, blank=True)
    granted_at = models.DateTimeField(null=True, blank=True)
    expires_at = models.DateTimeField(null=True, blank=True)  # of a grant that nobody takes up, or of a lease
    model_call = models.OneToOneField(ModelCall, models.SET_NULL, null=True, blank=True, related_name="lease")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["pool", "task"], name="quota_claim_once"),
            one_of("state", ClaimState, table="quota_claim"),
        ]
        indexes = [
            models.Index(
                fields=["pool", "tag", "id"], condition=Q(state=ClaimState.WAITING.value), name="quota_claim_queue"
            ),
            models.Index(
                fields=["pool", "user"], condition=~Q(state=ClaimState.IDLE.value), name="quota_claim_of_user"
            ),
            models.Index(
                fields=["expires_at"],
                condition=Q(state__in=[ClaimState.GRANTED.value, ClaimState.LEASED.value]),
                name="quota_claim_expires",
            ),
        ]

    def __str__(self) -> str:
        return f"task {self.task_id} in {self.pool}: {self.state}"


class QuotaMinute(models.Model):
    """What a pool did in one minute: the history charts are made of these."""

    pool = models.ForeignKey(QuotaPool, models.CASCADE, related_name="minutes")
    minute = models.DateTimeField()
    calls = models.IntegerField(default=0)
    input_tokens = models.BigIntegerField(default=0)
    output_tokens = models.BigIntegerField(default=0)
    refusals = models.IntegerField(default=0)
    retries = models.IntegerField(default=0)
    waits = models.IntegerField(default=0)
    waited_s = models.FloatField(default=0.0)  # of the waits that ended in it
    longest_queue = models.IntegerField(default=0)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["pool", "minute"], name="quota_minute_once")]

    def __str__(self) -> str:
        return f"{self.pool} at {self.minute:%H:%M}"


class QuotaNotice(models.Model):
    """Something that changed what a pool lets through. Append-only (a trigger)."""

    pool = models.ForeignKey(QuotaPool, models.PROTECT, related_name="notices")
    kind = models.CharField(max_length=24, choices=choices(NoticeKind))
    at = models.DateTimeField()
    words = models.TextField()
    data = models.JSONField(default=dict, blank=True)
    task = models.ForeignKey(Task, models.PROTECT, null=True, blank=True, related_name="+")
    model_call = models.ForeignKey(ModelCall, models.PROTECT, null=True, blank=True, related_name="+")
    actor = models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, null=True, blank=True, related_name="+")

    class Meta:
        constraints = [one_of("kind", NoticeKind, table="quota_notice")]
        indexes = [models.Index(fields=["pool", "-at"], name="quota_notice_of_pool")]

    def __str__(self) -> str:
        return f"{self.pool}: {self.words}"
