"""Standing orders to hold more than one task: a workspace, a user, or the whole fleet."""

from __future__ import annotations

from django.db import transaction

from workspaces.domain.states import ACTIVE, PauseMode, TaskStatus
from workspaces.models import AuditEntry, Latch, Task, User, Workspace

from .clock import database_now
from .errors import Refused
from .pen import writing
from .tasks import order_pause, release_pause, standing_latch
from .words import taken


def place_latch(
    *,
    mode: PauseMode,
    reason: str,
    actor: User,
    workspace: Workspace | None = None,
    user: User | None = None,
) -> Latch:
    """Hold a workspace's tasks, a user's, or (neither given) all. Tasks created later are held too."""
    reason = taken(reason, "reason")
    with transaction.atomic():
        latch, made = Latch.objects.get_or_create(
            task=None,
            workspace=workspace,
            user=user,
            released_at=None,
            defaults={
                "mode": mode.value,
                "reason": reason,
                "placed_by": actor,
                "placed_at": database_now(),
            },
        )
        if not made:
            raise Refused(f"A hold on {latch.scope} stands already, by {latch.placed_by}: {latch.reason}")
        AuditEntry.objects.create(
            actor=actor,
            action="latch.place",
            workspace=workspace,
            reason=reason,
            data={"scope": latch.scope, "mode": mode.value},
            at=latch.placed_at,
        )
        _pause_all(latch)
    _pause_all(latch)  # what began meanwhile could not know of it
    return latch


def _pause_all(latch: Latch) -> None:
    """Those that are paused, or are about to be as strictly, are left as they are; all are, once it is released."""
    mode = PauseMode(latch.mode)
    for task_id in _held_task_ids(latch.workspace, latch.user):
        with writing(task_id, actor=latch.placed_by) as pen:
            stricter = mode is PauseMode.NOW and pen.task.pause_mode != mode.value
            if TaskStatus(pen.task.status) in ACTIVE and (pen.task.status != TaskStatus.PAUSING.value or stricter):
                stands = Latch.objects.select_for_update(no_key=True).filter(pk=latch.pk, released_at=None)
                if stands.first():
                    order_pause(pen, latch)


def release_latch(latch_id: int, *, reason: str, actor: User) -> Latch:
    """Let go. Tasks that this latch paused and that no other one holds are queued again."""
    reason = taken(reason, "reason")
    with transaction.atomic():
        latch = Latch.objects.select_for_update(no_key=True).get(pk=latch_id)
        if latch.released_at is not None:
            raise Refused(f"The hold on {latch.scope} is already released.")
        latch.released_by, latch.released_at = actor, database_now()
        latch.save(update_fields=["released_by", "released_at"])
        AuditEntry.objects.create(
            actor=actor,
            action="latch.release",
            workspace=latch.workspace,
            task=latch.task,
            reason=reason,
            data={"scope": latch.scope},
            at=latch.released_at,
        )
        for task_id in list(latch.held_tasks.order_by("pk").values_list("pk", flat=True)):
            with writing(task_id, actor=actor) as pen:
                other = standing_latch(pen.task)
                if other is not None:
                    pen.set(latch=other)  # so that its release finds the task
                elif pen.task.status == TaskStatus.PAUSED.value:
                    release_pause(pen, reason)
        return latch


def _held_task_ids(workspace: Workspace | None, user: User | None) -> list[int]:
    tasks = Task.objects.filter(status__in=[status.value for status in ACTIVE])
    if workspace is not None:
        tasks = tasks.filter(workspace=workspace)
    if user is not None:
        tasks = tasks.filter(created_by=user)
    return list(tasks.order_by("pk").values_list("pk", flat=True))
