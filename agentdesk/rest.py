"""Puts every sandbox of a home to sleep and lets go of its disks: `python -m agentdesk.rest HOME`.

The last thing of an orderly stop, in a process of its own. What is on the disks stays, and the next step of a
task wakes its sandbox again. Prints what it could not stop; ends with status 1 then.
"""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from agentdesk import environment
from workspaces.sandboxes import make_driver
from workspaces.sandboxes.base import SandboxDriver, SandboxError, SandboxSpec

AT_ONCE = 8


def main() -> int:
    sandboxes = Path(sys.argv[1]) / "sandboxes"
    problems = [problem for name in ("docker", "local") for problem in rest(name, sandboxes / name)]
    for problem in problems:
        print(problem)
    if not problems:
        unmount_below(sandboxes)
    return 1 if problems else 0


def rest(name: str, root: Path) -> list[str]:
    """What could not be stopped, in words."""
    if not root.is_dir():
        return []
    store = {"store": environment.text("AGENTDESK_SANDBOX_STORE", "auto")} if name == "docker" else {}
    try:
        driver = make_driver(name, root, **store)
        try:
            with ThreadPoolExecutor(AT_ONCE) as pool:
                return [problem for problem in pool.map(lambda key: _stop(driver, key), driver.awake()) if problem]
        finally:
            driver.close()
    except SandboxError as error:
        return [f"{name} sandboxes: {error}"]


def _stop(driver: SandboxDriver, key: str) -> str:
    try:
        driver.open(SandboxSpec(key=key)).stop()
    except SandboxError as error:
        return f"sandbox {key}: {error}"
    return ""


def unmount_below(folder: Path) -> None:
    """Disks that were mounted for a store. Deepest first; a busy one stays, and is found again by the next start."""
    inside = f"{folder.resolve()}{os.sep}"
    try:
        lines = Path("/proc/self/mounts").read_text().splitlines()
    except OSError:
        return
    places = [line.split()[1].encode().decode("unicode_escape") for line in lines]
    for place in sorted((place for place in places if place.startswith(inside)), reverse=True):
        subprocess.run(["umount", place], capture_output=True, check=False)


if __name__ == "__main__":
    sys.exit(main())
