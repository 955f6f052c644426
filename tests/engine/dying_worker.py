"""A worker process that kills itself with SIGKILL at a named point of the engine. Run by test_recovery.py.

    python -m tests.engine.dying_worker TASK_ID MODULE FUNCTION before|after

Nothing is patched to behave differently: the named function is only followed (or preceded) by the end.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
from functools import wraps
from typing import Any

import django


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    task_id, module_name, path, when = int(sys.argv[1]), *sys.argv[2:5]
    os.environ["DJANGO_SETTINGS_MODULE"] = "agentdesk.settings"
    django.setup()
    from workspaces.engine import runner
    from workspaces.models import Task

    owner: Any = importlib.import_module(module_name)
    *parents, name = path.split(".")
    for parent in parents:
        owner = getattr(owner, parent)
    original = getattr(owner, name)

    @wraps(original)
    def deadly(*args: Any, **kwargs: Any) -> Any:
        if when == "before":
            die()
        original(*args, **kwargs)
        die()

    setattr(owner, name, deadly)
    for _ in range(100):
        runner.advance(task_id)
        if Task.objects.get(pk=task_id).finished_at is not None:
            break
    sys.exit(3)  # the point was never reached


if __name__ == "__main__":
    main()
