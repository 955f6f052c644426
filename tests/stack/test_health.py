"""Health pages, with real servers."""

from __future__ import annotations

import psycopg
import pytest
from django.db import connection
from django.test import Client

from agentdesk import csp, health


@pytest.mark.django_db
def test_ready_names_every_part_and_says_ok(client: Client) -> None:
    response = client.get("/readyz")
    assert response.status_code == 200
    assert response.json() | {"scheduler": ""} == {
        "database": "ok",
        "valkey": "ok",
        "migrations": "ok",
        "scheduler": "",
    }


@pytest.mark.django_db
def test_a_scheduler_that_beats_is_seen(client: Client) -> None:
    health._client().delete(health._heartbeat_key())
    assert client.get("/readyz").json()["scheduler"] == "no heartbeat"
    health.beat()
    assert client.get("/readyz").json()["scheduler"] == "ok"


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
