"""What is sent in place of what was written: append-only rows (a trigger), so that a past request stays what it was."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from workspaces.domain.context import How

from .fields import choices, one_of
from .tasks import Branch, Task
from .trace import Message, ModelCall


class ContextFrame(models.Model):
    """What a request holds besides history. By its hash, so one row serves every step that was framed alike."""

    hash = models.CharField(max_length=64, primary_key=True)
    rules = models.TextField()
    tools = models.JSONField()  # [[name, description, parameters]]
    made_at = models.DateTimeField(db_default=Now())

    def __str__(self) -> str:
        return f"frame {self.hash[:12]}"


class Replacement(models.Model):
    """How a message that is too long is sent, from `seq` on: that of the receipt. Readers: queries/contexts.py."""

    task = models.ForeignKey(Task, models.CASCADE, related_name="replacements")
    branch = models.ForeignKey(Branch, models.CASCADE, related_name="replacements")
    seq = models.BigIntegerField()
    message = models.ForeignKey(Message, models.PROTECT, related_name="replacements")  # may be of an earlier branch
    how = models.CharField(max_length=16, choices=choices(How))
    text = models.TextField(blank=True, default="")
    calls = models.JSONField(null=True)  # null: as they were written
    tokens = models.PositiveIntegerField()
    path = models.CharField(max_length=400, blank=True, default="")  # of the whole, in the workspace

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["task", "seq", "message"], name="replacement_once"),
            one_of("how", How, table="replacement"),
            models.CheckConstraint(
                condition=Q(how=How.OFFLOADED.value) ^ Q(path=""), name="replacement_offloaded_has_a_path"
            ),
        ]
        indexes = [models.Index(fields=["branch", "seq"], name="replacement_line")]

    def __str__(self) -> str:
        return f"message {self.message_id}, {self.how}"


class Summary(models.Model):
    """Sent, from `seq` on, for every message up to the last one that it covers; what is pinned stays beside it."""

    task = models.ForeignKey(Task, models.CASCADE, related_name="summaries")
    branch = models.ForeignKey(Branch, models.CASCADE, related_name="summaries")
    seq = models.BigIntegerField()
    first_message = models.ForeignKey(Message, models.PROTECT, related_name="+")  # after the summary before it
    last_message = models.ForeignKey(Message, models.PROTECT, related_name="+")
    messages = models.PositiveIntegerField()  # that it covers and the one before it did not
    replies = models.PositiveIntegerField()  # of the model, in all that it stands for
    text = models.TextField()
    tokens_before = models.PositiveIntegerField()
    tokens_after = models.PositiveIntegerField()
    model_call = models.OneToOneField(ModelCall, models.PROTECT, related_name="summary")

    class Meta:
        verbose_name_plural = "summaries"
        constraints = [models.UniqueConstraint(fields=["task", "seq"], name="summary_once")]
        indexes = [models.Index(fields=["branch", "seq"], name="summary_line")]

    def __str__(self) -> str:
        return f"summary at {self.task_id}/{self.seq}"
