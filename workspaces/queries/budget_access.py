"""Who may see a budget, set one, and change one.

- Site staff: all.
- An owner of a workspace: those of the workspace, of its tasks and of its own profiles. Its members see them; whoever
  may operate there may set one for a task, and change what they set themselves.
- Everybody: one for themselves. What somebody else has set for them they see, and do not change.
"""

from __future__ import annotations

from django.contrib.auth.models import AnonymousUser
from django.db.models import Q, QuerySet

from workspaces.domain.roles import Role
from workspaces.domain.states import BudgetScope
from workspaces.models import AgentProfile, Budget, Task, User, Workspace

from .access import may_operate, role_in, visible_workspaces


def visible_budgets(user: User | AnonymousUser) -> QuerySet[Budget]:
    if not user.is_authenticated:
        return Budget.objects.none()
    if user.is_staff:
        return Budget.objects.all()
    mine = visible_workspaces(user)
    return Budget.objects.filter(
        Q(user=user) | Q(workspace__in=mine) | Q(task__workspace__in=mine) | Q(profile__workspace__in=mine)
    )


def may_set_budget(
    actor: User,
    scope: BudgetScope,
    *,
    user: User | None = None,
    workspace: Workspace | None = None,
    profile: AgentProfile | None = None,
    task: Task | None = None,
) -> bool:
    if actor.is_staff:
        return True
    match scope:
        case BudgetScope.SITE:
            return False
        case BudgetScope.USER:
            return user is not None and user.pk == actor.pk
        case BudgetScope.TASK:
            return task is not None and may_operate(actor, task.workspace)
        case BudgetScope.WORKSPACE:
            return workspace is not None and _owns(actor, workspace)
        case BudgetScope.PROFILE:
            return profile is not None and profile.workspace is not None and _owns(actor, profile.workspace)


def may_change_budget(actor: User, budget: Budget) -> bool:
    """Also whether they may end it."""
    if actor.is_staff:
        return True
    scope = BudgetScope(budget.scope)
    if scope is BudgetScope.TASK and budget.task is not None and _owns(actor, budget.task.workspace):
        return True
    own = budget.created_by_id == actor.pk
    if scope in (BudgetScope.USER, BudgetScope.TASK) and not own:
        return False
    return may_set_budget(
        actor, scope, user=budget.user, workspace=budget.workspace, profile=budget.profile, task=budget.task
    )


def _owns(actor: User, workspace: Workspace) -> bool:
    return role_in(actor, workspace) is Role.OWNER
