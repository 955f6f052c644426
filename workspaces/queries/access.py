"""Who may see what. Every page, socket and file asks here; what is not visible does not exist (404)."""

from __future__ import annotations

from django.contrib.auth.models import AnonymousUser
from django.db.models import Q, QuerySet

from workspaces.domain.roles import Role, at_least
from workspaces.models import AgentProfile, Escalation, Incident, Membership, Task, User, Workspace


def visible_workspaces(user: User | AnonymousUser) -> QuerySet[Workspace]:
    """Those the user is a member of; site staff see all."""
    if not user.is_authenticated:
        return Workspace.objects.none()
    if user.is_staff:
        return Workspace.objects.all()
    return Workspace.objects.filter(pk__in=Membership.objects.filter(user=user).values("workspace"))


def visible_tasks(user: User | AnonymousUser) -> QuerySet[Task]:
    return Task.objects.filter(workspace__in=visible_workspaces(user))


def visible_escalations(user: User | AnonymousUser) -> QuerySet[Escalation]:
    return Escalation.objects.filter(task__in=visible_tasks(user))


def visible_incidents(user: User | AnonymousUser) -> QuerySet[Incident]:
    return Incident.objects.filter(task__in=visible_tasks(user))


def usable_profiles(user: User | AnonymousUser, workspace: Workspace | None = None) -> QuerySet[AgentProfile]:
    """The site's profiles and those of the user's workspaces (or of one of them)."""
    mine = visible_workspaces(user)
    if workspace is not None:
        mine = mine.filter(pk=workspace.pk)
    return AgentProfile.objects.filter(Q(workspace=None) | Q(workspace__in=mine), retired_at=None)


def role_in(user: User | AnonymousUser, workspace: Workspace) -> Role | None:
    """The user's role there; site staff act as owners everywhere."""
    if not user.is_authenticated:
        return None
    if user.is_staff:
        return Role.OWNER
    role = Membership.objects.filter(user=user, workspace=workspace).values_list("role", flat=True).first()
    return Role(role) if role else None


def may_operate(user: User | AnonymousUser, workspace: Workspace) -> bool:
    return at_least(role_in(user, workspace), Role.OPERATOR)
