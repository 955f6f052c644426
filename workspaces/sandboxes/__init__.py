"""Layer 3, sandboxes: isolated places where commands run, behind one contract. Knows neither Django nor models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from workspaces.sandboxes.base import SandboxDriver


def make_driver(name: str, root: Path, **settings: Any) -> SandboxDriver:
    """`name`: `docker` or `local`. A driver is imported only when it is asked for.

    Raises SandboxUnavailable when its disks cannot lie under `root`.
    """
    if name == "docker":
        from workspaces.sandboxes.docker import DockerDriver

        return DockerDriver(root, **settings)
    if name == "local":
        from workspaces.sandboxes.local import LocalDriver

        return LocalDriver(root, **settings)
    raise ValueError(f"{name!r} is no sandbox driver: docker or local")
