"""The sandbox drivers of this process, and the sandbox of a workspace."""

from __future__ import annotations

import threading
from pathlib import Path

from django.conf import settings

from workspaces.models import Workspace
from workspaces.sandboxes import make_driver
from workspaces.sandboxes.base import Sandbox, SandboxDriver, SandboxLimits, SandboxSpec, SandboxUnavailable

_drivers: dict[str, SandboxDriver] = {}
_lock = threading.Lock()


def driver_named(name: str) -> SandboxDriver:
    """The driver "docker" or "local"; made once. Raises SandboxUnavailable."""
    with _lock:
        if name not in _drivers:
            options = {"image": settings.SANDBOX_IMAGE, "store": settings.SANDBOX_STORE} if name == "docker" else {}
            _drivers[name] = make_driver(name, Path(settings.SANDBOX_ROOT) / name, **options)
        return _drivers[name]


def open_drivers() -> list[SandboxDriver]:
    """Those that this process has made."""
    with _lock:
        return list(_drivers.values())


def driver_for(workspace: Workspace) -> SandboxDriver:
    return driver_named(workspace.driver)


def sandbox_for(workspace: Workspace) -> Sandbox:
    """Opens, starts nothing."""
    return driver_for(workspace).open(
        SandboxSpec(
            key=workspace.sandbox_key,
            limits=SandboxLimits(
                memory_bytes=workspace.memory_bytes,
                cpus=float(workspace.cpus),
                pids=workspace.pids,
                disk_bytes=workspace.disk_bytes,
            ),
            runtime=workspace.runtime,
        )
    )


def default_driver() -> str:
    """The driver of a new workspace: what the site says, or Docker where an engine answers, else local."""
    if settings.SANDBOX_DRIVER != "auto":
        return str(settings.SANDBOX_DRIVER)
    try:
        driver_named("docker").check()
    except SandboxUnavailable:
        return "local"
    return "docker"
