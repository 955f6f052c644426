"""The workspace pages' reads: roles, who holds the disk, how much is stored, what was done by whom."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.db.models import Count, OuterRef, Q, QuerySet, Subquery, Sum

from workspaces.domain.roles import Role, at_least
from workspaces.domain.states import FINAL, WorkspaceState
from workspaces.models import AuditEntry, Latch, Membership, Snapshot, Task, User, Workspace

from .access import role_in, visible_workspaces

RECENT = 15


@dataclass(frozen=True, slots=True)
class WorkspaceRow:
    workspace: Workspace
    role: Role | None


def workspace_rows(user: User) -> list[WorkspaceRow]:
    roles = dict(Membership.objects.filter(user=user).values_list("workspace", "role"))
    final = [status.value for status in FINAL]
    found = (
        visible_workspaces(user)
        .select_related("owner", "held_by")
        .annotate(
            active=Count("tasks", filter=~Q(tasks__status__in=final), distinct=True),
            used_bytes=_newest_snapshot("total_bytes"),
            people=_people(),
        )
        .order_by("name", "pk")
    )
    return [
        WorkspaceRow(workspace, Role(roles[workspace.pk]) if workspace.pk in roles else _staff(user))
        for workspace in found
    ]


def _staff(user: User) -> Role | None:
    return Role.OWNER if user.is_staff else None


def _newest_snapshot(column: str) -> Subquery:
    return Subquery(Snapshot.objects.filter(workspace=OuterRef("pk")).order_by("-created_at").values(column)[:1])


def _people() -> Subquery:
    counted = Membership.objects.filter(workspace=OuterRef("pk")).order_by().values("workspace")
    return Subquery(counted.annotate(number=Count("pk")).values("number"))


@dataclass(frozen=True, slots=True)
class WorkspaceView:
    """`used_bytes`: the disk at its newest snapshot; `stored_bytes`: what the kept snapshots add up to."""

    workspace: Workspace
    role: Role | None
    members: Sequence[Membership]
    tasks: QuerySet[Task]
    audit: QuerySet[AuditEntry]
    hold: Latch | None
    snapshots: int
    stored_bytes: int
    used_bytes: int | None

    @property
    def may_own(self) -> bool:
        return at_least(self.role, Role.OWNER)

    @property
    def may_operate(self) -> bool:
        return at_least(self.role, Role.OPERATOR)


def workspace_view(user: User, workspace: Workspace) -> WorkspaceView:
    """Of a workspace that the caller has found visible."""
    stored = workspace.snapshots.filter(freed_at=None).aggregate(number=Count("pk"), bytes=Sum("added_bytes"))
    newest = workspace.snapshots.order_by("-created_at").values_list("total_bytes", flat=True).first()
    return WorkspaceView(
        workspace=workspace,
        role=role_in(user, workspace),
        members=list(workspace.memberships.select_related("user").order_by("created_at", "pk")),
        tasks=workspace.tasks.select_related("created_by", "profile_version__profile").order_by("-pk")[:RECENT],
        audit=workspace.audit.select_related("actor", "task").order_by("-at", "-pk")[:RECENT],
        hold=workspace.latches.filter(released_at=None).select_related("placed_by").first(),
        snapshots=stored["number"],
        stored_bytes=stored["bytes"] or 0,
        used_bytes=newest,
    )


def wakes_before(workspace: Workspace) -> int:
    """How many stand before it in the queue of those that are to wake."""
    return Workspace.objects.filter(wake_wanted_at__lt=workspace.wake_wanted_at).count() if is_queued(workspace) else 0


def is_queued(workspace: Workspace) -> bool:
    return workspace.wake_wanted_at is not None and workspace.state != WorkspaceState.AWAKE.value
