"""The scratchpad's versions. Append-only (a trigger)."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from workspaces.domain.scratchpad import Author

from .fields import choices
from .tasks import Branch, Task


class ScratchpadEdit(models.Model):
    """One section as it was from an event on. Readers: the request's builder, the scratchpad panel, the auditor.

    `Task.scratchpad` is the newest of each section on the task's line (queries/scratchpad.py).
    """

    task = models.ForeignKey(Task, models.CASCADE, related_name="scratchpad_edits")
    branch = models.ForeignKey(Branch, models.CASCADE, related_name="scratchpad_edits")
    seq = models.BigIntegerField()  # of the event that wrote it
    section = models.CharField(max_length=80)
    text = models.TextField(blank=True, default="")  # the whole section; empty: it was removed
    by = models.CharField(max_length=16, choices=choices(Author))
    actor = models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, null=True, related_name="+")
    written_at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["task", "seq", "section"], name="scratchpad_edit_once")]
        indexes = [models.Index(fields=["branch", "section", "-seq"], name="scratchpad_line")]

    def __str__(self) -> str:
        return f"{self.section} at {self.task_id}/{self.seq}"
