"""Workspaces: made, shared, and held by one task at a time."""

from __future__ import annotations

import secrets

from django.db import IntegrityError, transaction

from workspaces import dispatch
from workspaces.domain.roles import Role
from workspaces.domain.states import TaskStatus, WaitingFor
from workspaces.domain.text import clean_text
from workspaces.models import AuditEntry, Membership, Task, User, Workspace

from .clock import database_now
from .errors import Refused
from .waits import wake_waiting


def create_workspace(
    *, name: str, owner: User, driver: str, actor: User, forked_from: Workspace | None = None
) -> Workspace:
    """A new, empty workspace with its owner as a member. Raises Refused when the name is taken."""
    name = clean_text(name).strip()
    if not name:
        raise Refused("Give the workspace a name.")
    like = forked_from or Workspace()
    try:
        with transaction.atomic():
            workspace = Workspace.objects.create(
                name=name[:80],
                owner=owner,
                sandbox_key=f"w-{secrets.token_hex(8)}",
                driver=driver,
                runtime=like.runtime,
                network=like.network,
                network_allow=like.network_allow,
                memory_bytes=like.memory_bytes,
                cpus=like.cpus,
                pids=like.pids,
                disk_bytes=like.disk_bytes,
                forked_from=forked_from,
            )
            Membership.objects.create(workspace=workspace, user=owner, role=Role.OWNER.value)
            _audit("workspace.create", workspace, actor, name=name)
    except IntegrityError as error:
        raise Refused(f"You already have a workspace named {name}.") from error
    return workspace


def set_member(workspace: Workspace, *, user: User, role: Role | None, actor: User) -> None:
    """Give a role, change it, or (None) take it away. Raises Refused for the owner's own role."""
    with transaction.atomic():
        if user.pk == workspace.owner_id and role is not Role.OWNER:
            raise Refused(f"{user} owns this workspace and keeps the owner's role.")
        if role is None:
            Membership.objects.filter(workspace=workspace, user=user).delete()
        else:
            Membership.objects.update_or_create(workspace=workspace, user=user, defaults={"role": role.value})
        _audit("workspace.member", workspace, actor, user=user.username, role=role.value if role else "none")


def hold_workspace(task: Task) -> bool:
    """Make the task the only writer of its workspace's disk. False when another task holds it or a command runs."""
    held = Workspace.objects.filter(pk=task.workspace_id, held_by=None, command=None).update(held_by=task)
    return held == 1 or holds_workspace(task)


def holds_workspace(task: Task) -> bool:
    return Workspace.objects.filter(pk=task.workspace_id, held_by=task).exists()


def leftovers_ended(task: Task) -> None:
    """Nothing of an earlier task runs there any more: the disk is this one's alone."""
    Workspace.objects.filter(pk=task.workspace_id, held_by=task).update(left_running=False)


def release_workspace(task: Task) -> None:
    """Let go of the workspace and wake the task that has waited longest for it; else end what still runs there."""
    mine = Workspace.objects.filter(pk=task.workspace_id, held_by=task)
    if mine.update(held_by=None, left_running=True) and not wake_next(task.workspace_id):
        dispatch.end_leftovers(task.workspace_id)


def wake_next(workspace_id: int) -> bool:
    """A workspace has become free: the task that has waited longest takes it. Whether one waits."""
    waiting = (
        Task.objects.filter(
            workspace_id=workspace_id,
            status=TaskStatus.WAITING.value,
            waiting_for=WaitingFor.WORKSPACE.value,
        )
        .order_by("waiting_since")
        .values_list("pk", flat=True)
        .first()
    )
    if waiting is not None:
        transaction.on_commit(
            lambda: wake_waiting(waiting, waiting_for=WaitingFor.WORKSPACE.value, why="the workspace is free")
        )
    return waiting is not None


def _audit(action: str, workspace: Workspace, actor: User, **data: str) -> None:
    AuditEntry.objects.create(actor=actor, action=action, workspace=workspace, data=data, at=database_now())
