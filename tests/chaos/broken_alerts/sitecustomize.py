"""Builds in which alerts are broken on purpose, so that it shows that the audit finds it: CHAOS_BROKEN names one.

Python reads this file in every process whose PYTHONPATH names its folder: those of a storm that asks for it. A line of
the product is changed while its module is read; the product itself has no switch for this.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import os
import sys
from collections.abc import Sequence
from types import CodeType, ModuleType

# name → module, what stands there, what stands there instead
BUILDS = {
    # a message counts as delivered when it is about to be sent: what dies then is lost
    "delivered first": (
        "workspaces.engine.courier",
        "        result = await send(claimed)\n",
        "        sure = Result(AttemptOutcome.DELIVERED)\n"
        "        await self._in_thread(lambda: sendings.finished(claimed, sure))\n"
        "        result = await send(claimed)\n",
    ),
    # a later message does not wait for an earlier one of its alert
    "unordered": (
        "workspaces.actions.sendings",
        "AND earlier.number < mine.number",
        "AND FALSE AND earlier.number < mine.number",
    ),
    # each try is a message of its own
    "new ids": (
        "workspaces.actions.sendings",
        "message_id=row.message_id,",
        "message_id=f'msg_{__import__(\"uuid\").uuid4().hex}',",
    ),
    # what was signalled counts as taken before it was
    "taken first": (
        "workspaces.actions.alerts",
        "        if happenings:\n            _take_all(",
        "        AlertSignal.objects.filter(pk__in=[each.pk for each in signals]).update(digested_at=now)\n"
        "        transaction.get_connection().connection.execute('COMMIT')\n"
        "        transaction.get_connection().connection.execute('BEGIN')\n"
        "        __import__('time').sleep(0.2)\n"
        "        if happenings:\n            _take_all(",
    ),
}


class _Loader(importlib.machinery.SourceFileLoader):
    def get_code(self, fullname: str) -> CodeType:
        """Never from a cache."""
        _, old, new = BUILDS[os.environ["CHAOS_BROKEN"]]
        source = self.get_data(self.path).decode()
        if old not in source:
            raise ImportError(f"{fullname} does not read as it did: {old!r} is not in it")
        return compile(source.replace(old, new), self.path, "exec")


class _Breaker(importlib.abc.MetaPathFinder):
    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != BUILDS[os.environ["CHAOS_BROKEN"]][0]:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        assert spec is not None
        assert spec.origin is not None
        spec.loader = _Loader(name, spec.origin)
        return spec


if os.environ.get("CHAOS_BROKEN"):
    sys.meta_path.insert(0, _Breaker())
