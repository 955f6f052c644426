"""Health pages, with real servers."""

from __future__ import annotations

import pytest
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
