"""`python -m agentdesk.up`: the whole product on this machine, until Ctrl-C. See embedded/supervisor.py."""

from __future__ import annotations

import sys

from agentdesk.embedded.supervisor import main

if __name__ == "__main__":
    sys.exit(main())
