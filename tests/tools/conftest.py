"""Tools on real sandboxes: the local driver, and Docker where an engine answers."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from tests.sandboxes.conftest import open_driver
from workspaces.sandboxes.base import Sandbox, SandboxSpec
from workspaces.tools.base import Tool, ToolContext, ToolResult
from workspaces.tools.registry import BUILTIN_NAMES, build_tools

_numbers = itertools.count(1)


class Scratchpad:
    """Notes in memory."""

    def __init__(self) -> None:
        self.sections: dict[str, str] = {}

    def read(self) -> Mapping[str, str]:
        return dict(self.sections)

    def write(self, section: str, text: str) -> None:
        self.sections[section] = text


@pytest.fixture(scope="session", params=["local", pytest.param("docker", marks=pytest.mark.docker)])
def driver(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    driver = open_driver(request.param, "content", tmp_path_factory.mktemp(f"tools-{request.param}"))
    yield driver
    driver.close()


@pytest.fixture
def sandbox(driver: Any) -> Iterator[Sandbox]:
    sandbox = driver.open(SandboxSpec(f"tools-{os.getpid()}-{next(_numbers)}"))
    sandbox.start()
    yield sandbox
    sandbox.destroy()


@pytest.fixture
def notes() -> Scratchpad:
    return Scratchpad()


@pytest.fixture
def call(sandbox: Sandbox, notes: Scratchpad) -> Callable[..., ToolResult]:
    """Run a built-in tool by name, or a given one."""
    built = build_tools(BUILTIN_NAMES)

    def run(tool: str | Tool, *, context: Mapping[str, Any] | None = None, **arguments: Any) -> ToolResult:
        given = {"key": f"c-{next(_numbers)}", "sandbox": sandbox, "notes": notes, **(context or {})}
        return (built[tool] if isinstance(tool, str) else tool).run(arguments, ToolContext(**given))

    return run
