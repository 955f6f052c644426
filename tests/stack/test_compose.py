"""compose.yaml is what Docker Compose accepts, and asks for the one value that it cannot choose."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import yaml

from agentdesk.bootstrap import compose_command

FOLDER = Path(__file__).resolve().parents[2] / "compose"


@pytest.fixture(scope="module")
def compose() -> list[str]:
    command = compose_command()
    if not command:
        pytest.skip("neither `docker compose` nor docker-compose is installed")
    return [*command, "-f", str(FOLDER / "compose.yaml")]


def run(command: list[str], tmp_path: Path) -> subprocess.CompletedProcess[str]:
    plain = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return subprocess.run(command, capture_output=True, text=True, env=plain, cwd=tmp_path)


def test_the_example_makes_a_valid_project(compose: list[str], tmp_path: Path) -> None:
    command = [*compose[:-2], "--env-file", str(FOLDER / ".env.example"), *compose[-2:], "config"]
    shown = run(command, tmp_path)
    assert shown.returncode == 0, shown.stderr
    services = yaml.safe_load(shown.stdout)["services"]
    assert set(services) == {"web", "worker", "scheduler", "postgres", "valkey"}
    assert len({services[name]["image"] for name in ("web", "worker", "scheduler")}) == 1
    assert services["worker"]["environment"]["DATABASE_URL"].startswith("postgresql://agentdesk:")


def test_without_a_password_it_says_which_one_is_missing(compose: list[str], tmp_path: Path) -> None:
    empty = tmp_path / "empty.env"
    empty.write_text("")
    shown = run([*compose[:-2], "--env-file", str(empty), *compose[-2:], "config"], tmp_path)
    assert shown.returncode != 0
    assert "set it in compose/.env" in shown.stderr
