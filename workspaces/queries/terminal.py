"""A terminal's reads: a workspace's commands, newest first, and whether it takes one now."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.contrib.auth.models import AnonymousUser
from django.db.models import QuerySet

from workspaces.domain.states import CallStatus
from workspaces.domain.terminal import why_not
from workspaces.models import OperatorCommand, Task, ToolCall, User, Workspace

from .access import may_operate, visible_workspaces
from .database import database_now

PAGE_SIZE = 30


@dataclass(frozen=True, slots=True)
class TerminalPage:
    commands: list[OperatorCommand]
    older_than: int | None  # the next page begins before this id


def operated_workspace(user: User | AnonymousUser, workspace_id: int) -> Workspace | None:
    """The workspace if the user may command in it. To anybody else its terminal does not exist."""
    workspace = visible_workspaces(user).select_related("owner", "held_by", "command__actor").filter(pk=workspace_id)
    found = workspace.first()
    return found if found is not None and may_operate(user, found) else None


def commands_of(workspace_id: int) -> QuerySet[OperatorCommand]:
    found = OperatorCommand.objects.filter(workspace_id=workspace_id).select_related("actor", "task", "stopped_by")
    return found.order_by("-pk")


def terminal_page(workspace_id: int, *, before: int | None = None) -> TerminalPage:
    found = commands_of(workspace_id)
    if before is not None:
        found = found.filter(pk__lt=before)
    rows = list(found[: PAGE_SIZE + 1])
    return TerminalPage(rows[:PAGE_SIZE], rows[PAGE_SIZE - 1].pk if len(rows) > PAGE_SIZE else None)


def refusal(workspace: Workspace, holder: Task | None) -> str:
    """Why the workspace, held by that task (as read now), takes no command; empty when it does."""
    if holder is None:
        return ""
    in_flight = ToolCall.objects.filter(task=holder, status=CallStatus.RUNNING.value).values_list("name", flat=True)
    return why_not(
        holder=holder.pk,
        holder_status=holder.status,
        leased=holder.lease_until is not None and holder.lease_until > database_now(),
        restoring=holder.disk_restore_id is not None,
        call_in_flight=in_flight.first() or "",
    )


def commanded_since(workspace_id: int, moment: datetime) -> bool:
    """Whether an operator may have changed the workspace's files after that moment."""
    return OperatorCommand.objects.filter(workspace_id=workspace_id, ordered_at__gte=moment).exists()
