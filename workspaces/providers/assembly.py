"""Puts a reply together from the pieces that servers stream. Pure; knows the OpenAI form of the pieces only.

Servers differ: calls come in pieces by index, or whole; without an index, an id, or both; with every index 0;
with the name repeated in each piece, or cut; with arguments as an object instead of text.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from workspaces.domain.text import clean_text
from workspaces.providers.base import RawToolCall
from workspaces.providers.history import with_unique_ids


@dataclass(slots=True)
class _Slot:
    index: int | None
    call_id: str = ""
    name: str = ""
    arguments: str = ""

    def is_complete(self) -> bool:
        try:
            json.loads(self.arguments)
        except (ValueError, RecursionError):
            return False
        return True


class CallAssembler:
    """Merges pieces of tool calls in the order in which they come."""

    def __init__(self) -> None:
        self._slots: list[_Slot] = []
        self.chars = 0  # of all names and arguments

    def __len__(self) -> int:
        return len(self._slots)

    def add(self, pieces: object) -> None:
        for piece in pieces if isinstance(pieces, list | tuple) else ():
            function = field_of(piece, "function")
            self._add_piece(
                field_of(piece, "index"),
                text_of(field_of(piece, "id")),
                text_of(field_of(function, "name")),
                field_of(function, "arguments"),
            )

    def _add_piece(self, index: object, call_id: str, name: str, arguments: object) -> None:
        slot = self._slot(index if isinstance(index, int) else None, call_id, name)
        slot.call_id = slot.call_id or call_id
        if name and slot.name != name and not slot.arguments:
            slot.name += name
        self.chars += len(name) + (len(arguments) if isinstance(arguments, str) else 0)
        if isinstance(arguments, dict | list):
            slot.arguments = json.dumps(arguments, ensure_ascii=False)
        elif isinstance(arguments, str):
            slot.arguments += arguments

    def _slot(self, index: int | None, call_id: str, name: str) -> _Slot:
        same = [slot for slot in self._slots if slot.index == index] if index is not None else self._slots[-1:]
        if index is None and call_id:
            same = [slot for slot in self._slots if slot.call_id == call_id] or same
        known = same[-1] if same else None
        if known is not None:
            other_id = bool(call_id and known.call_id and call_id != known.call_id and name)
            other_name = bool(name and name != known.name and known.arguments)
            again = bool(index is None and name and name == known.name and not call_id and known.is_complete())
            if not (other_id or other_name or again):
                return known
        self._slots.append(_Slot(index))
        return self._slots[-1]

    def calls(self) -> tuple[RawToolCall, ...]:
        raw = (
            RawToolCall(clean_text(slot.call_id), clean_text(slot.name), clean_text(slot.arguments))
            for slot in self._slots
            if slot.name or slot.arguments.strip() or slot.call_id
        )
        return with_unique_ids(raw)


def field_of(value: object, name: str) -> Any:
    """A field of an SDK object or of plain JSON; None where there is none."""
    return value.get(name) if isinstance(value, dict) else getattr(value, name, None)


def text_of(value: object) -> str:
    """Text as a plain string or as a list of text parts; anything else is no text."""
    if isinstance(value, str):
        return value
    if isinstance(value, Iterable) and not isinstance(value, dict | bytes):
        return "".join(text_of(field_of(part, "text")) for part in value)
    return ""
