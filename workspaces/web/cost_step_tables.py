"""The steps of a task, and the calls of a step, as tables of the cost pages. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from workspaces.queries.cost_steps import CallCost, StepCosts
from workspaces.queries.costs import unit_words
from workspaces.web.cost_tables import Column, Table, table


def steps_table(task_id: int, steps: StepCosts) -> Table:
    columns = [
        Column("step", "Step"),
        Column("at", "Began (UTC)", "day"),
        Column("usd", "USD", "usd"),
        Column("unpriced", "Unpriced records", "count"),
        Column("calls", "Model calls", "count"),
        Column("unanswered", "Failed or dropped", "count"),
    ]
    rows = []
    for each in steps.rows:
        number, branch = each.step.number, each.step.branch.number
        name = f"step {number}" + (f", branch {branch}" if branch > 1 else "")
        address = f"/costs/tasks/{task_id}/steps/{number}/?branch={branch}"
        began = f"{each.step.started_at:%Y-%m-%d %H:%M:%S}"
        rows.append([(name, address), began, each.usd, each.unpriced, each.calls, each.unanswered])
    return table("steps", "Steps", columns, rows, "The newest first; a step leads to its calls and prices.")


def calls_table(calls: Sequence[CallCost]) -> Table:
    columns = [
        Column("call", "Call"),
        Column("purpose", "Purpose"),
        Column("model", "Model"),
        Column("status", "Status"),
        Column("unit", "Unit"),
        Column("quantity", "Quantity", "number"),
        Column("unit_price_usd", "Price", "price"),
        Column("usd", "USD", "usd"),
        Column("price_source", "Price from"),
    ]
    rows: list[list[Any]] = []
    for each in calls:
        call = each.call
        head: list[Any] = ["sandbox", "", "", ""]
        if call is not None:
            head = [f"{call.pk}, attempt {call.attempt}", call.purpose.replace("_", " "), call.model, call.status]
        for record in each.records:
            amounts = [record.quantity.normalize(), record.unit_price_usd, record.cost_usd, record.price_source]
            purpose = record.purpose.replace("_", " ")
            rows.append([head[0], purpose, record.model or head[2], head[3], unit_words(record.unit), *amounts])
        if not each.records:
            rows.append([*head, "no usage was told", None, None, None, ""])
    return table("calls", "Model calls", columns, rows)
