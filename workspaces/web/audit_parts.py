"""The structural audit as pages and files show it: proofs become addresses, rows become JSON or Markdown. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from django.urls import reverse

from workspaces.domain.audit import Audit, Row
from workspaces.domain.audit_facts import Facts, Item, Presence, Proof

TONES = {
    Presence.PRESENT: ("green", "check"),
    Presence.PARTIAL: ("amber", "alert"),
    Presence.MISSING: ("red", "cross"),
}


def _in_task(panel: str) -> Callable[[Mapping[str, Any]], str]:
    return lambda of: f"{reverse('task', args=[of['task']])}?{urlencode({'panel': panel})}"


def _task(of: Mapping[str, Any]) -> str:
    group = f"?{urlencode({'group': of['group']})}" if "group" in of else ""
    return reverse("task", args=[of["task"]]) + group


_PAGES: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "incidents": lambda of: f"{reverse('incidents')}?{urlencode(of)}",
    "questions": lambda of: reverse("task", args=[of["task"]]) + "?group=people" if "task" in of else reverse("inbox"),
    "task": _task,
    "calls": lambda of: f"{reverse('task', args=[of['task']])}?group=tools",
    "checkpoints": _in_task("checkpoints"),
    "context": _in_task("context"),
    "scratchpad": _in_task("scratchpad"),
    "fleet": lambda of: reverse("fleet"),
    "workspaces": lambda of: reverse("workspaces"),
    "profiles": lambda of: reverse("profiles"),
    "quota": lambda of: reverse("quota"),
    "budgets": lambda of: reverse("budgets"),
    "recurrence": lambda of: reverse("incidents-recurrence"),
    "compounding": lambda of: reverse("incidents-compounding"),
}


def address(proof: Proof) -> str:
    return _PAGES[proof.page](dict(proof.of))


def shown(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """For the template."""
    return [
        {
            "row": row,
            "look": TONES[row.presence],
            "address": address(row.proof),
            "parts": [("artifact", _items(row.artifacts)), ("control", _items(row.controls))],
        }
        for row in rows
    ]


def _items(items: Sequence[Item]) -> list[dict[str, Any]]:
    return [
        {
            "item": item,
            "look": TONES[item.presence],
            "links": [{"words": proof.words, "address": address(proof)} for proof in item.proofs],
        }
        for item in items
    ]


def as_json(audit: Audit, facts: Facts, *, at: str, base: str) -> dict[str, Any]:
    """`base`: scheme and host, so that the links work from wherever the file is read."""
    return {
        "audited_at": at,
        "task": facts.task,
        "tasks": facts.tasks,
        "counts": {presence.value: audit.count(presence) for presence in Presence},
        "failure_modes": [_row_json(row, base) for row in audit.modes],
        "clusters": [_row_json(row, base) for row in audit.clusters],
    }


def _row_json(row: Row, base: str) -> dict[str, Any]:
    return {
        "id": row.value,
        "name": row.name,
        "meaning": row.line,
        "state": row.presence.value,
        "incidents": row.incidents,
        "incidents_url": base + address(row.proof),
        "artifacts": [_item_json(item, base) for item in row.artifacts],
        "controls": [_item_json(item, base) for item in row.controls],
    }


def _item_json(item: Item, base: str) -> dict[str, Any]:
    return {
        "name": item.name,
        "state": item.presence.value,
        "reason": item.why,
        "links": [{"words": proof.words, "url": base + address(proof)} for proof in item.proofs],
    }


def as_markdown(audit: Audit, facts: Facts, *, at: str, base: str) -> str:
    about = f"task {facts.task}" if facts.task else f"{facts.tasks} tasks"
    lines = [f"# Structural audit of {about}", "", f"Made {at}.", ""]
    for heading, rows in (("Failure modes", audit.modes), ("Clusters (arXiv 2607.05775)", audit.clusters)):
        lines += [f"## {heading}", ""]
        for row in rows:
            lines += [
                f"### {row.name}: {row.presence.value}",
                "",
                f"{row.line} [{row.incidents} incidents]({base}{address(row.proof)})",
                "",
                "| | state | why | rows |",
                "|---|---|---|---|",
                *(_markdown_line("artifact", item, base) for item in row.artifacts),
                *(_markdown_line("control", item, base) for item in row.controls),
                "",
            ]
    return "\n".join(lines)


def _markdown_line(role: str, item: Item, base: str) -> str:
    links = ", ".join(f"[{proof.words}]({base}{address(proof)})" for proof in item.proofs)
    cells = (f"{role}: {item.name}", item.presence.value, item.why, links)
    return "| " + " | ".join(_cell(cell) for cell in cells) + " |"


def _cell(text: str) -> str:
    """A name that people chose cannot end the cell or the line."""
    return " ".join(text.split()).replace("|", "\\|")
