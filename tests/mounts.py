"""Disks that a run leaves mounted below its home: a driver that another process made is nobody's to close."""

from __future__ import annotations

import subprocess
from pathlib import Path


def unmount_below(home: Path) -> None:
    """Unmount everything mounted below `home`, the innermost first. Does nothing where there is no /proc/mounts."""
    try:
        lines = Path("/proc/mounts").read_text().splitlines()
    except OSError:
        return
    places = [line.split()[1].encode().decode("unicode_escape") for line in lines]
    for place in sorted((place for place in places if Path(place).is_relative_to(home)), reverse=True):
        subprocess.run(["umount", "--lazy", place], check=False, capture_output=True)
