"""Which processes live, and how far the watch for alerts has come. Both say nothing of an earlier installation."""

from __future__ import annotations

from django.db import models

from workspaces.domain.states import ProcessRole

from .fields import choices, one_of


class Heartbeat(models.Model):
    """A worker process, or a scheduler's. Times are the database's own. No index on what every beat changes: a beat
    then rewrites one row in its page and nothing else."""

    key = models.CharField(max_length=160, unique=True)  # of one life: a process that starts again has another
    role = models.CharField(max_length=16, choices=choices(ProcessRole))
    host = models.CharField(max_length=120)
    pid = models.PositiveIntegerField()
    started_at = models.DateTimeField()
    seen_at = models.DateTimeField()
    ending_at = models.DateTimeField(null=True, blank=True)  # when it was told to end: its silence is then in order

    class Meta:
        constraints = [one_of("role", ProcessRole, table="heartbeat")]

    def __str__(self) -> str:
        return f"{self.role} {self.host}:{self.pid}"


class AlertWatch(models.Model):
    """When a condition was last looked at, by whichever process. `kind` empty: that anybody looked at all.

    `since`: from when on somebody has looked without a gap. What was not seen to happen does not count against
    anything from before it.
    """

    kind = models.CharField(max_length=24, unique=True, blank=True)
    looked_at = models.DateTimeField()
    since = models.DateTimeField()
    error = models.TextField(blank=True, default="")  # why the newest look failed
    failing_since = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return f"{self.kind or 'the watch'} at {self.looked_at:%H:%M:%S}"
