"""A digester that kills itself with SIGKILL when its second batch is written and not committed. Run by test_digest.py.

python -m tests.engine.dying_digester
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import django


def main() -> None:
    os.environ["DJANGO_SETTINGS_MODULE"] = "agentdesk.settings"
    django.setup()
    from workspaces.actions import alert_book, alerts

    written: list[Any] = []
    original = alert_book.write_history

    def deadly(*args: Any) -> None:
        original(*args)
        written.append(args)
        if len(written) == 2:
            os.kill(os.getpid(), signal.SIGKILL)

    alert_book.write_history = deadly
    alerts.digest()
    sys.exit(3)  # the point was never reached


if __name__ == "__main__":
    main()
