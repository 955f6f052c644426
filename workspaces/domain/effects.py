"""What a tool call does outside its sandbox, and the key under which the ledger remembers it. Pure."""

from __future__ import annotations

import hashlib
import json
import math
from decimal import Decimal
from enum import StrEnum
from typing import Any

_WRITTEN_OUT = 1e16  # from here on a float is written with an exponent


class Effect(StrEnum):
    """Ordered by how much a repeat could hurt."""

    NONE = "none"  # reads only
    WORKSPACE = "workspace"  # changes files; undone by restoring a snapshot
    EXTERNAL = "external"  # acts outside; undoable or repeatable
    IRREVERSIBLE = "irreversible"  # acts outside; cannot be undone

    @property
    def leaves_sandbox(self) -> bool:
        return self in (Effect.EXTERNAL, Effect.IRREVERSIBLE)

    @property
    def touches_disk(self) -> bool:
        """Whether files may differ afterwards. Only reads are known to leave the disk as it was."""
        return self is not Effect.NONE


def canonical_json(value: Any) -> str:
    """One text for one value: sorted keys, no spaces. Raises ValueError for NaN and infinities.

    Also for one that was stored and read again: the database writes large numbers out, and knows no negative zero.
    """
    return json.dumps(_as_stored(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def _as_stored(value: Any) -> Any:
    if isinstance(value, float):
        if abs(value) >= _WRITTEN_OUT and math.isfinite(value):
            return int(Decimal(repr(value)))  # the digits that JSON says, not those of the binary number
        return value or 0.0
    if isinstance(value, dict):
        return {key: _as_stored(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_as_stored(item) for item in value]
    return value


def arguments_hash(name: str, arguments: dict[str, Any]) -> str:
    """SHA-256 (hex) of a tool's name and exact arguments. An approval is bound to it."""
    return hashlib.sha256(f"{name}\n{canonical_json(arguments)}".encode()).hexdigest()


def effect_key(root_task_id: int, call_hash: str, occurrence: int) -> str:
    """The ledger's key (hex) of the `occurrence`-th (1, 2, …) such call along one line of history.

    A rollback or a fork walks the same line again and so meets the same keys: a completed effect is
    replayed. A second, meant call on the same line has the next occurrence, hence a key of its own.
    """
    return hashlib.sha256(f"{root_task_id}\n{call_hash}\n{occurrence}".encode()).hexdigest()
