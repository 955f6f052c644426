"""A user's persistent place, its members, and the saved states of its disk."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from workspaces.domain.isolation import NetworkMode, Runtime
from workspaces.domain.roles import Role
from workspaces.domain.states import WorkspaceState

from .fields import choices, one_of


class Workspace(models.Model):
    """Survives every task. `held_by` is the one task that may write to the disk; while `command` runs, it may not.

    `state` and what belongs to it are written by actions/sleep.py only. Times are the database's own.
    """

    class Driver(models.TextChoices):
        DOCKER = "docker", "Docker container"
        LOCAL = "local", "local, not isolated"

    name = models.CharField(max_length=80)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, related_name="owned_workspaces")
    members: models.ManyToManyField = models.ManyToManyField(
        settings.AUTH_USER_MODEL, through="Membership", related_name="workspaces"
    )
    sandbox_key = models.CharField(max_length=40, unique=True)
    driver = models.CharField(max_length=16, choices=Driver.choices)
    node = models.CharField(max_length=40, blank=True, default="")  # the engine; empty: not placed yet
    runtime = models.CharField(max_length=32, choices=choices(Runtime), default=Runtime.RUNC.value)
    network = models.CharField(max_length=16, choices=choices(NetworkMode), default=NetworkMode.NONE.value)
    network_allow = models.JSONField(default=list, blank=True)  # "host:port" each, see domain/isolation.py
    network_read = models.BigIntegerField(default=0)  # how far the proxy's log is in the trace
    memory_bytes = models.BigIntegerField(default=512 * 1024**2)
    cpus = models.DecimalField(max_digits=5, decimal_places=2, default=1)
    pids = models.PositiveIntegerField(default=256)
    disk_bytes = models.BigIntegerField(default=2 * 1024**3)
    held_by = models.OneToOneField("Task", models.SET_NULL, null=True, blank=True, related_name="held_workspace")
    command = models.OneToOneField("OperatorCommand", models.SET_NULL, null=True, blank=True, related_name="+")
    left_running = models.BooleanField(default=False)  # it was let go of, and what was started there may still run
    forked_from = models.ForeignKey("self", models.SET_NULL, null=True, blank=True, related_name="forks")
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    state = models.CharField(max_length=16, choices=choices(WorkspaceState), default=WorkspaceState.ASLEEP.value)
    state_since = models.DateTimeField(db_default=Now())
    state_until = models.DateTimeField(null=True, blank=True)  # the lease of whoever wakes it or puts it to sleep
    state_fence = models.BigIntegerField(default=0)  # that worker's writes carry it
    used_at = models.DateTimeField(db_default=Now())  # when its disk or sandbox was last wanted
    wake_wanted_at = models.DateTimeField(null=True, blank=True)  # its place in the queue of those that are to wake
    idle_timeout_s = models.PositiveIntegerField(null=True, blank=True)  # null: the site's; 0: it never sleeps
    slept_snapshot = models.ForeignKey(
        "Snapshot", models.PROTECT, null=True, blank=True, related_name="+"
    )  # what its disk holds while it sleeps; null once somebody touches it

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["owner", "name"], name="workspace_name_once_an_owner"),
            models.CheckConstraint(
                condition=Q(memory_bytes__gt=0, cpus__gt=0, pids__gt=0, disk_bytes__gt=0),
                name="workspace_limits_positive",
            ),
            one_of("state", WorkspaceState, table="workspace"),
            one_of("network", NetworkMode, table="workspace"),
            one_of("runtime", Runtime, table="workspace"),
            models.CheckConstraint(
                condition=Q(
                    state__in=[WorkspaceState.FALLING_ASLEEP.value, WorkspaceState.WAKING.value],
                    state_until__isnull=False,
                )
                | Q(state__in=[WorkspaceState.AWAKE.value, WorkspaceState.ASLEEP.value], state_until__isnull=True),
                name="workspace_claim_has_a_lease",
            ),
        ]
        indexes = [
            models.Index(
                fields=["state", "used_at"],
                condition=~Q(state=WorkspaceState.ASLEEP.value),
                name="workspace_not_asleep",
            ),
            models.Index(
                fields=["wake_wanted_at"], condition=Q(wake_wanted_at__isnull=False), name="workspace_to_wake"
            ),
        ]

    def __str__(self) -> str:
        return self.name


class Membership(models.Model):
    """A person's role in a workspace. The owner has one as well."""

    workspace = models.ForeignKey(Workspace, models.CASCADE, related_name="memberships")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="memberships")
    role = models.CharField(max_length=16, choices=choices(Role))
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["workspace", "user"], name="membership_once"),
            one_of("role", Role, table="membership"),
        ]

    def __str__(self) -> str:
        return f"{self.user} is {self.role} of {self.workspace}"


class Snapshot(models.Model):
    """The saved state of a workspace's disk; `ref` is the driver's name for it."""

    workspace = models.ForeignKey(Workspace, models.PROTECT, related_name="snapshots")
    ref = models.CharField(max_length=200)
    added_bytes = models.BigIntegerField()
    total_bytes = models.BigIntegerField()
    files = models.BigIntegerField()
    duration_s = models.FloatField()
    quiet = models.BooleanField(db_default=False)  # nothing ran that could have changed the disk after it
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    dropped_at = models.DateTimeField(null=True, blank=True)  # from then on nothing may be restored from it
    freed_at = models.DateTimeField(null=True, blank=True)  # its bytes are gone

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(freed_at__isnull=True) | Q(dropped_at__isnull=False), name="snapshot_dropped_before_freed"
            )
        ]
        indexes = [
            models.Index(fields=["workspace", "-created_at"], name="snapshot_newest"),
            models.Index(
                fields=["dropped_at"],
                condition=Q(dropped_at__isnull=False, freed_at__isnull=True),
                name="snapshot_to_free",
            ),
        ]

    def __str__(self) -> str:
        return self.ref
