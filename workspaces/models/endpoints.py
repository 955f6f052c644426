"""Where alerts are sent, each sending with its attempts, and the links in them that act once."""

from __future__ import annotations

import uuid

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from workspaces.domain.endpoints import (
    AttemptOutcome,
    DeliveryState,
    EndpointKind,
    EndpointLinks,
    EndpointState,
    LinkAction,
)

from .decisions import Escalation
from .fields import choices, one_of
from .profiles import open_sealed, seal

_USER = settings.AUTH_USER_MODEL


class Endpoint(models.Model):
    """A place that alerts are sent to. `owner` null: the site's, kept by its staff.

    The address of a webhook or a mailbox stands in `address`; that of a chat is a secret in itself and lies sealed
    in `sealed_address`, `address` then shows its host alone.
    """

    name = models.CharField(max_length=120)
    kind = models.CharField(max_length=16, choices=choices(EndpointKind))
    owner = models.ForeignKey(_USER, models.CASCADE, null=True, blank=True, related_name="alert_endpoints")
    address = models.CharField(max_length=2000)
    sealed_address = models.BinaryField(default=bytes, blank=True)
    links = models.CharField(max_length=16, choices=choices(EndpointLinks), default=EndpointLinks.ACKNOWLEDGE.value)
    state = models.CharField(max_length=16, choices=choices(EndpointState), default=EndpointState.ENABLED.value)
    state_reason = models.TextField(blank=True, default="")
    state_since = models.DateTimeField(db_default=Now())
    failing_since = models.DateTimeField(null=True, blank=True)  # null while its newest answer was a good one
    failures = models.PositiveIntegerField(default=0)  # in a row
    succeeded_at = models.DateTimeField(null=True, blank=True)
    held_until = models.DateTimeField(null=True, blank=True)  # it has too much to do, and asked not to be sent to
    owner_told_at = models.DateTimeField(null=True, blank=True)  # of its failing, by mail
    created_by = models.ForeignKey(_USER, models.PROTECT, related_name="+")
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        constraints = [
            one_of("kind", EndpointKind, table="endpoint"),
            one_of("links", EndpointLinks, table="endpoint"),
            one_of("state", EndpointState, table="endpoint"),
        ]

    def __str__(self) -> str:
        return self.name

    def open_address(self) -> str:
        """Where it is sent to. Raises cryptography.fernet.InvalidToken when FIELD_ENCRYPTION_KEYS changed."""
        return open_sealed(self.sealed_address) if self.sealed_address else self.address


class EndpointSecret(models.Model):
    """What a webhook's messages are signed with, sealed. At most two are valid at a time: the older one has an end."""

    endpoint = models.ForeignKey(Endpoint, models.CASCADE, related_name="secrets")
    sealed = models.BinaryField()
    hint = models.CharField(max_length=8)
    created_by = models.ForeignKey(_USER, models.PROTECT, related_name="+")
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    expires_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["endpoint"], condition=Q(expires_at__isnull=True), name="endpoint_secret_one_without_end"
            )
        ]

    def __str__(self) -> str:
        return f"secret …{self.hint}"

    @staticmethod
    def sealed_of(secret: str) -> bytes:
        return seal(secret)

    def open(self) -> str:
        """`whsec_…`. Raises cryptography.fernet.InvalidToken when FIELD_ENCRYPTION_KEYS changed."""
        return open_sealed(self.sealed)


