"""What happened: events, messages, model calls and tool calls. Events and messages are append-only (a trigger)."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import Q

from workspaces.domain.effects import Effect
from workspaces.domain.results import ResultClass
from workspaces.domain.states import CallStatus, ModelCallPurpose, ModelCallStatus, Verdict
from workspaces.domain.tokens import ENDPOINT_CHARS

from .fields import choices, one_of, usd
from .tasks import Branch, Step, Task
from .workspaces import Snapshot


class Event(models.Model):
    """One entry of a trace. `kind` and `data`: domain/events.py. Readers: task page, detectors, auditor."""

    task = models.ForeignKey(Task, models.CASCADE, related_name="events")
    seq = models.BigIntegerField()
    branch_number = models.PositiveIntegerField()
    step_number = models.PositiveIntegerField(null=True, blank=True)
    kind = models.CharField(max_length=32)
    actor = models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, null=True, related_name="+")
    data = models.JSONField(default=dict)
    at = models.DateTimeField()
    previous_hash = models.CharField(max_length=64)
    hash = models.CharField(max_length=64)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["task", "seq"], name="event_seq_once")]

    def __str__(self) -> str:
        return f"{self.task_id}/{self.seq} {self.kind}"


class Message(models.Model):
    """One entry of the conversation; `seq` is that of the event that brought it."""

    class Role(models.TextChoices):
        USER = "user"  # the instruction, an operator's words, the runtime's notices
        ASSISTANT = "assistant"
        TOOL = "tool"

    task = models.ForeignKey(Task, models.CASCADE, related_name="messages")
    branch = models.ForeignKey(Branch, models.CASCADE, related_name="messages")
    seq = models.BigIntegerField()
    part = models.PositiveIntegerField(default=0)  # order among messages of one event
    role = models.CharField(max_length=16, choices=Role.choices)
    author = models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, null=True, related_name="+")
    content = models.TextField(blank=True, default="")
    calls = models.JSONField(default=list, blank=True)  # assistant: [{call_id, name, arguments (text)}]
    call_id = models.CharField(max_length=200, blank=True, default="")  # tool: which call it answers
    pinned = models.BooleanField(default=False)
    tokens = models.PositiveIntegerField(default=0)  # an estimate
    created_at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["task", "seq", "part"], name="message_once")]
        indexes = [models.Index(fields=["branch", "seq", "part"], name="message_line")]

    def __str__(self) -> str:
        return f"{self.role} at {self.task_id}/{self.seq}"


class ModelCall(models.Model):
    """One request to a provider, written down before it is made."""

    task = models.ForeignKey(Task, models.CASCADE, related_name="model_calls")
    step = models.ForeignKey(Step, models.CASCADE, related_name="model_calls")
    purpose = models.CharField(
        max_length=16, choices=choices(ModelCallPurpose), default=ModelCallPurpose.STEP.value, db_default="step"
    )
    attempt = models.PositiveIntegerField()  # of its step and purpose
    status = models.CharField(max_length=16, choices=choices(ModelCallStatus), default=ModelCallStatus.RUNNING.value)
    model = models.CharField(max_length=200)
    request_hash = models.CharField(max_length=64)
    endpoint = models.CharField(max_length=ENDPOINT_CHARS, blank=True, default="", db_default="")  # tokens.endpoint_of
    estimated_tokens = models.PositiveIntegerField(null=True)  # of the prompt, not calibrated
    prompt_truncated = models.BooleanField(default=False, db_default=False)  # its count tells nothing of the tokenizer
    text = models.TextField(blank=True, default="")
    calls = models.JSONField(default=list, blank=True)
    finish_reason = models.CharField(max_length=32, blank=True, default="")
    input_tokens = models.PositiveIntegerField(null=True)
    output_tokens = models.PositiveIntegerField(null=True)
    cached_input_tokens = models.PositiveIntegerField(null=True)
    cache_write_tokens = models.PositiveIntegerField(null=True)
    reasoning_tokens = models.PositiveIntegerField(null=True)
    cost_usd = usd(null=True)  # null: the price is unknown
    # what was held for it, from before it was made until it was settled: actions/admission.py
    pool = models.ForeignKey(
        "QuotaPool", models.PROTECT, null=True, blank=True, related_name="model_calls", db_index=False
    )
    reserved_input_tokens = models.BigIntegerField(null=True)
    reserved_output_tokens = models.BigIntegerField(null=True)
    reserved_usd = usd(null=True)
    held_tokens = models.BigIntegerField(null=True)  # in the budgets, like reserved_usd: at most what it may take
    held_in = models.JSONField(default=list, blank=True, db_default=[])  # ids of the budget accounts
    waited_s = models.FloatField(null=True)  # for quota
    version = models.ForeignKey(
        "ProfileVersion", models.PROTECT, null=True, blank=True, related_name="+"
    )  # that answered instead of the task's own
    error_kind = models.CharField(max_length=32, blank=True, default="")
    error = models.TextField(blank=True, default="")
    first_token_s = models.FloatField(null=True)
    started_at = models.DateTimeField()
    finished_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["step", "purpose", "attempt"], name="model_call_attempt_once"),
            models.UniqueConstraint(
                fields=["step"],
                condition=Q(status=ModelCallStatus.REPLIED.value, purpose=ModelCallPurpose.STEP.value),
                name="model_call_one_reply_a_step",
            ),
            one_of("status", ModelCallStatus, table="model_call"),
            one_of("purpose", ModelCallPurpose, table="model_call"),
        ]
        indexes = [
            models.Index(
                fields=["endpoint", "-id"],
                condition=Q(
                    status=ModelCallStatus.REPLIED.value, estimated_tokens__isnull=False, prompt_truncated=False
                ),
                name="model_call_counted",
            ),
            # who used a pool in the last hour
            models.Index(fields=["pool", "started_at"], name="model_call_of_pool"),
            # asked for after each failure: how many more there were in the last minute
            models.Index(
                fields=["finished_at"], condition=Q(status=ModelCallStatus.FAILED.value), name="model_call_failed"
            ),
        ]

    def __str__(self) -> str:
        return f"model call {self.pk} of task {self.task_id}"


class ToolCall(models.Model):
    """One request to a tool: as proposed, as judged, as run. Its intent is written before it runs."""

    task = models.ForeignKey(Task, models.CASCADE, related_name="tool_calls")
    branch = models.ForeignKey(Branch, models.CASCADE, related_name="tool_calls")
    step = models.ForeignKey(Step, models.CASCADE, related_name="tool_calls")
    position = models.PositiveIntegerField()
    call_id = models.CharField(max_length=200)
    name = models.CharField(max_length=200)
    raw_arguments = models.TextField(blank=True, default="")
    arguments = models.JSONField(null=True)  # null: they could not be read
    arguments_hash = models.CharField(max_length=64, blank=True, default="")
    proposed_arguments = models.JSONField(null=True)  # before an operator's edit, if there was one
    effect = models.CharField(max_length=16, choices=choices(Effect), blank=True, default="")
    verdict = models.CharField(max_length=16, choices=choices(Verdict), blank=True, default="")
    policy_rule = models.PositiveIntegerField(null=True)  # of the profile's policy, from 1: the one that decided
    problems = models.JSONField(default=list, blank=True)  # evidence for a correction: [{path, reason}]
    status = models.CharField(max_length=16, choices=choices(CallStatus), default=CallStatus.PROPOSED.value)
    effect_key = models.CharField(max_length=64, blank=True, default="")
    attempt = models.PositiveIntegerField(default=0)
    snapshot_before = models.ForeignKey(Snapshot, models.PROTECT, null=True, blank=True, related_name="+")
    result = models.TextField(blank=True, default="")
    result_hash = models.CharField(
        max_length=64, blank=True, default="", db_default=""
    )  # SHA-256 (hex); "": older rows
    result_class = models.CharField(max_length=16, choices=choices(ResultClass), blank=True, default="")
    result_data = models.JSONField(default=dict, blank=True)
    control = models.CharField(max_length=16, blank=True, default="")
    seq = models.BigIntegerField(null=True)  # of the event that brought the result
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["step", "position"], name="tool_call_position_once"),
            one_of("status", CallStatus, table="tool_call"),
            one_of("verdict", Verdict, table="tool_call", blank=True),
            one_of("effect", Effect, table="tool_call", blank=True),
            one_of("result_class", ResultClass, table="tool_call", blank=True),
        ]
        # few at any time, asked for all the time
        indexes = [
            models.Index(fields=["task"], condition=Q(status=CallStatus.RUNNING.value), name="tool_call_running")
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.status}) of task {self.task_id}"


class LedgerEntry(models.Model):
    """The effect ledger: one row for each external or irreversible effect, written before it is made.

    The key is unique, so one effect has one row however often its task is resumed, rolled back or forked.
    """

    class State(models.TextChoices):
        INTENDED = "intended"
        COMPLETED = "completed"
        NOT_DONE = "not_done"  # an operator found that it did not happen
        UNKNOWN = "unknown"  # its call was given up before anybody knew: an operator is asked before it is made again

    key = models.CharField(max_length=64, unique=True)
    root_task = models.ForeignKey(Task, models.PROTECT, related_name="ledger")
    tool_call = models.ForeignKey(ToolCall, models.PROTECT, related_name="ledger")
    state = models.CharField(max_length=16, choices=State.choices, default=State.INTENDED)
    result = models.TextField(blank=True, default="")
    result_class = models.CharField(max_length=16, blank=True, default="")
    created_at = models.DateTimeField()
    completed_at = models.DateTimeField(null=True)

    class Meta:
        verbose_name_plural = "ledger entries"

    def __str__(self) -> str:
        return f"{self.tool_call.name}: {self.state}"
