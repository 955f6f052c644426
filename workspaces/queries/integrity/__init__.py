"""The auditor's questions to the database: a list of rules, each with the rows that break it. Writes nothing.

All rules see one state (one read-only transaction), also while workers write. The chain of hashes is streamed;
everything else is one statement a rule, for one task or for all.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice

from django.apps import apps
from django.db import connection, transaction

from workspaces.domain.integrity import Broken, Link, broken_links, fits_hash
from workspaces.models import Event, Step, Task, ToolCall
from workspaces.queries.contexts import NotRebuilt, request_of

from . import (
    alerts,
    budgets,
    calls,
    contexts,
    deliveries,
    incidents,
    links,
    quotas,
    scratchpad,
    signals,
    tasks,
    trace,
    usage,
)
from .rule import Rule

CHAIN = Rule("chain", "each event holds the hash of the one before and of itself, branch after branch", "event", "")
ARGUMENTS = Rule(
    "arguments", "what a held call ran with is what its hash, and so its approval, was made of", "toolcall", ""
)
REQUESTS = Rule(
    "requests", "what a step's model was sent can be made again from the history, byte for byte", "step", ""
)
RULES = [
    *trace.RULES,
    CHAIN,
    *calls.RULES,
    ARGUMENTS,
    *tasks.RULES,
    *scratchpad.RULES,
    *usage.RULES,
    *budgets.RULES,
    *quotas.RULES,
    *contexts.RULES,
    *incidents.RULES,
    *signals.RULES,
    *alerts.RULES,
    *deliveries.RULES,
    *links.RULES,
    REQUESTS,
]
NO_TASKS = {"usageimport", "delivery", "deliveryattempt", "endpoint"}  # tables whose rows are of no task
SHOWN = 20
REBUILT = 40  # requests that an audit makes again
_CHUNK = 2_000


@dataclass(frozen=True, slots=True)
class Verified:
    """What came of a rule. `checked` counts the rows of its table; `rows` are the first of the broken ones."""

    rule: Rule
    checked: int
    broken: int
    rows: list[Broken] = field(default_factory=list)


def verify(task_id: int | None = None) -> Iterator[Verified]:
    """Check every rule, in order."""
    checked: dict[str, int] = {}
    with _one_state():
        for rule in RULES:
            if rule.over not in checked:
                checked[rule.over] = _count(rule.over, task_id)
            if rule is CHAIN:
                yield _counted(rule, checked[rule.over], broken_links(_links(task_id)))
            elif rule is ARGUMENTS:
                yield _counted(rule, checked[rule.over], _foreign_arguments(task_id))
            elif rule is REQUESTS:
                yield _counted(rule, min(REBUILT, checked[rule.over]), _other_requests(task_id))
            else:
                yield _asked(rule, checked[rule.over], task_id)


@contextmanager
def _one_state() -> Iterator[None]:
    """Inside a transaction of the caller's (a test's), that one's state."""
    if connection.in_atomic_block:
        yield
        return
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        cursor.execute("SET LOCAL statement_timeout = 0")  # an audit of years of history may take its time
        yield


def _asked(rule: Rule, checked: int, task_id: int | None) -> Verified:
    sql = f"SELECT task_id, what, count(*) OVER () FROM ({rule.query(task_id)}) AS broken(task_id, what) LIMIT {SHOWN}"  # noqa: S608
    with connection.cursor() as cursor:
        cursor.execute(sql)
        rows = cursor.fetchall()
    return Verified(rule, checked, rows[0][2] if rows else 0, [Broken(task, what) for task, what, _ in rows])


def _counted(rule: Rule, checked: int, found: Iterator[Broken]) -> Verified:
    rows = list(islice(found, SHOWN))
    return Verified(rule, checked, len(rows) + sum(1 for _ in found), rows)


def _count(table: str, task_id: int | None) -> int:
    model = apps.get_model("workspaces", table)
    if task_id is None:
        return model._default_manager.count()
    if table in NO_TASKS:
        return 0
    path = {
        "task": "pk",
        "workspace": "tasks",
        "approval": "tool_call__task",
        "actionlink": "escalation__task",
        "ledgerentry": "tool_call__task",
        "budgetaccount": "budget__task",
        "quotapool": "claims__task",
        "sandboxmeter": "workspace__tasks",
        "alert": "members__task",
    }
    return model._default_manager.filter(**{path.get(table, "task"): task_id}).count()


def _links(task_id: int | None) -> Iterator[Link]:
    events = Event.objects.order_by("task_id", "seq")
    if task_id is not None:
        events = events.filter(task_id=task_id)
    columns = (
        *("task_id", "seq", "kind", "branch_number", "step_number"),
        *("actor_id", "at", "data", "previous_hash", "hash"),
    )
    for task, seq, kind, branch, step, actor, *rest in events.values_list(*columns).iterator(chunk_size=_CHUNK):
        yield Link(task, seq, kind, branch, step, str(actor) if actor else "", *rest)


def _foreign_arguments(task_id: int | None) -> Iterator[Broken]:
    calls_run = ToolCall.objects.filter(verdict="hold", attempt__gt=0).order_by("pk")
    if task_id is not None:
        calls_run = calls_run.filter(task_id=task_id)
    columns = ("task_id", "pk", "name", "arguments", "arguments_hash")
    for task, pk, name, arguments, digest in calls_run.values_list(*columns).iterator(chunk_size=_CHUNK):
        if not fits_hash(name, arguments, digest):
            yield Broken(task, f"call {pk} ({name}) ran with other arguments than its hash was made of")


def _other_requests(task_id: int | None) -> Iterator[Broken]:
    """Of the newest steps: each costs as much as the request itself."""
    steps = Step.objects.filter(manifest__has_key="as_of_seq").order_by("-pk")
    if task_id is not None:
        steps = steps.filter(task_id=task_id)
    for step in steps[:REBUILT]:
        try:
            if not request_of(step).exact:
                yield Broken(step.task_id, f"step {step.number}: another request than was sent comes of its history")
        except NotRebuilt as why:
            yield Broken(step.task_id, f"step {step.number}: {why}")


def broken_chain(task_id: int) -> int:
    """How many of a task's events are not what was written, or do not follow the one before."""
    return sum(1 for _ in broken_links(_links(task_id)))


def known_task(task_id: int) -> bool:
    return Task.objects.filter(pk=task_id).exists()


__all__ = ["RULES", "SHOWN", "Rule", "Verified", "broken_chain", "known_task", "verify"]
