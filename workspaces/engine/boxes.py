"""The sandbox drivers of this process, and the sandbox of a workspace."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from django.conf import settings

from workspaces.domain.isolation import network_of, runtime_of
from workspaces.models import Workspace
from workspaces.sandboxes import make_driver
from workspaces.sandboxes.base import (
    NetworkPolicy,
    Sandbox,
    SandboxDriver,
    SandboxLimits,
    SandboxSpec,
    SandboxUnavailable,
)
from workspaces.sandboxes.engines import Engine, node_engine

_drivers: dict[tuple[str, str], SandboxDriver] = {}
_engines: dict[str, Engine] = {}
_lock = threading.Lock()


def driver_named(name: str, node: str = "") -> SandboxDriver:
    """The driver "docker" or "local"; made once a node. Raises SandboxUnavailable."""
    where = known_node(node) if name == "docker" else ""
    engine = engine_of(where) if name == "docker" else None
    with _lock:
        if (name, where) not in _drivers:
            options: dict[str, Any] = {}
            if name == "docker":
                options = {"image": settings.SANDBOX_IMAGE, "store": settings.SANDBOX_STORE, "engine": engine}
            _drivers[name, where] = make_driver(name, Path(settings.SANDBOX_ROOT) / name, **options)
        return _drivers[name, where]


def known_node(name: str) -> str:
    """The node of this name, or the first: where a workspace is that has no node, or one that is no longer set."""
    return name if name in settings.NODES else next(iter(settings.NODES))


def engine_of(node: str) -> Engine:
    """A node's engine, not yet connected; one a process."""
    with _lock:
        if node not in _engines:
            _engines[node] = new_engine(node)
        return _engines[node]


def new_engine(node: str, **options: Any) -> Engine:
    """One that nobody shares, to be closed."""
    return node_engine(node, settings.NODES[node], settings.NODES_TLS, **options)


def drivers_named(name: str) -> dict[str, SandboxDriver]:
    """The driver of every node, by the node's name. Raises SandboxUnavailable."""
    return {node: driver_named(name, node) for node in (settings.NODES if name == "docker" else ("",))}


def open_drivers() -> list[SandboxDriver]:
    """Those that this process has made."""
    with _lock:
        return list(_drivers.values())


def driver_for(workspace: Workspace) -> SandboxDriver:
    return driver_named(workspace.driver, workspace.node)


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
            runtime=runtime_of(workspace.runtime, settings.SANDBOX_RUNTIME).value,
            network=NetworkPolicy(
                mode=network_of(workspace.network, settings.SANDBOX_NETWORK).value,
                allow=tuple(workspace.network_allow),
                reachable=tuple(settings.SANDBOX_REACHABLE),
            ),
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
