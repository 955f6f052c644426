"""A command that has ended leaves no process behind, whichever shell the runner finds."""

from __future__ import annotations

import os
import time
from pathlib import Path

from workspaces.sandboxes import make_driver
from workspaces.sandboxes.base import SandboxSpec


def processes_naming(text: str) -> list[str]:
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            line = Path("/proc", pid, "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if text in line:
            found.append(line)
    return found


def test_nothing_runs_any_more_when_a_command_has_ended(tmp_path: Path) -> None:
    sandbox = make_driver("local", tmp_path).open(SandboxSpec(key="k"))
    sandbox.start()
    for number in range(3):
        assert sandbox.exec(["sh", "-c", "echo x; echo y >&2"], key=f"c{number}").exit_code == 0
    deadline = time.monotonic() + 5
    while processes_naming(str(tmp_path)):
        assert time.monotonic() < deadline, processes_naming(str(tmp_path))
        time.sleep(0.05)
