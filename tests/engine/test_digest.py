"""Digesters beside one another, and one that is killed: each signal is taken once, each opening is told once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from typing import Any

import pytest
from django.conf import settings
from django.db import connection, connections

from tests.actions.test_alerts import E, alert_rules_broken, rule, sent, signalled
from workspaces.actions.alerts import BATCH, acknowledge_alert, digest, due, resolve_alert
from workspaces.actions.errors import Refused
from workspaces.domain.alerts import GroupBy
from workspaces.models import Alert, AlertRule, AlertSignal, AuditEntry, User

pytestmark = pytest.mark.django_db(transaction=True)

MANY = BATCH + 100


def at_once(*doings: Any) -> list[BaseException]:
    """Each in a thread of its own, with a connection of its own; what they raised."""
    raised: list[BaseException] = []
    start = threading.Barrier(len(doings))

    def run(doing: Any) -> None:
        start.wait(60)
        try:
            doing()
        except Refused as refusal:
            raised.append(refusal)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=run, args=(doing,)) for doing in doings]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive()
    return raised


def everything_was_taken_once() -> None:
    alert = Alert.objects.get()
    assert (alert.active, alert.troubles, alert.members.count()) == (MANY, MANY, MANY)
    assert not AlertSignal.objects.filter(digested_at=None).exists()
    assert sent() == ["alert.opened.v1"]
    assert alert_rules_broken() == []


def test_two_digesters_and_two_people_at_once() -> None:
    AlertRule.objects.update(enabled=False)
    rule(group_by=GroupBy.RULE.value)
    signalled(E.BEGAN, (f"incident:{n}" for n in range(MANY)))
    assert at_once(digest, digest, due) == []
    everything_was_taken_once()
    alice, bob = User.objects.create_user("alice"), User.objects.create_user("bob")
    pk = Alert.objects.get().pk
    (refused,) = at_once(*(lambda who=who: acknowledge_alert(pk, actor=who) for who in (alice, bob)))
    first = Alert.objects.get().acknowledged_by
    assert str(refused).startswith(f"{first} has already acknowledged")
    (refused,) = at_once(*(lambda who=who: resolve_alert(pk, actor=who, reason="done") for who in (alice, bob)))
    assert "has already resolved" in str(refused)
    assert AuditEntry.objects.filter(action__startswith="alert.").count() == 2
    assert alert_rules_broken() == []


def test_a_digester_that_was_killed_leaves_a_batch_as_it_was() -> None:
    AlertRule.objects.update(enabled=False)
    rule(group_by=GroupBy.RULE.value)
    signalled(E.BEGAN, (f"incident:{n}" for n in range(MANY)))
    name = connection.settings_dict["NAME"]
    url = os.environ["DATABASE_URL"].replace("/agentdesk?", f"/{name}?")
    died = subprocess.run(
        [sys.executable, "-m", "tests.engine.dying_digester"],
        cwd=settings.REPO,
        env={**os.environ, "DATABASE_URL": url},
        timeout=120,
        capture_output=True,
        text=True,
        check=False,
    )
    assert died.returncode == -signal.SIGKILL, died.stderr[-2000:]
    assert AlertSignal.objects.filter(digested_at=None).count() == MANY - BATCH
    digest()
    everything_was_taken_once()
