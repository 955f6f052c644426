"""Docker engines as they were last seen, and what moved workspaces left behind on them."""

from __future__ import annotations

from django.db import models
from django.db.models.functions import Now

from .workspaces import Workspace


class Node(models.Model):
    """An engine that the site names. `failing_since` is null while it answers. Times are the database's own."""

    name = models.CharField(max_length=40, unique=True)
    address = models.CharField(max_length=200, blank=True, default="")
    memory_bytes = models.BigIntegerField(default=0)
    cpus = models.PositiveIntegerField(default=0)
    runtimes = models.JSONField(default=list, blank=True)
    version = models.CharField(max_length=64, blank=True, default="")
    called_at = models.DateTimeField(null=True, blank=True)  # when a worker was last sent to look
    looked_at = models.DateTimeField(db_default=Now())
    failing_since = models.DateTimeField(null=True, blank=True)
    error = models.CharField(max_length=300, blank=True, default="")

    def __str__(self) -> str:
        return self.name


class Leftover(models.Model):
    """A sandbox and disk on a node that a workspace has left: removed when the node answers again."""

    node = models.CharField(max_length=40)
    workspace = models.ForeignKey(Workspace, models.CASCADE, related_name="leftovers")
    sandbox_key = models.CharField(max_length=40, unique=True)
    left_at = models.DateTimeField(db_default=Now())
    removed_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        indexes = [
            models.Index(fields=["node"], condition=models.Q(removed_at__isnull=True), name="leftover_to_remove")
        ]

    def __str__(self) -> str:
        return f"{self.sandbox_key} on {self.node}"
