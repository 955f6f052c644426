"""A worker process that kills itself with SIGKILL while it puts a workspace to sleep, wakes it, or tidies up.

    python -m tests.engine.dying_sleeper sleep|wake|retain ID MODULE PATH before|after

The named function is only preceded or followed by the end. Status 3: the point was never reached.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
from functools import wraps
from typing import Any

import django


def main() -> None:
    deed, number, module_name, path, when = sys.argv[1], int(sys.argv[2]), *sys.argv[3:6]
    os.environ["DJANGO_SETTINGS_MODULE"] = "agentdesk.settings"
    django.setup()
    from workspaces.engine import lifecycle, retention

    owner: Any = importlib.import_module(module_name)
    *parents, name = path.split(".")
    for parent in parents:
        owner = getattr(owner, parent)
    original = getattr(owner, name)

    @wraps(original)
    def deadly(*args: Any, **kwargs: Any) -> Any:
        if when == "after":
            original(*args, **kwargs)
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(owner, name, deadly)
    if deed == "sleep":
        lifecycle.sleep(number)
    elif deed == "wake":
        lifecycle.wake(number)
    else:
        retention.run()
    sys.exit(3)


if __name__ == "__main__":
    main()
