"""One contract, every driver: each test here runs on a real machine of each kind."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from workspaces.sandboxes import make_driver
from workspaces.sandboxes.base import ExecResult, SandboxSpec, SandboxUnavailable
from workspaces.sandboxes.engines import connect
from workspaces.sandboxes.image import default_tag, ensure_image

DRIVERS = [
    pytest.param(("local", "content"), id="local"),
    pytest.param(("docker", "btrfs"), id="docker-btrfs", marks=pytest.mark.docker),
    pytest.param(("docker", "content"), id="docker-content", marks=pytest.mark.docker),
]
_numbers = itertools.count(1)


def open_driver(name: str, store: str, root: Path) -> Any:
    """The driver, or a skip that says why it cannot run here."""
    if name == "docker":
        try:
            client = connect()
            ensure_image(client, default_tag(), print)
            client.close()
        except SandboxUnavailable as error:
            pytest.skip(f"no Docker sandbox: {error}")
    try:
        driver = make_driver(name, root, store=store)
    except SandboxUnavailable as error:
        if store != "btrfs":
            raise
        pytest.skip(f"no btrfs: {error}")
    driver.check()
    return driver


@pytest.fixture(scope="session", params=DRIVERS)
def driver(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    name, store = request.param
    root = tmp_path_factory.mktemp(f"{name}-{store}")
    driver = open_driver(name, store, root)
    yield driver
    driver.close()


@pytest.fixture
def make_sandbox(driver: Any) -> Iterator[Callable[..., Any]]:
    made = []

    def make(**limits: Any) -> Any:
        spec = SandboxSpec(f"test-{os.getpid()}-{next(_numbers)}", **limits)
        sandbox = driver.open(spec)
        made.append(sandbox)
        sandbox.start()
        return sandbox

    yield make
    for sandbox in made:
        sandbox.destroy()


@pytest.fixture
def sandbox(make_sandbox: Callable[..., Any]) -> Any:
    return make_sandbox()


@pytest.fixture
def shell(sandbox: Any) -> Callable[..., ExecResult]:
    return lambda line, **more: sh(sandbox, line, **more)


def sh(sandbox: Any, line: str, **more: Any) -> ExecResult:
    more.setdefault("key", f"k{next(_numbers)}")
    result: ExecResult = sandbox.exec(["sh", "-c", line], **more)
    return result
