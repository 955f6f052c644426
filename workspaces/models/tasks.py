"""A task, the branches of its history, its steps and its checkpoints."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from workspaces.domain.events import GENESIS
from workspaces.domain.states import PauseMode, StepPhase, TaskStatus, WaitingFor

from .fields import choices, one_of, usd
from .profiles import ProfileVersion
from .workspaces import Snapshot, Workspace


class Task(models.Model):
    """One instruction given to one agent in one workspace. `status` is written by actions/ only."""

    workspace = models.ForeignKey(Workspace, models.PROTECT, related_name="tasks")
    profile_version = models.ForeignKey(ProfileVersion, models.PROTECT, related_name="tasks")
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, related_name="tasks")
    title = models.CharField(max_length=120)
    instruction = models.TextField()
    intake = models.JSONField(default=dict, blank=True)  # attachments to bring in before step 1
    intake_done = models.BooleanField(default=False)

    status = models.CharField(max_length=16, choices=choices(TaskStatus), default=TaskStatus.QUEUED.value)
    waiting_for = models.CharField(max_length=16, choices=choices(WaitingFor), blank=True, default="")
    waiting_reason = models.TextField(blank=True, default="")
    waiting_since = models.DateTimeField(null=True, blank=True)
    waiting_until = models.DateTimeField(null=True, blank=True)
    pause_mode = models.CharField(max_length=16, choices=choices(PauseMode), blank=True, default="")
    cancelling = models.BooleanField(default=False)
    status_since = models.DateTimeField()
    result = models.TextField(blank=True, default="")

    # the lease: who advances the task now. Every write by a worker carries the fence
    fence = models.BigIntegerField(default=0)
    lease_owner = models.CharField(max_length=120, blank=True, default="")
    lease_until = models.DateTimeField(null=True, blank=True)
    dispatched_at = models.DateTimeField(null=True, blank=True)

    # the tip of the trace
    last_seq = models.BigIntegerField(default=0)
    last_hash = models.CharField(max_length=64, default=GENESIS)
    last_event_at = models.DateTimeField(null=True, blank=True)

    # where it stands
    branch = models.ForeignKey("Branch", models.PROTECT, null=True, related_name="+")
    steps_taken = models.PositiveIntegerField(default=0)  # on every branch
    max_steps = models.PositiveIntegerField()  # on the current branch
    deadline = models.DateTimeField(null=True, blank=True)  # from then on it asks before it goes on
    model_override = models.CharField(max_length=200, blank=True, default="", db_default="")  # instead of the profile's
    max_output_tokens_override = models.PositiveIntegerField(null=True, blank=True)
    interactive = models.BooleanField(default=False, db_default=False)  # goes first among its user's own
    scratchpad = models.JSONField(default=dict, blank=True)  # section → text
    disk_restore = models.ForeignKey(
        Snapshot, models.PROTECT, null=True, blank=True, related_name="+"
    )  # what the disk must be put back to before anything else

    retained_at = models.DateTimeField(null=True, blank=True)  # when its old checkpoints were last gone through

    latch = models.ForeignKey(
        "Latch", models.PROTECT, null=True, blank=True, related_name="held_tasks"
    )  # the order that pauses it

    # lineage
    root = models.ForeignKey("self", models.PROTECT, null=True, blank=True, related_name="lineage")
    forked_from = models.ForeignKey("self", models.PROTECT, null=True, blank=True, related_name="forks")

    # sums over model calls, on every branch
    prompt_tokens = models.BigIntegerField(default=0)
    output_tokens = models.BigIntegerField(default=0)
    cost_usd = usd(default=0)
    unpriced_calls = models.PositiveIntegerField(default=0)

    created_at = models.DateTimeField()
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            one_of("status", TaskStatus, table="task"),
            one_of("waiting_for", WaitingFor, table="task", blank=True),
            one_of("pause_mode", PauseMode, table="task", blank=True),
            # nothing waits without saying for what, since when and until when (then it is looked at again)
            models.CheckConstraint(
                condition=(
                    Q(
                        status=TaskStatus.WAITING.value,
                        waiting_since__isnull=False,
                        waiting_until__isnull=False,
                    )
                    & ~Q(waiting_for="")
                    & ~Q(waiting_reason="")
                )
                | (~Q(status=TaskStatus.WAITING.value) & Q(waiting_for="", waiting_since__isnull=True)),
                name="task_waiting_says_for_what",
            ),
        ]
        indexes = [
            models.Index(fields=["workspace", "-created_at"], name="task_of_workspace"),
            models.Index(fields=["status", "lease_until"], name="task_due"),
        ]

    def __str__(self) -> str:
        return f"task {self.pk}: {self.title}"

    @property
    def root_id_or_own(self) -> int:
        return self.root_id or self.pk

    @property
    def current_branch_id(self) -> int:
        """Every task has one from the transaction on that creates it."""
        assert self.branch_id is not None
        return self.branch_id


class Branch(models.Model):
    """A line of history. It begins where `parent_seq` of its parent ends; a fork's parent is another task's."""

    task = models.ForeignKey(Task, models.CASCADE, related_name="branches")
    number = models.PositiveIntegerField()
    parent = models.ForeignKey("self", models.PROTECT, null=True, blank=True, related_name="children")
    parent_seq = models.BigIntegerField(default=0)
    first_step = models.PositiveIntegerField(default=1)
    reason = models.TextField(blank=True, default="")
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, null=True, related_name="+")
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["task", "number"], name="branch_once")]

    def __str__(self) -> str:
        return f"branch {self.number} of task {self.task_id}"


class Step(models.Model):
    """One turn. `phase` is the last phase that is finished; the next worker goes on from there."""

    task = models.ForeignKey(Task, models.CASCADE, related_name="steps")
    branch = models.ForeignKey(Branch, models.CASCADE, related_name="steps")
    number = models.PositiveIntegerField()
    phase = models.CharField(max_length=16, choices=choices(StepPhase), default=StepPhase.CONTEXT.value)
    manifest = models.JSONField(default=dict, blank=True)  # domain/context.py
    started_at = models.DateTimeField()
    settled_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["branch", "number"], name="step_once"),
            one_of("phase", StepPhase, table="step"),
        ]

    def __str__(self) -> str:
        return f"step {self.number} of task {self.task_id}"


class Checkpoint(models.Model):
    """Conversation (everything up to `seq`), scratchpad, pending tool calls and disk, saved together."""

    task = models.ForeignKey(Task, models.CASCADE, related_name="checkpoints")
    branch = models.ForeignKey(Branch, models.CASCADE, related_name="checkpoints")
    step = models.ForeignKey(Step, models.CASCADE, null=True, related_name="checkpoints")
    step_number = models.PositiveIntegerField()
    seq = models.BigIntegerField()
    snapshot = models.ForeignKey(Snapshot, models.PROTECT, related_name="checkpoints")
    scratchpad = models.JSONField(default=dict, blank=True)
    pending = models.JSONField(default=list, blank=True)  # calls without a result: see actions/rollbacks.py
    prompt_tokens = models.BigIntegerField(default=0)
    output_tokens = models.BigIntegerField(default=0)
    cost_usd = usd(default=0)
    created_at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["task", "seq"], name="checkpoint_once")]

    def __str__(self) -> str:
        return f"checkpoint at {self.seq} of task {self.task_id}"


class Latch(models.Model):
    """A standing order to hold. Released, never deleted. Exactly one scope; none at all: the whole fleet."""

    task = models.ForeignKey(Task, models.CASCADE, null=True, blank=True, related_name="latches")
    workspace = models.ForeignKey(Workspace, models.CASCADE, null=True, blank=True, related_name="latches")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, null=True, blank=True, related_name="latches")
    mode = models.CharField(max_length=16, choices=choices(PauseMode))
    reason = models.TextField()
    placed_by = models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, related_name="+")
    placed_at = models.DateTimeField()
    released_by = models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, null=True, blank=True, related_name="+")
    released_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        verbose_name_plural = "latches"
        constraints = [
            one_of("mode", PauseMode, table="latch"),
            models.CheckConstraint(
                condition=Q(task__isnull=True, workspace__isnull=True)
                | Q(task__isnull=True, user__isnull=True)
                | Q(workspace__isnull=True, user__isnull=True),
                name="latch_one_scope",
            ),
            models.UniqueConstraint(
                fields=["task", "workspace", "user"],
                condition=Q(released_at__isnull=True),
                name="latch_once_a_scope",
                nulls_distinct=False,
            ),
        ]

    def __str__(self) -> str:
        return f"hold {self.scope}: {self.reason}"

    @property
    def scope(self) -> str:
        if self.task_id:
            return f"task {self.task_id}"
        if self.workspace_id:
            return f"workspace {self.workspace_id}"
        return f"user {self.user_id}" if self.user_id else "the fleet"
