"""What a person can change on a task that is under way, and which values cannot be taken. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

MOST_STEPS = 1_000_000
LEAST_OUTPUT_TOKENS = 16
MOST_DAYS = 366

# what it is called in a change and in the trace → the task's column
COLUMNS = {
    "max_steps": "max_steps",
    "max_output_tokens": "max_output_tokens_override",
    "model": "model_override",
    "deadline": "deadline",
    "interactive": "interactive",
}
NAMES = {
    "max_steps": "steps",
    "max_output_tokens": "output limit",
    "model": "model",
    "deadline": "deadline",
    "interactive": "interactive",
    "budget_usd": "budget in USD",
    "budget_tokens": "budget in tokens",
}


@dataclass(frozen=True, slots=True)
class Change:
    """One limit: `old` and `new` are what holds, whoever says so; `own`: the new one is the task's."""

    what: str
    old: Any
    new: Any
    own: bool = True

    def as_json(self) -> dict[str, Any]:
        return {"what": self.what, "old": _plain(self.old), "new": _plain(self.new), "own": self.own}


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value


def problems_with(changes: Mapping[str, Any], *, window_tokens: int, now: datetime) -> dict[str, str]:
    """By the name of what is changed. `window_tokens`: of the model that will be asked."""
    found: dict[str, str] = {}
    steps = changes.get("max_steps")
    if "max_steps" in changes and not (isinstance(steps, int) and 1 <= steps <= MOST_STEPS):
        found["max_steps"] = f"Say how many steps it may take on this branch: 1 to {MOST_STEPS:,}."
    output = changes.get("max_output_tokens")
    if output is not None and not LEAST_OUTPUT_TOKENS <= output < window_tokens:
        found["max_output_tokens"] = (
            f"A reply takes {LEAST_OUTPUT_TOKENS} tokens at least, and less than the window of {window_tokens:,}."
        )
    model = changes.get("model")
    if model and (len(model) > 200 or not model.isprintable()):
        found["model"] = "A model's name has at most 200 characters."
    deadline = changes.get("deadline")
    if deadline is not None and deadline <= now:
        found["deadline"] = "That is past already. To stop the task now, pause or cancel it."
    elif deadline is not None and deadline > now + timedelta(days=MOST_DAYS):
        found["deadline"] = f"A deadline lies at most {MOST_DAYS} days ahead. Leave it empty for none."
    return found


def in_words(what: str, value: Any) -> str:
    """A limit's value for people; as it stands in the trace, or as it is set."""
    if value is None or value == "":
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if what == "deadline":
        moment = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
        return f"{moment:%Y-%m-%d %H:%M} UTC"
    return f"${value.normalize():f}" if isinstance(value, Decimal) else str(value)


def changes_in_words(changes: Any) -> list[tuple[str, str]]:
    """(name, "old → new") of an event's data, which an older version may have written otherwise."""
    return [
        (
            NAMES.get(each["what"], each["what"]),
            f"{in_words(each['what'], each['old'])} → {in_words(each['what'], each['new'])}"
            + ("" if each.get("own", True) else " (the profile's)"),
        )
        for each in changes or []
    ]
