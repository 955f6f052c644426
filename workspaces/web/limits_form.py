"""The form of a task's limits: what was typed, what of it is a change, and what cannot be taken."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

from django import forms

from workspaces.domain.retuning import problems_with
from workspaces.domain.text import clean_text
from workspaces.models import Task
from workspaces.queries.database import database_now
from workspaces.queries.task_budgets import own_budget
from workspaces.queries.tuning import tuned

MINUTE = "%Y-%m-%dT%H:%M"
FIELDS = ("max_steps", "deadline", "model", "max_output_tokens", "interactive", "budget_usd", "budget_tokens")


def deadline_field() -> forms.DateTimeField:
    return forms.DateTimeField(
        required=False,
        input_formats=[MINUTE, "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M"],
        error_messages={"invalid": "Write a date and a time (UTC), or leave it empty."},
    )


def usd_field() -> forms.DecimalField:
    return forms.DecimalField(required=False, min_value=0, max_digits=18, decimal_places=9)


def tokens_field() -> forms.IntegerField:
    return forms.IntegerField(required=False, min_value=0, max_value=10**15)


class LimitsForm(forms.Form):
    max_steps = forms.IntegerField(error_messages={"required": "Say how many steps it may take."})
    deadline = deadline_field()
    model = forms.CharField(required=False, max_length=200)
    max_output_tokens = forms.IntegerField(required=False)
    interactive = forms.BooleanField(required=False)
    budget_usd = usd_field()
    budget_tokens = tokens_field()
    unchecked = forms.BooleanField(required=False)
    reason = forms.CharField(
        max_length=500,
        error_messages={"required": "Say why: the reason is kept in the trace and in the audit log."},
    )
    seen = forms.CharField(required=False, max_length=2000)

    def __init__(self, task: Task, data: Any = None) -> None:
        self.task = task
        now = shown(task)
        super().__init__(data, initial={**now, "seen": json.dumps(now)})

    def clean_model(self) -> str:
        model = clean_text(self.cleaned_data["model"]).strip()
        return "" if model == self.task.profile_version.model else model

    def clean(self) -> dict[str, Any]:
        data: dict[str, Any] = super().clean() or self.cleaned_data
        seen = self._seen()
        self.seen_values: dict[str, Any] = {name: _as_value(name, seen[name]) for name in FIELDS if name in seen}
        self.changes = {
            name: data[name]
            for name in FIELDS
            if name in data and (name not in seen or _as_shown(data[name]) != seen[name])
        }
        window = tuned(self.task.profile_version, model=data.get("model", "")).context_window_tokens
        for name, words in problems_with(self.changes, window_tokens=window, now=database_now()).items():
            self.add_error(name, words)
        return data

    def _seen(self) -> dict[str, Any]:
        """What the page had shown; nothing where that cannot be read: then all that differs is a change."""
        try:
            seen = json.loads(self.data.get("seen", ""))
            return {name: seen[name] for name in FIELDS if name in seen and _as_value(name, seen[name]) is not ...}
        except (ValueError, TypeError, RecursionError, InvalidOperation):
            return {}


def shown(task: Task) -> dict[str, Any]:
    """The task's own limits as the fields show them."""
    budget = own_budget(task)
    return {
        "max_steps": task.max_steps,
        "deadline": _as_shown(task.deadline),
        "model": task.model_override,
        "max_output_tokens": task.max_output_tokens_override,
        "interactive": task.interactive,
        "budget_usd": _as_shown(budget.limit_usd) if budget else None,
        "budget_tokens": budget.limit_tokens if budget else None,
    }


def _as_shown(value: Any) -> Any:
    if isinstance(value, Decimal):
        return f"{value.normalize():f}"
    return f"{value.astimezone(UTC):{MINUTE}}" if isinstance(value, datetime) else value


def _as_value(name: str, value: Any) -> Any:
    """Of what was shown. Raises ValueError or TypeError for what never was."""
    if name == "deadline" and value is not None:
        return datetime.strptime(value, MINUTE).replace(tzinfo=UTC)
    if name == "budget_usd" and value is not None:
        return Decimal(value)
    return value
