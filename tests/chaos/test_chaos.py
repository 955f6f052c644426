"""A short storm in every test run, and the proof that the audit after it sees a build that is broken."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentdesk import environment
from tests.chaos.engine import Engine
from tests.chaos.faults import KILLS, schedule
from tests.chaos.run import seeds
from workspaces.sandboxes.base import SandboxUnavailable
from workspaces.sandboxes.engines import connect
from workspaces.sandboxes.image import default_tag, ensure_image

pytestmark = [pytest.mark.docker, pytest.mark.stack, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def engine() -> Iterator[Path]:
    """A folder for an engine of our own, with the sandbox image in it."""
    if os.geteuid() != 0 or not shutil.which("dockerd"):
        pytest.skip("a second engine needs root and dockerd")
    try:
        client = connect()
        ensure_image(client, default_tag(), print)
        client.close()
    except SandboxUnavailable as error:
        pytest.skip(f"no Docker engine: {error}")
    made = Engine(Path(tempfile.mkdtemp(prefix="chaos-engine-")))
    try:
        made.start()
        made.bring(default_tag())
        made.stop()
        yield made.folder
    finally:
        made.stop()
        made.remove()


def storm(engine: Path, *more: str) -> dict[str, Any]:
    env = {name: value for name, value in os.environ.items() if name not in ("DATABASE_URL", "VALKEY_URL")}
    done = subprocess.run(
        [sys.executable, "-m", "tests.chaos.once", "--engine", str(engine), *more],
        cwd=environment.REPO,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout, done.stderr[-3000:]
    try:
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except ValueError:
        pytest.fail(f"{done.stdout[-2000:]}\n{done.stderr[-3000:]}")
    return found


def test_a_short_storm_loses_nothing_and_does_nothing_twice(engine: Path) -> None:
    short = ("--tasks", "6", "--kills", "5", "--stops", "1", "--cuts", "1", "--gap", "1", "2.5")
    result = storm(engine, "--seed", "101", *short)
    assert result["holds"], result
    assert sum(result["kills"].values()) >= 2
    assert sum(result["bank"].values()) == 18
    assert set(result["rules"].values()) == {0}


def test_a_build_that_writes_an_effect_down_after_it_was_made_is_found_out(engine: Path) -> None:
    few = ("--tasks", "3", "--kills", "0", "--stops", "0", "--cuts", "0")
    result = storm(engine, "--seed", "102", "--broken", *few)
    assert not result["holds"]
    assert len(result["problems"]["effects before their intent"]) == 9


def test_a_seed_makes_the_same_schedule_each_time() -> None:
    more = {"kills": 14, "stops": 4, "cuts": 3, "gap_s": (1.5, 4.0)}
    assert schedule(7, **more) == schedule(7, **more)  # type: ignore[arg-type]
    assert schedule(7, **more) != schedule(8, **more)  # type: ignore[arg-type]
    killed = sorted(fault.what for fault in schedule(7, **more) if fault.how == "kill")  # type: ignore[arg-type]
    assert killed == sorted(KILLS)


def test_seeds_are_read_as_ranges_and_lists() -> None:
    assert seeds("1-3,7") == [1, 2, 3, 7]
