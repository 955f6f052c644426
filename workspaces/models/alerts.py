"""What needs a person: the rules, what happened, the alerts that became of it, and their history."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

from workspaces.domain.alerts import AlertKind, AlertState, ChangeKind, Edge, GroupBy, RuleScope, Via
from workspaces.domain.incidents import Severity

from .budgets import Budget
from .decisions import Escalation
from .endpoints import Endpoint
from .fields import choices, one_of
from .incidents import Incident, rank
from .profiles import AgentProfile
from .quotas import QuotaPool
from .tasks import Task
from .workspaces import Workspace

_USER = settings.AUTH_USER_MODEL


def _link(to: type[models.Model] | str) -> models.ForeignKey:
    return models.ForeignKey(to, models.CASCADE, null=True, blank=True, related_name="+")


class AlertRule(models.Model):
    """When to alert, and whom. `owner` null: the site's, kept by its staff. An owner's matches only what he sees."""

    name = models.CharField(max_length=120)
    builtin = models.CharField(max_length=40, blank=True, default="")  # of a default rule: its name in the code
    owner = models.ForeignKey(_USER, models.CASCADE, null=True, blank=True, related_name="alert_rules")
    scope = models.CharField(max_length=16, choices=choices(RuleScope), default=RuleScope.SITE.value)
    user = _link(_USER)
    workspace = _link(Workspace)
    profile = _link(AgentProfile)
    kinds = models.JSONField(default=list)  # of AlertKind
    incident_kinds = models.JSONField(default=list, blank=True)  # of IncidentKind; empty: any
    min_severity = models.CharField(max_length=16, choices=choices(Severity), default=Severity.INFO.value)
    severity = models.CharField(max_length=16, choices=choices(Severity), blank=True, default="")  # "": the trouble's
    params = models.JSONField(default=dict, blank=True)  # thresholds of watched kinds, by name
    hold_s = models.PositiveIntegerField(default=0)
    cooldown_s = models.PositiveIntegerField(default=600)
    remind_s = models.PositiveIntegerField(default=0)  # 0: never
    group_by = models.CharField(max_length=16, choices=choices(GroupBy), default=GroupBy.TROUBLE.value)
    tell_resolved = models.BooleanField(default=True)
    endpoints = models.ManyToManyField(Endpoint, blank=True, related_name="rules")
    enabled = models.BooleanField(default=True)
    muted_until = models.DateTimeField(null=True, blank=True)
    muted_by = models.ForeignKey(_USER, models.PROTECT, null=True, blank=True, related_name="+")
    muted_reason = models.TextField(blank=True, default="")
    created_by = models.ForeignKey(_USER, models.PROTECT, null=True, blank=True, related_name="+")
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    changed_at = models.DateTimeField(db_default=Now())
    retired_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["builtin"], condition=~Q(builtin=""), name="alert_rule_builtin_once"),
            one_of("scope", RuleScope, table="alert_rule"),
            one_of("group_by", GroupBy, table="alert_rule"),
            one_of("min_severity", Severity, table="alert_rule"),
            one_of("severity", Severity, table="alert_rule", blank=True),
            models.CheckConstraint(
                condition=(
                    Q(scope=RuleScope.SITE.value, user=None, workspace=None, profile=None)
                    | Q(scope=RuleScope.USER.value, user__isnull=False, workspace=None, profile=None)
                    | Q(scope=RuleScope.WORKSPACE.value, user=None, workspace__isnull=False, profile=None)
                    | Q(scope=RuleScope.PROFILE.value, user=None, workspace=None, profile__isnull=False)
                ),
                name="alert_rule_scope_says_whose",
            ),
        ]

    def __str__(self) -> str:
        return self.name


class _About(models.Model):
    """What a trouble is about, as far as each is known: domain/alerts.IDS."""

    task = _link(Task)
    workspace = _link(Workspace)
    user = _link(_USER)
    profile = _link(AgentProfile)
    pool = _link(QuotaPool)
    incident = _link(Incident)
    escalation = _link(Escalation)
    budget = _link(Budget)
    endpoint = _link(Endpoint)

    class Meta:
        abstract = True


class AlertSignal(_About):
    """Something happened that may alert: written in the transaction of what it tells of (actions/alert_signals.py).

    Read by the digest (actions/alerts.py), by a rule's preview and by integrity rules. domain/alerts.Happening.
    """

    kind = models.CharField(max_length=24, choices=choices(AlertKind))
    edge = models.CharField(max_length=16, choices=choices(Edge))
    subject = models.CharField(max_length=64)
    severity = models.CharField(max_length=16, choices=choices(Severity))
    words = models.TextField(blank=True, default="")
    detail = models.CharField(max_length=48, blank=True, default="")
    cause = models.CharField(max_length=240, blank=True, default="")
    data = models.JSONField(default=dict, blank=True)
    at = models.DateTimeField()
    digested_at = models.DateTimeField(null=True, blank=True)
    error = models.TextField(blank=True, default="")  # why it could not be digested

    class Meta:
        constraints = [one_of("kind", AlertKind, table="alert_signal"), one_of("edge", Edge, table="alert_signal")]
        indexes = [
            models.Index(fields=["id"], condition=Q(digested_at__isnull=True), name="alert_signal_to_digest"),
            models.Index(fields=["kind", "-at"], name="alert_signal_of_kind"),
            models.Index(fields=["subject"], name="alert_signal_of_subject"),
        ]

    def __str__(self) -> str:
        return f"{self.subject} {self.edge}"


class Alert(models.Model):
    """One trouble, or a group of troubles, as a rule sees it. `workspace`: its members see it; `user`: that person;
    neither: site staff alone."""

    rule = models.ForeignKey(AlertRule, models.CASCADE, related_name="alerts")
    group_key = models.CharField(max_length=200)
    user = _link(_USER)
    workspace = _link(Workspace)
    kind = models.CharField(max_length=24, choices=choices(AlertKind))  # of the first trouble
    severity = models.CharField(max_length=16, choices=choices(Severity))
    state = models.CharField(max_length=16, choices=choices(AlertState))
    title = models.CharField(max_length=300)
    words = models.TextField(blank=True, default="")
    troubles = models.PositiveIntegerField(default=0)  # members ever
    active = models.PositiveIntegerField(default=0)  # members that go on
    began_at = models.DateTimeField()  # of the first trouble, or of the first after it was reopened
    opens_at = models.DateTimeField(null=True, blank=True)  # pending: when it has held long enough
    opened_at = models.DateTimeField(null=True, blank=True)
    reopened = models.PositiveIntegerField(default=0)
    acknowledged_by = models.ForeignKey(_USER, models.PROTECT, null=True, blank=True, related_name="+")
    acknowledged_at = models.DateTimeField(null=True, blank=True)
    resolved_by = models.ForeignKey(_USER, models.PROTECT, null=True, blank=True, related_name="+")
    resolved_at = models.DateTimeField(null=True, blank=True)  # also by itself: then nobody stands in resolved_by
    resolution = models.TextField(blank=True, default="")
    changed_at = models.DateTimeField()
    last_change = models.PositiveIntegerField(default=0)
    told = models.JSONField(default=dict, blank=True)  # domain/alerting: what receivers know, and since when
    tell_at = models.DateTimeField(null=True, blank=True)  # when there is something to tell (again)

    # what needs a person first: 0 is open and critical, 15 resolved and mere information
    attention = models.GeneratedField(
        expression=rank("state", [AlertState.OPEN, AlertState.ACKNOWLEDGED, AlertState.PENDING, AlertState.RESOLVED])
        * len(Severity)
        + rank("severity", list(Severity)[::-1]),
        output_field=models.PositiveSmallIntegerField(),
        db_persist=True,
    )

    class Meta:
        constraints = [
            one_of("kind", AlertKind, table="alert"),
            one_of("severity", Severity, table="alert"),
            one_of("state", AlertState, table="alert"),
            models.UniqueConstraint(
                fields=["rule", "group_key"],
                condition=~Q(state=AlertState.RESOLVED.value),
                name="alert_once_while_open",
            ),
            models.CheckConstraint(condition=Q(active__lte=F("troubles")), name="alert_active_within_troubles"),
            models.CheckConstraint(
                condition=Q(state=AlertState.RESOLVED.value, resolved_at__isnull=False)
                | (~Q(state=AlertState.RESOLVED.value) & Q(resolved_at__isnull=True)),
                name="alert_resolved_says_when",
            ),
        ]
        indexes = [
            models.Index(fields=["attention", "-changed_at", "-id"], name="alert_attention"),
            models.Index(fields=["rule", "group_key", "-id"], name="alert_of_group"),
            models.Index(fields=["workspace", "attention"], name="alert_of_workspace"),
            models.Index(fields=["user", "attention"], name="alert_of_user"),
            models.Index(fields=["opens_at"], condition=Q(opens_at__isnull=False), name="alert_to_open"),
            models.Index(fields=["tell_at"], condition=Q(tell_at__isnull=False), name="alert_to_tell"),
            models.Index(
                fields=["-resolved_at", "-id"],
                condition=Q(state=AlertState.RESOLVED.value),
                name="alert_resolved_lately",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.title}: {self.state}"


class AlertMember(_About):
    """One trouble in an alert, active until it ends. The evidence that its alert links to."""

    alert = models.ForeignKey(Alert, models.CASCADE, related_name="members")
    subject = models.CharField(max_length=64)
    kind = models.CharField(max_length=24, choices=choices(AlertKind))
    severity = models.CharField(max_length=16, choices=choices(Severity))
    words = models.TextField(blank=True, default="")
    detail = models.CharField(max_length=48, blank=True, default="")
    data = models.JSONField(default=dict, blank=True)
    began_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)
    times = models.PositiveIntegerField(default=1)  # how often it began

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["alert", "subject"], name="alert_member_once"),
            one_of("kind", AlertKind, table="alert_member"),
        ]
        indexes = [
            models.Index(fields=["subject"], condition=Q(ended_at__isnull=True), name="alert_member_active"),
        ]

    def __str__(self) -> str:
        return f"{self.subject} in alert {self.alert_id}"


class AlertChange(models.Model):
    """An entry of an alert's history, numbered 1, 2, 3 … within it. Append-only (a trigger).

    `payload`: what its deliveries say ({} where nobody was told), domain/webhooks.py. Read by the alert's page, the
    deliveries and integrity rules.
    """

    alert = models.ForeignKey(Alert, models.CASCADE, related_name="changes")
    number = models.PositiveIntegerField()
    kind = models.CharField(max_length=16, choices=choices(ChangeKind))
    at = models.DateTimeField()
    actor = models.ForeignKey(_USER, models.PROTECT, null=True, blank=True, related_name="+")
    via = models.CharField(max_length=16, choices=choices(Via), default=Via.RUNTIME.value)
    words = models.TextField(blank=True, default="")
    data = models.JSONField(default=dict, blank=True)
    payload = models.JSONField(default=dict, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["alert", "number"], name="alert_change_once"),
            one_of("kind", ChangeKind, table="alert_change"),
            one_of("via", Via, table="alert_change"),
        ]
        indexes = [
            models.Index(
                fields=["-at"],
                condition=Q(kind__in=[ChangeKind.ACKNOWLEDGED.value, ChangeKind.RESOLVED.value], actor__isnull=False),
                name="alert_change_by_people",
            )
        ]

    def __str__(self) -> str:
        return f"{self.number}. {self.kind}"
