"""Trace events as the templates show them: words, tone and icon by kind, from the event's own data alone. Pure.

`templates/trace/_event.html` renders one row; the page and the socket both use it. Never queries.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal, InvalidOperation
from typing import Any

from workspaces.domain.budget_words import limits_in_words, threshold_in_words
from workspaces.domain.events import EventKind
from workspaces.domain.retuning import changes_in_words
from workspaces.models import Event
from workspaces.queries.trace import CurrentLine, KindGroup, group_of

MAX_DIFF_LINES = 400
PLAIN = "trace/_plain.html"
INCIDENT = "trace/_incident.html"

K = EventKind

# kind → (words, icon, tone, template)
_LOOKS: dict[str, tuple[str, str, str, str]] = {
    K.TASK_CREATED.value: ("task created", "flag", "blue", "trace/_created.html"),
    K.TASK_STARTED.value: ("taken up", "play", "grey", PLAIN),
    K.TASK_QUEUED.value: ("queued", "queued", "grey", PLAIN),
    K.TASK_WAITING.value: ("waits", "clock", "amber", PLAIN),
    K.TASK_PAUSING.value: ("asked to pause", "pausing", "amber", PLAIN),
    K.TASK_PAUSED.value: ("paused", "pause", "amber", PLAIN),
    K.TASK_RESUMED.value: ("resumed", "play", "blue", PLAIN),
    K.TASK_SUCCEEDED.value: ("succeeded", "check", "green", "trace/_text.html"),
    K.TASK_FAILED.value: ("failed", "cross", "red", "trace/_text.html"),
    K.TASK_CANCELLED.value: ("cancelled", "ban", "grey", PLAIN),
    K.TASK_CANCELLING.value: ("asked to cancel", "ban", "amber", PLAIN),
    K.TASK_ROLLED_BACK.value: ("rolled back", "rewind", "violet", "trace/_rolled_back.html"),
    K.TASK_FORKED.value: ("forked", "branch", "violet", "trace/_forked.html"),
    K.TASK_TAKEN_OVER.value: ("taken over from a worker that ended", "bolt", "amber", PLAIN),
    K.TASK_RESTORED.value: ("restored from a backup", "rewind", "amber", PLAIN),
    K.TASK_RETUNED.value: ("limits changed", "flag", "blue", PLAIN),
    K.BUDGET_CHANGED.value: ("budget changed", "flag", "blue", PLAIN),
    K.BUDGET_THRESHOLD.value: ("budget past a threshold", "flag", "amber", PLAIN),
    K.LIMIT_RAISED.value: ("limit raised", "flag", "blue", PLAIN),
    K.INTAKE_DONE.value: ("files brought in", "folder", "grey", PLAIN),
    K.INTAKE_FAILED.value: ("files could not be brought in", "folder", "red", PLAIN),
    K.STEP_STARTED.value: ("step", "chevron", "grey", "trace/_step.html"),
    K.CONTEXT_BUILT.value: ("context built", "grid", "grey", "trace/_built.html"),
    K.CONTEXT_COMPACTED.value: ("context compacted", "box", "violet", "trace/_compacted.html"),
    K.SUMMARY_REFUSED.value: ("summary refused", "alert", "amber", PLAIN),
    K.MODEL_CALLED.value: ("model asked", "robot", "grey", PLAIN),
    K.MODEL_REPLIED.value: ("model replied", "robot", "blue", "trace/_model.html"),
    K.MODEL_FAILED.value: ("model call failed", "robot", "red", PLAIN),
    K.MODEL_DROPPED.value: ("model call dropped", "robot", "amber", "trace/_dropped.html"),
    K.REPLY_CORRECTED.value: ("reply corrected", "alert", "amber", "trace/_corrected.html"),
    K.CALL_JUDGED.value: ("call judged", "shield", "grey", "trace/_judged.html"),
    K.CALL_STARTED.value: ("call started", "terminal", "grey", "trace/_started.html"),
    K.CALL_FINISHED.value: ("call finished", "terminal", "green", "trace/_finished.html"),
    K.CALL_REPLAYED.value: ("effect already done: result replayed", "shield", "violet", PLAIN),
    K.CALL_UNKNOWN.value: ("outcome unknown", "alert", "amber", PLAIN),
    K.CALL_ABANDONED.value: ("call abandoned", "ban", "grey", PLAIN),
    K.ESCALATION_OPENED.value: ("operator asked", "hand", "amber", "trace/_asked.html"),
    K.ESCALATION_ANSWERED.value: ("operator answered", "hand", "green", "trace/_answered.html"),
    K.ESCALATION_APPROVED_ONCE.value: ("first of two approvals", "hand", "amber", "trace/_answered.html"),
    K.ESCALATION_RAISED.value: ("nobody answered: an owner is asked", "clock", "amber", PLAIN),
    K.APPROVAL_STANDING.value: ("call allowed for always", "shield", "amber", PLAIN),
    K.APPROVAL_REVOKED.value: ("allowed no longer", "shield", "grey", PLAIN),
    K.ESCALATION_EXPIRED.value: ("question expired", "clock", "red", PLAIN),
    K.ESCALATION_WITHDRAWN.value: ("question withdrawn", "hand", "grey", PLAIN),
    K.MESSAGE_ADDED.value: ("message", "message", "blue", "trace/_text.html"),
    K.NOTE_WRITTEN.value: ("note", "file", "grey", "trace/_note.html"),
    K.CHECKPOINT_SAVED.value: ("checkpoint", "flag", "grey", "trace/_checkpoint.html"),
    K.TOOLS_LOOKED.value: ("MCP server looked at", "globe", "grey", PLAIN),
    K.NETWORK_CONNECTION.value: ("connection out", "globe", "grey", PLAIN),
    K.WORKSPACE_MOVED.value: ("workspace moved to another node", "bolt", "amber", PLAIN),
    K.WORKSPACE_WOKE.value: ("workspace woke", "sun", "grey", PLAIN),
    K.WORKSPACE_SLEPT.value: ("workspace fell asleep", "moon", "grey", PLAIN),
    K.WORKSPACE_RESTORED.value: ("files put back", "rewind", "violet", PLAIN),
    K.INCIDENT_OPENED.value: ("incident", "alert", "red", INCIDENT),
    K.INCIDENT_GREW.value: ("incident goes on", "alert", "red", INCIDENT),
    K.INCIDENT_RESPONDED.value: ("incident answered", "alert", "amber", INCIDENT),
    K.INCIDENT_MEASURED.value: ("nudge measured", "alert", "grey", INCIDENT),
    K.INCIDENT_ACKNOWLEDGED.value: ("incident acknowledged", "hand", "green", INCIDENT),
    K.INCIDENT_RESOLVED.value: ("incident resolved", "check", "green", INCIDENT),
    K.COMMAND_ORDERED.value: ("operator's command", "terminal", "violet", "trace/_text.html"),
    K.COMMAND_FINISHED.value: ("operator's command ended", "terminal", "violet", "trace/_command.html"),
    K.WORKSPACE_FROZEN.value: ("sandbox frozen", "snow", "amber", PLAIN),
}
_CLASS_TONES = {
    "ok": "green",
    "error": "red",
    "timeout": "red",
    "empty": "amber",
    "ambiguous": "amber",
    "truncated": "amber",
}
_VERDICT_TONES = {"allow": "grey", "correct": "amber", "hold": "amber", "replay": "violet"}
_QUIET = frozenset({K.CONTEXT_BUILT.value, K.MODEL_CALLED.value, K.CALL_STARTED.value, K.TASK_QUEUED.value})
_WITHOUT_FACT = frozenset({"model_call", "tool_call", "escalation", "ranges", "text", "name", "reason", "message"})
_REASON_KEYS = ("reason", "message", "why", "what", "problem")


class _Data(dict[str, Any]):
    """An event's data in which what is missing is None: templates' filters know None, not an empty string."""

    def __missing__(self, key: str) -> None:
        return None


@dataclass(frozen=True, slots=True)
class DiffLine:
    look: str  # add, del, hunk, same
    text: str


@dataclass(frozen=True, slots=True)
class Row:
    """One event, ready to be shown."""

    task_id: int
    seq: int
    kind: str
    group: KindGroup
    branch: int
    step: int | None
    at: datetime
    actor: Any
    words: str
    icon: str
    tone: str
    template: str
    abandoned: bool
    data: dict[str, Any]
    reason: str = ""
    facts: list[tuple[str, str]] = field(default_factory=list)
    text: str = ""
    clipped: bool = False
    quiet: bool = False  # it went as it should and says little
    diff: list[DiffLine] = field(default_factory=list)


def rows_of(events: Iterable[Event], line: CurrentLine) -> list[Row]:
    return [row_of(event, line) for event in events]


def row_of(event: Event, line: CurrentLine) -> Row:
    """Never raises for data that an older version wrote: what is missing is not shown."""
    words, icon, tone, template = _LOOKS.get(event.kind, (event.kind, "more", "grey", PLAIN))
    data = _Data(event.data if isinstance(event.data, dict) else {})
    text = str(data.get("result") or data.get("text") or data.get("partial") or data.get("told") or "")
    if event.kind in (K.TASK_FAILED.value,):
        text = str(data.get("reason") or "")
    match event.kind:
        case K.CALL_FINISHED.value:
            tone = _CLASS_TONES.get(str(data.get("result_class")), "grey")
        case K.CALL_JUDGED.value:
            tone = _VERDICT_TONES.get(str(data.get("verdict")), "grey")
        case K.MODEL_REPLIED.value if data.get("finish_reason") in ("length", "content_filter"):
            tone = "amber"
        case K.NETWORK_CONNECTION.value if not data.get("allowed"):
            words, tone = "connection refused", "amber"
        case K.BUDGET_CHANGED.value:
            words = f"budget {data.get('what') or 'changed'}"
        case K.MESSAGE_ADDED.value:
            words = f"message from the {data.get('role') or 'operator'}"
    if data.get("cost_usd") is not None:
        data["cost_usd"] = _money(data["cost_usd"])
    inner = data.get("data") if isinstance(data.get("data"), dict) else {}
    diff = diff_lines(str(data.get("diff") or inner.get("diff") or "")) if isinstance(inner, dict) else []
    return Row(
        task_id=event.task_id,
        seq=event.seq,
        kind=event.kind,
        group=group_of(event.kind),
        branch=event.branch_number,
        step=event.step_number,
        at=event.at,
        actor=event.actor,
        words=words,
        icon=icon,
        tone=tone,
        template=template,
        abandoned=not line.holds(event.branch_number, event.seq),
        data=data,
        reason=next((str(data[key]) for key in _REASON_KEYS if data.get(key)), ""),
        facts=_facts_of(event.kind, data) if template == PLAIN else _call_facts(inner),
        text=_without_diff(text) if diff else text,
        clipped=text.endswith("…"),
        quiet=event.kind in _QUIET or (event.kind == K.CALL_JUDGED.value and data.get("verdict") == "allow"),
        diff=diff,
    )


def _facts_of(kind: str, data: dict[str, Any]) -> list[tuple[str, str]]:
    match kind:
        case K.TASK_RETUNED.value:
            return changes_in_words(data.get("changes"))
        case K.BUDGET_CHANGED.value:
            return [("budget", str(data.get("budget"))), *limits_in_words(data.get("old"), data.get("new"))]
        case K.BUDGET_THRESHOLD.value:
            return threshold_in_words(data)
    return _facts(data)


def _facts(data: dict[str, Any]) -> list[tuple[str, str]]:
    """Small values by their names, for the kinds that need no page of their own."""
    return [
        _named(key, value)
        for key, value in data.items()
        if key not in _WITHOUT_FACT and key not in _REASON_KEYS and value not in (None, "", [], {})
    ]


def _call_facts(inner: Any) -> list[tuple[str, str]]:
    wanted = ("path", "exit_code", "bytes", "lines", "output_file", "replaced", "section")
    if not isinstance(inner, dict):
        return []
    return [_named(key, inner[key]) for key in wanted if inner.get(key) not in (None, "")]


def _named(key: str, value: Any) -> tuple[str, str]:
    """A value with its unit, as its key names it: `_s` is seconds, a snapshot's ref is cut to tell it apart."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        if key.endswith("_s"):
            return key.removesuffix("_s").replace("_", " "), f"{value:.2f} s"
        return key.replace("_", " "), f"{value:,}"
    if key == "until":
        return key, f"{str(value)[:16].replace('T', ' ')} UTC"
    return key.replace("_", " "), str(value)[:8] if key == "snapshot" else _brief(value)


def _money(value: Any) -> Decimal | None:
    try:
        return Decimal(str(value))
    except InvalidOperation:
        return None


def _brief(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 200 else text[:199] + "…"


def _without_diff(text: str) -> str:
    """A result that repeats the diff below its first line is shown once."""
    return text.split("\n--- a/", 1)[0].rstrip()


def diff_lines(diff: str, limit: int = MAX_DIFF_LINES) -> list[DiffLine]:
    """A unified diff, line by line, at most `limit` of them."""
    lines = diff.split("\n")
    if lines and not lines[-1]:
        lines.pop()
    shown = [DiffLine(_look(line), line) for line in lines[:limit] if line]
    if len(lines) > limit:
        shown.append(DiffLine("hunk", f"… {len(lines) - limit} more lines"))
    return shown


def _look(line: str) -> str:
    if line.startswith(("@@", "---", "+++", "\\")):
        return "hunk"
    return {"+": "add", "-": "del"}.get(line[:1], "same")


def number_or_none(text: str | None) -> int | None:
    """A seq from a URL; what is no such number is none."""
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 16 else None
