"""What `make up` and `make test` do before anything is installed."""

from __future__ import annotations

import http.server
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentdesk import bootstrap

REPO = bootstrap.REPO


@pytest.fixture(scope="module")
def small_lock(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One small package of our own lock."""
    text = (REPO / "requirements.lock").read_text()
    entry = re.search(r"^six==.*?(?=^\S)", text, re.MULTILINE | re.DOTALL)
    assert entry
    lock = tmp_path_factory.mktemp("lock") / "small.lock"
    lock.write_text(entry[0])
    return lock


def test_the_environment_is_made_once_and_anew_when_the_lock_changes(
    tmp_path: Path, small_lock: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    venv = tmp_path / "venv"
    python = bootstrap.install_locked(venv, small_lock)
    subprocess.run([str(python), "-c", "import six"], check=True)
    assert "installing the packages" in capfd.readouterr().out
    bootstrap.install_locked(venv, small_lock)
    assert capfd.readouterr().out == ""
    changed = tmp_path / "changed.lock"
    changed.write_text("# a comment\n" + small_lock.read_text())
    bootstrap.install_locked(venv, changed)
    assert "installing the packages" in capfd.readouterr().out


def test_a_package_that_is_not_the_locked_one_is_refused(tmp_path: Path, small_lock: Path) -> None:
    forged = tmp_path / "forged.lock"
    forged.write_text(re.sub(r"sha256:[0-9a-f]{8}", "sha256:00000000", small_lock.read_text()))
    with pytest.raises(bootstrap.SetupError, match="could not be installed"):
        bootstrap.install_locked(tmp_path / "venv", forged)
    assert not (tmp_path / "venv" / ".agentdesk-lock").exists()


def test_the_locks_pin_everything_by_hash_and_name_no_place() -> None:
    for name in set(bootstrap.LOCKS.values()):
        text = (REPO / name).read_text()
        for entry in re.split(r"^(?=\S)", text, flags=re.MULTILINE):
            if entry.strip() and not entry.startswith("#"):
                assert "==" in entry.splitlines()[0]
                assert "--hash=sha256:" in entry
        assert not re.search(r"https?://|file:|--index|--extra-index|--find-links", text)


def test_both_locks_agree_on_what_both_name() -> None:
    runtime, development = (
        set(re.findall(r"^(\S+==\S+)", (REPO / name).read_text(), re.MULTILINE))
        for name in ("requirements.lock", "requirements-dev.lock")
    )
    assert runtime < development


def test_an_old_python_is_told_which_one_is_needed() -> None:
    bootstrap.check_python((3, 11, 0))
    with pytest.raises(bootstrap.SetupError, match=r"Python 3\.10\.4 is too old: 3\.11 or newer"):
        bootstrap.check_python((3, 10, 4))


def test_a_python_without_ensurepip_names_the_missing_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Debian splits it off; what it prints then is played here."""
    fake = tmp_path / "python3"
    fake.write_text("#!/bin/sh\necho 'The virtual environment was not created: ensurepip is not available.'\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setattr(bootstrap.sys, "executable", str(fake))
    with pytest.raises(bootstrap.SetupError, match=rf"apt-get install python3\.{sys.version_info.minor}-venv"):
        bootstrap.make_venv(tmp_path / "venv")


def test_it_runs_on_the_standard_library_alone() -> None:
    shown = subprocess.run(
        [sys.executable, "-I", "-S", "agentdesk/bootstrap.py"], cwd=REPO, capture_output=True, text=True
    )
    assert shown.returncode == 1
    assert shown.stderr == "agentdesk: usage: bootstrap.py up|test|lint\n"


def test_installing_can_be_forbidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTDESK_NO_INSTALL", "1")
    assert not bootstrap.may_install()


def test_without_an_engine_and_without_leave_to_install_a_line_says_how(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AGENTDESK_NO_INSTALL", "1")
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    monkeypatch.delenv("AGENTDESK_SANDBOX_DRIVER", raising=False)
    monkeypatch.setattr(bootstrap, "ENGINE_SOCKET", "unix:///nowhere/docker.sock")
    bootstrap.provide_engine()
    told = capsys.readouterr().out
    assert told.count("\n") == 1
    assert "install and start one" in told
    bootstrap.provide_browser()
    told = capsys.readouterr().out
    assert told.count("\n") == 1
    assert "apt-get install chromium" in told


class Pings(http.server.BaseHTTPRequestHandler):
    status = 200

    def do_GET(self) -> None:
        self.send_response(self.status if self.path == "/_ping" else 404)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def pinged() -> Iterator[str]:
    with http.server.HTTPServer(("127.0.0.1", 0), Pings) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"tcp://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_only_an_engine_that_answers_counts(pinged: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert bootstrap.engine_answers(pinged)
    monkeypatch.setattr(Pings, "status", 500)
    assert not bootstrap.engine_answers(pinged)
    for address in ("unix:///nowhere", "tcp://127.0.0.1:1", "tcp://nonsense", "ssh://host", "nonsense"):
        assert not bootstrap.engine_answers(address)


def test_the_distribution_is_read(tmp_path: Path) -> None:
    release = tmp_path / "os-release"
    release.write_text('NAME="Some Linux"\nID="ubuntu"\nID_LIKE=debian\n')
    assert bootstrap.distribution(release) == "ubuntu"
    assert bootstrap.distribution(tmp_path / "none") == ""


def test_the_continuous_check_is_make_test_and_nothing_else() -> None:
    script = REPO / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert script.read_text().rstrip().endswith("exec make test </dev/null")
