"""Health pages, with real servers."""

from __future__ import annotations

import os
from datetime import timedelta

import psycopg
import pytest
from django.db import connection
from django.db.models.functions import Now
from django.test import Client

from agentdesk import csp
from workspaces.domain.states import ProcessRole
from workspaces.engine.watch import Heart
from workspaces.models import Heartbeat
from workspaces.queries.heartbeats import pulse


@pytest.mark.django_db
def test_ready_names_every_part_and_says_ok(client: Client) -> None:
    response = client.get("/readyz")
    assert response.status_code == 200
    assert response.json() | {"scheduler": "", "workers": ""} == {
        "database": "ok",
        "valkey": "ok",
        "migrations": "ok",
        "workers": "",
        "scheduler": "",
    }


@pytest.mark.django_db
@pytest.mark.parametrize(("role", "part"), [(ProcessRole.SCHEDULER, "scheduler"), (ProcessRole.WORKER, "workers")])
def test_a_process_that_beats_is_seen_until_it_is_silent_or_was_told_to_end(
    client: Client, role: ProcessRole, part: str
) -> None:
    Heartbeat.objects.all().delete()
    other = "workers" if part == "scheduler" else "scheduler"

    def said() -> str:
        parts = client.get("/readyz").json()
        assert parts[other] == "no heartbeat"
        return parts[part]

    assert said() == "no heartbeat"
    heart = Heart(role)
    heart.beat()
    assert said() == "ok"
    Heartbeat.objects.update(seen_at=Now() - timedelta(seconds=31))
    assert said() == "no heartbeat"
    heart.beat()
    assert said() == "no heartbeat", "a beat is written every five seconds, however often it is asked for"
    heart.beat(ending=True)
    assert said() == "no heartbeat", "seen again, and about to end"
    assert f"No {role.value} lives (last seen " in pulse().words
    row = Heartbeat.objects.get()
    assert (row.role, row.pid) == (role.value, os.getpid())
    assert row.ending_at is not None


def test_alive_needs_no_database_and_carries_the_policy(client: Client) -> None:
    response = client.get("/healthz")
    assert response.status_code == 200
    policy = response.headers[csp.HEADER]
    assert "default-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert "connect-src 'self' ws://testserver" in policy


def test_health_pages_are_only_read(client: Client) -> None:
    assert client.post("/healthz").status_code == 405


@pytest.mark.django_db(transaction=True)
def test_a_connection_that_died_in_the_pool_is_not_handed_out() -> None:
    """As after a restart of Postgres."""
    connection.close()
    pids = []
    for _ in range(3):
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()")
            pids.append(cursor.fetchone()[0])
        connection.close()
    parameters = {name: value for name, value in connection.get_connection_params().items() if name != "pool"}
    for name in ("context", "cursor_factory", "prepare_threshold"):
        parameters.pop(name, None)
    with psycopg.connect(**parameters) as other:
        for pid in set(pids):
            other.execute("SELECT pg_terminate_backend(%s, 2000)", [pid])
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
        assert cursor.fetchone() == (1,)
