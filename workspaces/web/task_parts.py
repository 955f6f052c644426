"""The parts of a task's page as template contexts. The views and the socket build them here, so both show the same."""

from __future__ import annotations

from typing import Any

from workspaces.domain.scratchpad import head, in_order
from workspaces.domain.states import TaskStatus
from workspaces.models import Task, User
from workspaces.queries.alert_page import alerts_of
from workspaces.queries.approvals import standing_of
from workspaces.queries.checkpoints import LISTED, checkpoints_of
from workspaces.queries.incidents import of_task
from workspaces.queries.quota_line import wait_of
from workspaces.queries.scratchpad import authors_of
from workspaces.queries.task_budgets import binding_task
from workspaces.queries.task_page import head_of
from workspaces.queries.trace import TraceFilter, current_line, trace_page
from workspaces.queries.tuning import asked_with
from workspaces.queries.usage import usage_by_step
from workspaces.queries.windows import context_use, learned_from

from .quota_parts import wait_context
from .trace_rows import rows_of

BUSY = frozenset({TaskStatus.QUEUED.value, TaskStatus.RUNNING.value, TaskStatus.PAUSING.value})
PANELS = {
    "context": "Context",
    "scratchpad": "Scratchpad",
    "files": "Files",
    "checkpoints": "Checkpoints",
    "incidents": "Incidents",
}
LIVE_PANELS = {
    "context": "tasks/_context.html",
    "scratchpad": "tasks/_scratchpad.html",
    "checkpoints": "checkpoints/_list.html",
    "incidents": "incidents/_panel.html",
}
STEPS_LISTED = 12


def head_context(task: Task, can_operate: bool, reader: User) -> dict[str, Any]:
    """`reader`: whose view of the budgets above the task it is."""
    return {
        "head": head_of(task),
        "task_alerts": alerts_of(reader, over=False, task=task.pk),
        "task": task,
        "can_operate": can_operate,
        **wait_context(wait_of(task)),
        "budgets": [] if TaskStatus(task.status).is_final else binding_task(task, reader),
    }


def trace_context(task: Task, wanted: TraceFilter, before: int | None, can_operate: bool) -> dict[str, Any]:
    page = trace_page(task, wanted, before=before)
    return {
        "task": task,
        "rows": rows_of(page.events, current_line(task)),
        "older_than": page.older_than,
        "wanted": wanted,
        "can_operate": can_operate,
    }


def panel_context(task: Task, panel: str, can_operate: bool) -> dict[str, Any]:
    """What a panel shows; the files panel has its own (views/files.py)."""
    found: dict[str, Any] = {"task": task, "panel": panel, "panels": PANELS, "can_operate": can_operate}
    if panel == "context":
        usage = usage_by_step(task, limit=STEPS_LISTED)
        use = context_use(task)
        found |= {"use": use, "usage": usage[::-1]}
        if use is not None and use.learned_tokens is not None:
            found["learned"] = learned_from(task)
            found["window_said_tokens"] = asked_with(task).context_window_tokens
    elif panel == "scratchpad" and task.branch is not None:
        authors = authors_of(task.branch)
        found["sections"] = [
            {
                "name": name,
                "text": text,
                "edit": authors.get(name),
            }
            for name, text in in_order(task.scratchpad)
        ]
        found["removed"] = sorted(name for name in authors if name not in task.scratchpad)
        found["head_chars"] = len(head(task.scratchpad))
        found["pad_chars"] = sum(len(text) for text in task.scratchpad.values())
    elif panel == "incidents":
        found["incidents"] = of_task(task)
    elif panel == "checkpoints":
        line = current_line(task)
        listed = list(checkpoints_of(task)[: LISTED + 1])
        found["checkpoints"] = [
            {"checkpoint": each, "abandoned": not line.holds(each.branch.number, each.seq)} for each in listed[:LISTED]
        ]
        found["more_checkpoints"] = len(listed) > LISTED
        found["standing"] = standing_of(task)
        found["branches"] = list(task.branches.select_related("created_by", "parent").order_by("-number"))
    return found
