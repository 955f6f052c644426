"""What is read from the environment, and what a wrong value gets."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.test import override_settings

from agentdesk import connections, environment
from agentdesk.embedded.supervisor import GIVE_UP_AFTER, STEADY_S, WAIT_MAX_S, Restarts
from agentdesk.embedded.tail import SHOWN_AT_ONCE, Tail
from agentdesk.scrub import ScrubbingFormatter
from workspaces import checks


def manage(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "manage.py", *words],
        cwd=environment.REPO,
        env=dict(os.environ) | variables,
        capture_output=True,
        text=True,
    )


def test_the_deployed_configuration_has_no_warning() -> None:
    shown = manage(
        "check",
        "--deploy",
        "--fail-level",
        "WARNING",
        AGENTDESK_HTTPS="1",
        AGENTDESK_STATIC_FROM_SOURCE="0",
        AGENTDESK_SANDBOX_DRIVER="docker",
    )
    assert shown.returncode == 0, shown.stderr
    assert "no issues" in shown.stdout


def test_without_isolation_the_deployed_configuration_warns() -> None:
    shown = manage("check", "--deploy", AGENTDESK_HTTPS="1", AGENTDESK_SANDBOX_DRIVER="local")
    assert "workspaces.W001" in shown.stderr


@pytest.mark.django_db
def test_no_model_change_lacks_its_migration() -> None:
    from django.core.management import call_command

    call_command("makemigrations", check=True, dry_run=True, verbosity=0)


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("AGENTDESK_PORT", "http", "AGENTDESK_PORT is 'http'; expected a whole number"),
        ("AGENTDESK_PORT", "0", "AGENTDESK_PORT is 0; expected 1 or more"),
        ("AGENTDESK_DEBUG", "maybe", "AGENTDESK_DEBUG is 'maybe'; expected 1 or 0"),
        ("AGENTDESK_SANDBOX_DRIVER", "vm", "expected one of auto, docker, local"),
        ("DATABASE_URL", "mysql://a/b", "DATABASE_URL starts with 'mysql'"),
        ("DATABASE_URL", "postgresql://host", "DATABASE_URL names no database"),
        ("VALKEY_URL", "localhost", "VALKEY_URL is not an address"),
    ],
)
def test_a_wrong_value_names_its_variable_and_what_was_expected(name: str, value: str, told: str) -> None:
    shown = manage("check", **{name: value})
    assert shown.returncode != 0
    assert told in shown.stderr


def test_an_empty_variable_counts_as_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTDESK_PORT", " ")
    assert environment.number("AGENTDESK_PORT", 8700) == 8700


def test_a_database_address_is_read_with_its_options_and_escapes() -> None:
    read = connections.django_database("postgres://us%40er:p%2Fw@[::1]:6432/my%20base?sslmode=require")
    assert read == {
        "ENGINE": "agentdesk.database",
        "NAME": "my base",
        "USER": "us@er",
        "PASSWORD": "p/w",
        "HOST": "::1",
        "PORT": "6432",
        "OPTIONS": {"sslmode": "require"},
    }


def test_a_wrong_database_address_is_told_without_its_password() -> None:
    for url in ("postgres://u:hunter22@host:port/name", "mysql://u:hunter22@host/name"):
        with pytest.raises(environment.SettingError) as told:
            connections.django_database(url)
        assert "hunter22" not in str(told.value)


def test_a_socket_and_a_server_are_addressed_as_each_library_wants() -> None:
    assert connections.client_url("unix:///run/v.sock") == "unix:///run/v.sock"
    assert connections.broker_url("unix:///run/v.sock") == "redis+socket:///run/v.sock"
    assert connections.broker_url("valkeys://:pw@host:6380/1") == "rediss://:pw@host:6380/1"


def test_keys_are_made_once_and_are_the_owners_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AGENTDESK_SECRET_KEY", raising=False)
    first = environment.secret_key(tmp_path / "home")
    assert len(first) >= checks.SECRET_KEY_MIN
    assert environment.secret_key(tmp_path / "home") == first
    environment.field_keys(tmp_path / "home")
    for kept in (tmp_path / "home" / "keys").iterdir():
        assert kept.stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "home").stat().st_mode & 0o777 == 0o700


def ids(found: list[object]) -> list[str]:
    return [message.id for message in found]  # type: ignore[attr-defined]


MAIL = {
    "EMAIL_HOST": "mail",
    "EMAIL_FROM": "agentdesk <desk@example.com>",
    "EMAIL_HOST_USER": "desk",
    "EMAIL_HOST_PASSWORD": "p",
}


def test_each_misconfiguration_has_its_id_and_a_hint(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.mkdir()
    (keys / "secret_key").write_text("x")
    (keys / "secret_key").chmod(0o644)
    wrong = [
        (checks.keys, {"SECRET_KEY": "short"}, "workspaces.E001"),
        (checks.home, {"KEYS_PROBLEM": "disk full"}, "workspaces.E002"),
        (checks.keys, {"FIELD_ENCRYPTION_KEYS": ["no key"]}, "workspaces.E003"),
        (checks.limits, {"UPLOAD_MAX_EXPANDED_BYTES": 1}, "workspaces.E004"),
        (checks.limits, {"GIT_ALLOWED_SCHEMES": ("https", "file")}, "workspaces.E005"),
        (checks.sandboxes, {"SANDBOX_DRIVER": "local"}, "workspaces.W001"),
        (checks.home, {"AGENTDESK_HOME": tmp_path}, "workspaces.W002"),
        (checks.email, {"EMAIL_HOST": "mail", "EMAIL_FROM": "nobody"}, "workspaces.E007"),
        (checks.email, MAIL | {"EMAIL_HOST_PASSWORD": ""}, "workspaces.E008"),
        (checks.email, MAIL | {"EMAIL_SECURITY": "none"}, "workspaces.W003"),
    ]
    for check, settings, expected in wrong:
        assert expected not in ids(check(None))
        with override_settings(**settings):
            found = check(None)
        assert ids(found) == [expected]
        assert found[0].hint


def test_a_home_that_cannot_be_written_is_a_check_and_no_traceback() -> None:
    shown = manage("check", AGENTDESK_HOME="/dev/null/home", AGENTDESK_SECRET_KEY="", AGENTDESK_FIELD_KEYS="")
    assert "(workspaces.E002)" in shown.stderr
    assert "Point AGENTDESK_HOME at a folder" in shown.stderr
    assert "Traceback" not in shown.stderr


@pytest.mark.parametrize(
    "secret",
    [
        "sk-ant-api03-abcdefghijklmnop",
        "sk-proj-abcdefghijklmnop",
        "ghp_abcdefghijklmnopqrst",
        "Authorization: Bearer abc.def-ghi",
        "postgresql://user:hunter22@host/name",
        '{"api_key": "hunter2222"}',
        "OPENAI_API_KEY=hunter2222",
        "password: hunter2222",
    ],
)
def test_no_secret_reaches_the_log(secret: str) -> None:
    try:
        raise ValueError(secret)
    except ValueError:
        record = logging.LogRecord("x", logging.ERROR, "", 1, "failed: %s", (secret,), sys.exc_info())
    line = ScrubbingFormatter("%(message)s").format(record)
    for part in ("abcdefghijklmnop", "abc.def-ghi", "hunter22"):
        assert part not in line
    assert "[secret]" in line


def test_ordinary_words_stay_in_the_log() -> None:
    for line in (
        "tokens=1200 of 4000, task 17 waits for quota",
        "GET /tasks/12/?after=300 200",
        "task-queue is empty; risk-assessment-of-everything follows",
    ):
        record = logging.LogRecord("x", logging.INFO, "", 1, line, (), None)
        assert ScrubbingFormatter("%(message)s").format(record) == line


def test_a_child_that_keeps_dying_waits_longer_each_time_and_then_ends_it() -> None:
    record = Restarts()
    waits = [record.died(after_s=1, now=100) for _ in range(GIVE_UP_AFTER)]
    assert waits == sorted(waits)
    assert waits[0] == 0.5
    assert waits[-1] == WAIT_MAX_S
    assert record.hopeless
    assert not record.due(100)
    assert record.due(100 + WAIT_MAX_S)
    assert record.died(after_s=STEADY_S, now=0) == 0.5
    assert not record.hopeless


def test_only_important_and_only_new_lines_are_shown(tmp_path: Path) -> None:
    log = tmp_path / "web.log"
    log.write_text("t WARNING old\n")
    tail = Tail(log, log.stat().st_size)
    assert tail.news() == []
    with log.open("a") as file:
        file.write("t INFO fine\nt ERROR bad\nt WARNING half")
    assert tail.news() == ["t ERROR bad"]
    with log.open("a") as file:
        file.write(" a line\n" + "t ERROR again\n" * SHOWN_AT_ONCE)
    shown = tail.news()
    assert shown[0] == "t WARNING half a line"
    assert shown[-1].startswith("… and 1 more lines")
