"""Who may see what. Every page, socket and file asks here; what is not visible does not exist (404)."""

from __future__ import annotations

from fnmatch import fnmatchcase

from django.contrib.auth.models import AnonymousUser
from django.db.models import Q, QuerySet

from workspaces.domain.roles import Role, at_least
from workspaces.models import (
    AgentProfile,
    Alert,
    AlertRule,
    Endpoint,
    Escalation,
    Incident,
    Membership,
    ProfileVersion,
    QuotaClaim,
    QuotaPool,
    Task,
    User,
    Workspace,
)


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


def visible_pools(user: User | AnonymousUser) -> QuerySet[QuotaPool]:
    """Those that tasks or profiles of the user's workspaces draw on; site staff see all. Retired ones are among them.

    That a pool is visible says nothing of who else draws on it: others' tasks and names stay theirs.
    """
    if not user.is_authenticated:
        return QuotaPool.objects.none()
    if user.is_staff:
        return QuotaPool.objects.all()
    mine = visible_workspaces(user)
    drawn = QuotaClaim.objects.filter(task__workspace__in=mine).values_list("pool", flat=True)
    versions = ProfileVersion.objects.filter(profile__workspace__in=mine).select_related("key", "headers")
    theirs = {(*each.allowance.values(), each.model) for each in versions}
    pools = QuotaPool.objects.values_list("pk", "provider", "base_url", "account", "group") if theirs else ()
    named = {
        pk
        for pk, *where, group in pools
        for *at, model in theirs
        if where == at and (model == group or fnmatchcase(model, group))
    }
    return QuotaPool.objects.filter(Q(pk__in=drawn) | Q(pk__in=named))


def visible_alerts(user: User | AnonymousUser) -> QuerySet[Alert]:
    """The user's own, and the site's of workspaces that the user is in; site staff see all. Those of a workspace that
    the user is in no more are gone, also one's own."""
    if not user.is_authenticated:
        return Alert.objects.none()
    if user.is_staff:
        return Alert.objects.all()
    mine = Q(user=user) & Q(workspace=None)
    return Alert.objects.filter(mine | Q(workspace__in=visible_workspaces(user)) & (Q(user=None) | Q(user=user)))


def own_rules(user: User | AnonymousUser) -> QuerySet[AlertRule]:
    """Those that the user may see and change: the user's own; site staff all. Retired ones are among them."""
    if not user.is_authenticated:
        return AlertRule.objects.none()
    return AlertRule.objects.all() if user.is_staff else AlertRule.objects.filter(owner=user)


def own_endpoints(user: User | AnonymousUser) -> QuerySet[Endpoint]:
    """The user's own; site staff see the site's as well. Nobody sees those of another person."""
    if not user.is_authenticated:
        return Endpoint.objects.none()
    mine = Q(owner=user)
    return Endpoint.objects.filter(mine | Q(owner=None) if user.is_staff else mine)


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
