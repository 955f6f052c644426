"""A worker process that runs an operator's command and kills itself with SIGKILL at a named point.

    python -m tests.engine.dying_command COMMAND_ID begun|running

`begun`: the intent is written and nothing was started; `running`: the command has written something.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import django


def die(*_: Any, **__: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    command_id, when = int(sys.argv[1]), sys.argv[2]
    os.environ["DJANGO_SETTINGS_MODULE"] = "agentdesk.settings"
    django.setup()
    from workspaces.engine import terminal

    if when == "begun":
        terminal._exec = die  # type: ignore[assignment]
    else:
        terminal.command_stream = lambda *ids: die  # type: ignore[assignment,return-value]
    terminal.run(command_id)


if __name__ == "__main__":
    main()
