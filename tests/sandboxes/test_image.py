"""The image: where its base comes from. Building it is what every Docker test does first."""

from __future__ import annotations

from pathlib import Path

import pytest

from workspaces.sandboxes import make_driver
from workspaces.sandboxes.base import SandboxUnavailable
from workspaces.sandboxes.engines import connect
from workspaces.sandboxes.image import apt_sources, default_tag, ensure_image, mirror_of

DEB822 = """Types: deb
# a comment
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates
Components: main

Types: deb
URIs: http://mirror.example/security
Suites: bookworm-security
"""


@pytest.mark.parametrize(
    ("sources", "mirror"),
    [
        ("deb http://one.example/debian bookworm main\n", "http://one.example/debian"),
        ("deb [arch=amd64 signed-by=/k.gpg] https://two.example/d bookworm main\n", "https://two.example/d"),
        ("# deb http://off.example/d bookworm main\ndeb-src http://src.example/d bookworm main\n", ""),
        ("deb http://sec.example/d bookworm-security main\n", ""),
        ("deb http://other.example/d trixie main\n", ""),
        (DEB822, "http://mirror.example/debian"),
        ("", ""),
    ],
)
def test_the_mirror_is_the_machines_own(sources: str, mirror: str) -> None:
    assert mirror_of(sources, "bookworm") == (mirror or "http://deb.debian.org/debian")


def test_all_files_of_sources_are_read(tmp_path: Path) -> None:
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / "sources.list").write_text("deb http://off.example/d sid main")
    (tmp_path / "sources.list.d" / "x.sources").write_text(DEB822)
    assert mirror_of(apt_sources(tmp_path), "bookworm") == "http://mirror.example/debian"
    assert apt_sources(tmp_path / "missing") == ""


def test_the_tag_follows_the_base_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AGENTDESK_SANDBOX_BASE", raising=False)
    usual = default_tag()
    monkeypatch.setenv("AGENTDESK_SANDBOX_BASE", "mine:1")
    assert default_tag() != usual


@pytest.mark.docker
def test_a_base_that_cannot_be_had_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        client = connect()
    except SandboxUnavailable as error:
        pytest.skip(f"no Docker engine: {error}")
    monkeypatch.setenv("AGENTDESK_SANDBOX_BASE", "registry.invalid/nothing:1")
    said: list[str] = []
    with pytest.raises(SandboxUnavailable) as told:
        ensure_image(client, default_tag(), said.append)
    client.close()
    assert "registry.invalid/nothing:1" in str(told.value)
    assert "AGENTDESK_SANDBOX_BASE" in told.value.hint
    assert len(said) == 2


def test_no_engine_is_told_with_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nothing.sock")
    driver = make_driver("docker", tmp_path / "root", store="content")
    with pytest.raises(SandboxUnavailable) as told:
        driver.check()
    assert "dockerd" in told.value.hint