class Delivery(models.Model):
    """One message to one endpoint: due until it is delivered or given up. In order of `number` within its alert.

    Written in the transaction of the change that it tells of (actions/deliveries.py). `change` is null for a test.
    `body` has the places of its links, not their tokens.
    """

    uid = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)  # the receiver's `webhook-id`
    endpoint = models.ForeignKey(Endpoint, models.CASCADE, related_name="deliveries")
    change = models.ForeignKey(
        "workspaces.AlertChange", models.CASCADE, null=True, blank=True, related_name="deliveries"
    )
    alert = models.ForeignKey("workspaces.Alert", models.CASCADE, null=True, blank=True, related_name="deliveries")
    number = models.PositiveIntegerField(default=0)  # of the change
    type = models.CharField(max_length=48)  # alert.opened.v1 …
    body = models.JSONField()
    state = models.CharField(max_length=16, choices=choices(DeliveryState), default=DeliveryState.PENDING.value)
    attempts_made = models.PositiveIntegerField(default=0)
    next_at = models.DateTimeField(db_default=Now())
    expires_at = models.DateTimeField()  # after this it is given up
    resent = models.PositiveIntegerField(default=0)  # how often a person has sent it again
    fence = models.PositiveIntegerField(default=0)  # counts the claims: only the newest may write
    leased_until = models.DateTimeField(null=True, blank=True)
    error = models.TextField(blank=True, default="")  # of the newest attempt, or why it was given up
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            one_of("state", DeliveryState, table="delivery"),
            models.UniqueConstraint(fields=["endpoint", "change"], name="delivery_once_a_change"),
        ]
        indexes = [
            models.Index(
                fields=["endpoint", "next_at", "id"],
                condition=Q(state=DeliveryState.PENDING.value),
                name="delivery_due",
            ),
            models.Index(
                fields=["endpoint", "leased_until"],
                condition=Q(state=DeliveryState.PENDING.value, leased_until__isnull=False),
                name="delivery_in_the_air",
            ),
            models.Index(
                fields=["endpoint", "alert", "number"],
                condition=Q(state=DeliveryState.PENDING.value),
                name="delivery_in_order",
            ),
            models.Index(fields=["finished_at"], condition=Q(finished_at__isnull=False), name="delivery_over"),
            models.Index(fields=["endpoint", "-id"], name="delivery_of_endpoint"),
            models.Index(fields=["alert", "-id"], name="delivery_of_alert"),
        ]

    def __str__(self) -> str:
        return f"{self.type} to {self.endpoint_id}: {self.state}"

    @property
    def message_id(self) -> str:
        return f"msg_{self.uid.hex}"


class DeliveryAttempt(models.Model):
    """One try, written before it is made and completed after it. No secret and no link's token is in it."""

    delivery = models.ForeignKey(Delivery, models.CASCADE, related_name="attempts")
    number = models.PositiveIntegerField()
    begun_at = models.DateTimeField(db_default=Now())
    duration_ms = models.PositiveIntegerField(null=True, blank=True)
    outcome = models.CharField(max_length=16, choices=choices(AttemptOutcome), default=AttemptOutcome.BEGUN.value)
    address = models.CharField(max_length=64, blank=True, default="")  # that was connected to
    request_headers = models.JSONField(default=dict, blank=True)
    status = models.PositiveSmallIntegerField(null=True, blank=True)
    response_headers = models.JSONField(default=dict, blank=True)
    response_body = models.TextField(blank=True, default="")  # its beginning
    error = models.TextField(blank=True, default="")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["delivery", "number"], name="delivery_attempt_once"),
            one_of("outcome", AttemptOutcome, table="delivery_attempt"),
        ]

    def __str__(self) -> str:
        return f"try {self.number}: {self.outcome}"


class ActionLink(models.Model):
    """A link that does one thing once, until it expires. Its token is signed from `uid` and stored nowhere."""

    uid = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    action = models.CharField(max_length=16, choices=choices(LinkAction))
    delivery = models.ForeignKey(Delivery, models.CASCADE, null=True, blank=True, related_name="action_links")
    endpoint = models.ForeignKey(Endpoint, models.CASCADE, related_name="action_links")
    alert = models.ForeignKey("workspaces.Alert", models.CASCADE, null=True, blank=True, related_name="action_links")
    escalation = models.ForeignKey(Escalation, models.CASCADE, null=True, blank=True, related_name="+")
    arguments_hash = models.CharField(max_length=64, blank=True, default="")  # that an approval is bound to
    acts_as = models.ForeignKey(_USER, models.CASCADE, related_name="+")
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    expires_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True, blank=True)
    used_by = models.ForeignKey(_USER, models.PROTECT, null=True, blank=True, related_name="+")
    used_from = models.CharField(max_length=64, blank=True, default="")
    revoked_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [one_of("action", LinkAction, table="action_link")]
        indexes = [
            models.Index(fields=["endpoint", "-id"], name="action_link_of_endpoint"),
            models.Index(
                fields=["created_at"], condition=Q(action=LinkAction.CONFIRM.value), name="action_link_asks_mailbox"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.action} until {self.expires_at:%Y-%m-%d %H:%M}"
