"""A build that is broken on purpose: an effect outside is written down after it was made, not before.

Python reads this file in every process whose PYTHONPATH names its folder: those of a chaos run that asks for it. It
waits for the module of the calls and changes it; the product itself has no switch for this.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

MODULE = "workspaces.actions.calls"


class _Breaker(importlib.abc.MetaPathFinder):
    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        assert spec is not None
        assert spec.loader is not None
        loaded = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            loaded(module)
            _break(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _break(calls: Any) -> None:
    """An intent for an effect outside is kept back until its result is stored."""
    begin, end = calls.start_call, calls.finish_call
    kept: dict[int, tuple[Any, ...]] = {}

    def start_call(task_id: int, fence: int, call: Any, **more: Any) -> Any:
        if not call.effect_key:
            return begin(task_id, fence, call, **more)
        kept[call.pk] = (task_id, fence, more)
        call.status = "running"
        call.attempt += 1
        ledger = sys.modules.get("workspaces.actions.ledger")
        return ledger.Turn.MINE if ledger else None

    def finish_call(task_id: int, fence: int, call: Any, **more: Any) -> None:
        if call.pk in kept:
            at_first = kept.pop(call.pk)
            call.attempt -= 1
            begin(at_first[0], at_first[1], call, **at_first[2])
        end(task_id, fence, call, **more)

    calls.start_call, calls.finish_call = start_call, finish_call


sys.meta_path.insert(0, _Breaker())
