"""Who may approve a held call, and which standing approvals are in force on a line of history."""

from __future__ import annotations

from django.db.models import QuerySet

from workspaces.domain.policy import Approver
from workspaces.domain.roles import Role
from workspaces.models import Branch, Escalation, StandingApproval, Task, User

from .access import role_in
from .history import line_of, on_line

WHO: dict[str, str] = {
    Approver.ANY_OPERATOR.value: "an operator",
    Approver.OWNER.value: "an owner",
    Approver.TWO_PERSONS.value: "two persons",
}


def is_owner(user: User, escalation: Escalation) -> bool:
    """Members with the role owner, and site staff, who act as owners everywhere."""
    return role_in(user, escalation.task.workspace) is Role.OWNER


def standing_in_force(task: Task, branch: Branch) -> QuerySet[StandingApproval]:
    """Those given in this task on the line that leads to the end of `branch`, and not revoked."""
    found = StandingApproval.objects.filter(on_line(line_of(branch)), task=task, revoked_at=None)
    return found.select_related("given_by").order_by("-given_at")


def standing_of(task: Task) -> list[StandingApproval]:
    """In force on the task's current line, newest first."""
    return list(standing_in_force(task, task.branch)) if task.branch else []
