"""What differs between two versions of a profile, in words. Pure: two mappings of column → value in, changes out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from workspaces.domain.diffs import unified_diff
from workspaces.domain.effects import canonical_json

# column → the part of an agent that it belongs to; what is not named here is a part of its own
PARTS: dict[str, str] = {
    "system_prompt": "prompt",
    "model": "model",
    "provider": "model",
    "base_url": "model",
    "provider_options": "model",
    "temperature": "model",
    "tools": "tools",
    "declared_tools": "tools",
    "http": "tools",
    "mcp_servers": "tools",
    "max_steps": "limits",
    "max_output_tokens": "limits",
    "model_timeout_s": "limits",
    "approval_expires_s": "limits",
    "context_window_tokens": "context",
    "context_policy": "context",
    "detectors": "detectors",
    "policy": "policy",
    "keep_last": "retention",
    "keep_every": "retention",
    "input_usd_per_mtok": "prices",
    "output_usd_per_mtok": "prices",
    "local_allowed": "isolation",
    "fallback": "model",
}
ORDER = tuple(dict.fromkeys(PARTS.values()))
LONG_CHARS = 60


@dataclass(frozen=True, slots=True)
class Change:
    """One column that differs. `diff`: of a long text, as `diff -u` has it."""

    part: str
    column: str
    words: str
    diff: str = ""


def changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Change]:
    """What the new one has otherwise, by part in ORDER. Columns that only one of them has count as changed."""
    found = [
        _change(column, old.get(column), new.get(column))
        for column in dict.fromkeys((*PARTS, *old, *new))
        if (column in old or column in new) and old.get(column) != new.get(column)
    ]
    return sorted(found, key=lambda change: ORDER.index(change.part) if change.part in ORDER else len(ORDER))


def parts_of(found: list[Change]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(change.part for change in found))


def _change(column: str, old: Any, new: Any) -> Change:
    part, name = PARTS.get(column, column.replace("_", " ")), column.replace("_", " ")
    if isinstance(old, str) and isinstance(new, str) and max(len(old), len(new)) > LONG_CHARS:
        diff = unified_diff(old, new, column)
        lines = diff.splitlines()[2:]
        added, removed = (sum(line.startswith(sign) for line in lines) for sign in "+-")
        return Change(part, column, f"{name}: {added} line{_s(added)} added, {removed} removed", diff)
    if isinstance(old, list) and isinstance(new, list):
        return Change(part, column, f"{name}: {_list_words(old, new)}")
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        keys = [key for key in dict.fromkeys((*old, *new)) if old.get(key) != new.get(key)]
        told = ", ".join(f"{key} {_brief(old.get(key))} → {_brief(new.get(key))}" for key in keys)
        return Change(part, column, f"{name}: {told}")
    return Change(part, column, f"{name}: {_brief(old)} → {_brief(new)}")


def _list_words(old: list[Any], new: list[Any]) -> str:
    """Entries by their names where they have one: "+ http, − shell, changed send_invoice"."""
    before, after = ({_name(item): canonical_json(item) for item in items} for items in (old, new))
    told = [f"+ {name}" for name in after if name not in before]
    told += [f"− {name}" for name in before if name not in after]
    told += [f"changed {name}" for name in after if name in before and before[name] != after[name]]
    return ", ".join(told) or "in another order"


def _name(item: Any) -> str:
    if isinstance(item, Mapping):
        return str(item.get("name") or item.get("tool") or _brief(item))
    return str(item)


def _brief(value: Any) -> str:
    if value is None or value == "":
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict | list):
        text = canonical_json(value)
    else:
        text = f"{value:,}" if isinstance(value, int) else str(value)
    return text if len(text) <= LONG_CHARS else text[: LONG_CHARS - 1] + "…"


def _s(count: int) -> str:
    return "" if count == 1 else "s"
