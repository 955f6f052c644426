"""Live retune: a person changes what limits a task while it is under way. Starts and stops nothing by itself."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import Max

from workspaces.domain.escalations import Decision
from workspaces.domain.events import EXCERPT_CHARS, EventKind
from workspaces.domain.retuning import COLUMNS, NAMES, Change, in_words
from workspaces.domain.states import (
    WHY_NOT,
    BudgetPeriod,
    BudgetScope,
    EscalationKind,
    EscalationStatus,
    TaskStatus,
    WaitingFor,
)
from workspaces.domain.text import clip
from workspaces.models import Escalation, Step, Task, User
from workspaces.queries.task_budgets import own_budget

from . import question_signals
from .budget_settings import change_budget, create_budget, end_budget
from .errors import Refused
from .escalations import go_on, open_questions
from .pen import Pen, writing
from .tuning import tune
from .waits import wake
from .words import taken

ANSWERED_BY = {EscalationKind.LIMIT: Decision.RAISE, EscalationKind.DEADLINE: Decision.EXTEND}
BUDGET = {"budget_usd": "usd", "budget_tokens": "tokens"}
# what a waiting task asked for, by what it waits for
ASKED_ANEW = {
    WaitingFor.QUOTA.value: {"model", "max_output_tokens", "interactive"},
    WaitingFor.BUDGET.value: {"model", "max_output_tokens"},
}


def retune_task(
    task_id: int,
    changes: Mapping[str, Any],
    *,
    reason: str,
    actor: User,
    seen: Mapping[str, Any] | None = None,
) -> list[Change]:
    """Change limits of a task that has not ended. Raises Refused.

    `changes`: by the names of domain/retuning.py, of which those that differ are made; `seen`: what the person had
    before their eyes: what somebody else has changed since is not overwritten unseen. Whoever calls has made sure that
    another model is there.

    1. lock the task; 2. set, one event, audit; 3. a question about a limit that was moved is answered by that;
    4. what waits for its turn asks for it anew, with what holds now; 5. its own budget. A running step goes on as it
    began.
    """
    reason = taken(reason, "reason")
    if not reason:
        raise Refused("Say why you change the limits: the reason is kept in the trace and in the audit log.")
    with transaction.atomic():
        with writing(task_id, actor=actor) as pen:
            status = TaskStatus(pen.task.status)
            if status.is_final:
                raise Refused(f"Task {task_id} has no limits to change: {WHY_NOT[status]}.")
            now = own_limits(pen.task)
            _refuse_unseen(now, changes, seen or {})
            made = tune(pen, {what: value for what, value in changes.items() if what in COLUMNS}, reason=reason)
            _answer_moved_limits(pen, reason)
            asked = ASKED_ANEW.get(pen.task.waiting_for or "", set())
            if pen.task.status == TaskStatus.WAITING.value and asked & {change.what for change in made}:
                wake(pen, why="its limits were changed")
        made += _set_budget(pen.task, now, changes, reason, actor)
        if not made:
            raise Refused("Nothing was changed: every limit is as it was.")
        return made


def _set_budget(
    task: Task, now: Mapping[str, Any], changes: Mapping[str, Any], reason: str, actor: User
) -> list[Change]:
    """The task's own budget: set, changed, or ended where no limit is left. It keeps its own record."""
    made = [Change(what, now[what], changes[what]) for what in BUDGET if what in changes and changes[what] != now[what]]
    if not made:
        return []
    limits = {f"limit_{unit}": changes.get(what, now[what]) for what, unit in BUDGET.items()}
    budget = own_budget(task)
    if budget is None:
        create_budget(scope=BudgetScope.TASK, period=BudgetPeriod.TASK, task=task, actor=actor, reason=reason, **limits)
    elif any(limit is not None for limit in limits.values()):
        change_budget(budget.pk, actor=actor, reason=reason, **limits)
    else:
        end_budget(budget.pk, actor=actor, reason=reason)
    return made


def _refuse_unseen(now: Mapping[str, Any], changes: Mapping[str, Any], seen: Mapping[str, Any]) -> None:
    for what in changes:
        if what in seen and not _same(seen[what], now[what]) and not _same(changes[what], now[what]):
            raise Refused(
                f"Somebody has changed the {NAMES[what]} meanwhile, to {_told(what, now[what])}. Look at it again."
            )


def _same(one: Any, other: Any) -> bool:
    """A page shows and sends a deadline to the minute."""
    if isinstance(one, datetime) and isinstance(other, datetime):
        return one.replace(second=0, microsecond=0) == other.replace(second=0, microsecond=0)
    return bool(one == other)


def _told(what: str, value: Any) -> str:
    own = value not in (None, "") or what in ("deadline", *BUDGET)
    return in_words(what, value) if own else "what the profile says"


def own_limits(task: Task) -> dict[str, Any]:
    """By the names of changes; None and "": the task has none of its own."""
    budget = own_budget(task)
    return {
        "budget_usd": budget.limit_usd if budget else None,
        "budget_tokens": budget.limit_tokens if budget else None,
        "max_steps": task.max_steps,
        "max_output_tokens": task.max_output_tokens_override,
        "model": task.model_override,
        "deadline": task.deadline,
        "interactive": task.interactive,
    }


def _answer_moved_limits(pen: Pen, reason: str) -> None:
    """Questions about a limit that does not stand in the way any more are answered by whoever moved it."""
    task = pen.task
    newest = Step.objects.filter(branch_id=task.current_branch_id).aggregate(number=Max("number"))["number"]
    taken_steps = newest if newest is not None else pen.branch.first_step - 1
    stands = {
        EscalationKind.LIMIT: taken_steps >= task.max_steps,
        EscalationKind.DEADLINE: task.deadline is not None and task.deadline <= pen.now,
    }
    moved = [kind.value for kind, in_the_way in stands.items() if not in_the_way]
    answered = list(open_questions(pen).filter(kind__in=moved))
    for question in answered:
        decision = ANSWERED_BY[EscalationKind(question.kind)]
        Escalation.objects.filter(pk=question.pk).update(
            status=EscalationStatus.ANSWERED.value,
            decision=decision.value,
            words=reason,
            answered_by=pen.actor,
            answered_at=pen.now,
        )
        pen.event(
            EventKind.ESCALATION_ANSWERED,
            escalation=question.pk,
            escalation_kind=question.kind,
            decision=decision.value,
            words=clip(reason, EXCERPT_CHARS),
            tool_call=None,
            arguments="",
        )
        pen.audit(f"escalation.{decision.value}", reason=reason, escalation=question.pk)
        question_signals.over(pen, question, f"{pen.actor} has moved the limit. {reason}".strip())
    if answered:
        go_on(pen)
