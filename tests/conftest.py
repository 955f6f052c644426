"""Real Postgres and Valkey for the whole run, started before Django reads its settings.

That is why DJANGO_SETTINGS_MODULE is set here and not in pyproject.toml: pytest-django reads the settings
named there before it reads this file. DATABASE_URL and VALKEY_URL in the environment are used as they are.
Everything lies in one temporary home, which is gone at the end.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import django
import pytest

from agentdesk.embedded.stack import Stack
from tests.mounts import unmount_below

STACK = pytest.StashKey[Stack]()


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("numprocesses", None) and not hasattr(config, "workerinput"):
        return  # it only hands out tests; each process that runs them has servers of its own
    home = Path(tempfile.mkdtemp(prefix="agentdesk-test-"))
    stack = Stack(home, {"postgres", "valkey"}, durable=False)
    try:
        stack.__enter__()
    except BaseException:
        shutil.rmtree(home, ignore_errors=True)
        raise
    config.stash[STACK] = stack
    os.environ.update(stack.environment)
    os.environ["DJANGO_SETTINGS_MODULE"] = "agentdesk.settings"
    os.environ["AGENTDESK_STATIC_FROM_SOURCE"] = "1"
    django.setup()


WITH_REAL_PROCESSES = tuple(
    f"tests/{folder}/" for folder in ("browser", "chaos", "engine", "sandboxes", "stack", "web")
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test that waits for real processes is given a second try; the summary names each that took one."""
    for item in items:
        if item.nodeid.startswith(WITH_REAL_PROCESSES):
            item.add_marker(pytest.mark.flaky(reruns=1, reruns_delay=1))


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    stack = config.stash.get(STACK, None)
    if stack is not None:
        end_sandboxes()
        stack.close()
        unmount_below(stack.home)
        shutil.rmtree(stack.home, ignore_errors=True)


@pytest.fixture(scope="session")
def django_db_keepdb(request: pytest.FixtureRequest) -> bool:
    """The embedded server's database goes with its home: dropping it would fail while a thread still reads in it."""
    return "postgres" in request.config.stash[STACK].servers or bool(request.config.getvalue("reuse_db"))


def end_sandboxes() -> None:
    """Containers, processes and mounts that tests left behind in the engine's own drivers."""
    from workspaces.engine import boxes
    from workspaces.sandboxes.base import SandboxSpec

    for driver in boxes.open_drivers():
        for key in driver.awake():
            driver.open(SandboxSpec(key=key)).stop()
        driver.close()
