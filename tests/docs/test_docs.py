"""A setting, an event kind or a command that is not documented is a defect."""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path

from workspaces.domain.events import EventKind
from workspaces.domain.thresholds import Thresholds

REPO = Path(__file__).resolve().parents[2]
NOT_SETTINGS = {
    "AGENTDESK_RUN",  # derived
    "AGENTDESK_IDEMPOTENCY_KEY",  # given to declared tools, see docs/tools.md
    "AGENTDESK_EXEC",  # marks a command's processes
    "AGENTDESK_TOOL",
    "AGENTDESK_LOCAL",
}


def sources() -> str:
    files = [path for folder in ("agentdesk", "workspaces") for path in (REPO / folder).rglob("*.py")]
    return "\n".join(path.read_text() for path in files)


def test_every_setting_is_documented() -> None:
    read = set(re.findall(r"[\"'](AGENTDESK_[A-Z_]+)[\"']", sources())) - NOT_SETTINGS
    documented = set(re.findall(r"^\| `(AGENTDESK_[A-Z_]+)`", (REPO / "docs/configuration.md").read_text(), re.M))
    assert read == documented


def test_every_event_kind_is_documented() -> None:
    documented = set(re.findall(r"^\| `([a-z_.]+)`", (REPO / "docs/events.md").read_text(), re.M))
    assert documented == {kind.value for kind in EventKind}


def test_every_link_between_the_documents_leads_somewhere() -> None:
    for document in [REPO / "README.md", REPO / "CONTRIBUTING.md", *(REPO / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", document.read_text()):
            assert (document.parent / target).exists(), f"{document.name} links to {target}"


def test_every_make_target_in_the_readme_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (REPO / "Makefile").read_text(), re.M))
    assert set(re.findall(r"\bmake ([a-z-]+)", (REPO / "README.md").read_text())) <= targets


def test_every_threshold_of_the_detectors_is_documented_with_its_default() -> None:
    rows = re.findall(r"^\| `([a-z_]+)` \| (\d+) \|", (REPO / "docs/detectors.md").read_text(), re.M)
    assert {name: int(default) for name, default in rows} == asdict(Thresholds())
