"""How much may be spent, by whom and until when; and what was, period by period."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import Q

from workspaces.domain.states import BudgetPeriod, BudgetScope, UsagePurpose

from .fields import choices, one_of, usd
from .profiles import AgentProfile
from .tasks import Task
from .workspaces import Workspace

SCOPED = ("user", "workspace", "profile", "task")


def default_alerts() -> list[int]:
    return [50, 80, 95]


def _exactly_its_scope() -> Q:
    """The one column of the scope is set, the others are not; the site has none."""
    allowed = Q(scope=BudgetScope.SITE.value, **{f"{name}__isnull": True for name in SCOPED})
    for scope in SCOPED:
        allowed |= Q(scope=scope, **{f"{name}__isnull": name != scope for name in SCOPED})
    return allowed


class Budget(models.Model):
    """A hard limit in USD, in tokens or both. Ended, never deleted. `alerts`: percents at which it says so before."""

    scope = models.CharField(max_length=16, choices=choices(BudgetScope))
    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, null=True, blank=True, related_name="budgets")
    workspace = models.ForeignKey(Workspace, models.PROTECT, null=True, blank=True, related_name="budgets")
    profile = models.ForeignKey(AgentProfile, models.PROTECT, null=True, blank=True, related_name="budgets")
    task = models.ForeignKey(Task, models.PROTECT, null=True, blank=True, related_name="budgets")
    period = models.CharField(max_length=16, choices=choices(BudgetPeriod))
    limit_usd = usd(null=True, blank=True)
    limit_tokens = models.BigIntegerField(null=True, blank=True)
    alerts = models.JSONField(default=default_alerts, blank=True)
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, related_name="+")
    created_at = models.DateTimeField()
    ended_by = models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, null=True, blank=True, related_name="+")
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            one_of("scope", BudgetScope, table="budget"),
            one_of("period", BudgetPeriod, table="budget"),
            models.CheckConstraint(condition=_exactly_its_scope(), name="budget_one_scope"),
            models.CheckConstraint(
                condition=(Q(limit_usd__isnull=False) | Q(limit_tokens__isnull=False))
                & (Q(limit_usd__isnull=True) | Q(limit_usd__gte=0))
                & (Q(limit_tokens__isnull=True) | Q(limit_tokens__gte=0)),
                name="budget_limits_something",
            ),
        ]
        indexes = [
            models.Index(fields=["scope"], condition=Q(ended_at__isnull=True), name="budget_in_force"),
        ]

    def __str__(self) -> str:
        return f"budget {self.pk} ({self.scope}, {self.period})"


class BudgetAccount(models.Model):
    """What one budget has given in one period: spent, reserved for what runs, assumed for what never answered."""

    budget = models.ForeignKey(Budget, models.PROTECT, related_name="accounts")
    period_key = models.CharField(max_length=40)  # "2026-12-01", "2026-12", "total", "task:17"
    starts_at = models.DateTimeField()
    ends_at = models.DateTimeField(null=True, blank=True)
    spent_usd = usd(default=0)
    spent_tokens = models.BigIntegerField(default=0)
    reserved_usd = usd(default=0)
    reserved_tokens = models.BigIntegerField(default=0)
    assumed_usd = usd(default=0)
    assumed_tokens = models.BigIntegerField(default=0)
    alerted = models.JSONField(default=list, blank=True)  # [{"percent", "at"}]: each threshold once
    exhausted_at = models.DateTimeField(null=True, blank=True)  # when it first had no room

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["budget", "period_key"], name="budget_account_once"),
            models.CheckConstraint(
                condition=Q(reserved_usd__gte=0, reserved_tokens__gte=0), name="budget_account_holds_no_debt"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.budget} {self.period_key}"


class BudgetHold(models.Model):
    """What is reserved for something that runs and is no model call: a sandbox, until it is metered the next time."""

    workspace = models.ForeignKey(Workspace, models.CASCADE, related_name="budget_holds")
    purpose = models.CharField(max_length=16, choices=choices(UsagePurpose))
    short_usd = usd(default=0, db_default=0)  # what it takes until then and found no room for: nothing is held
    usd = usd()
    held_in = models.JSONField(default=list)  # ids of the accounts
    since = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["workspace", "purpose"], name="budget_hold_once"),
            one_of("purpose", UsagePurpose, table="budget_hold"),
        ]

    def __str__(self) -> str:
        return f"{self.usd} USD for {self.purpose} of {self.workspace}"


class BudgetWait(models.Model):
    """What a task that waits for a budget needs, and where: it is woken when there is room. One row a task."""

    task = models.OneToOneField(Task, models.CASCADE, related_name="budget_wait")
    expected_usd = usd(null=True)  # null: the price is not known
    expected_tokens = models.BigIntegerField()
    held_usd = usd()  # while it runs
    held_tokens = models.BigIntegerField()
    accounts = models.JSONField(default=list)  # ids of all that bind it
    short = models.JSONField(default=list)  # ids of those without room
    since = models.DateTimeField()

    def __str__(self) -> str:
        return f"task {self.task_id} waits for {self.expected_usd} USD, {self.expected_tokens} tokens"
