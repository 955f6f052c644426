"""A database that is lost while a page is answered: told as such, with nothing half done."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest
from django.db import connection

from tests.web.pages import page, words
from tests.web.people import Desk, make_desk, sign_in
from workspaces.models import AuditEntry, Task, User, Workspace

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def desk() -> Desk:
    return make_desk()


@contextmanager
def cut_off_at(table: str, row: int) -> Iterator[None]:
    """Whoever wants to change that row waits for it, and then loses the connection."""
    stop = threading.Event()
    with psycopg.connect(**connection.get_connection_params() | {"cursor_factory": None}) as holder:
        holder.execute(f"SELECT FROM {table} WHERE id = %s FOR UPDATE", [row])  # type: ignore[arg-type]

        def cut() -> None:
            """Once, as soon as it waits."""
            until = time.monotonic() + 60
            while not stop.is_set() and time.monotonic() < until:
                found = holder.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE datname = current_database() AND pg_backend_pid() = ANY(pg_blocking_pids(pid))"
                )
                if found.fetchall():
                    return
                time.sleep(0.02)

        thread = threading.Thread(target=cut)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
            connection.close()


def test_a_page_whose_database_goes_away_says_so_and_nothing_is_half_done(desk: Desk) -> None:
    task = desk.task(hold=False)
    client = sign_in(desk.operator)
    client.raise_request_exception = False
    with cut_off_at("workspaces_task", task.pk):
        response = client.post(f"/tasks/{task.pk}/pause/", {"mode": "now"})
    assert (response.status_code, response["Retry-After"]) == (503, "5")
    assert page(response).text("h1") == "The database does not answer"
    task.refresh_from_db()
    assert (task.status, task.latch_id) == ("queued", None)

    with cut_off_at("workspaces_task", task.pk):
        response = client.post(f"/tasks/{task.pk}/pause/", {"mode": "now"}, headers={"HX-Request": "true"})
    assert response.status_code == 503
    assert (response["HX-Retarget"], response["HX-Reswap"]) == ("#notice", "innerHTML")
    assert "database does not answer" in page(response).text(".notice span")
    assert client.post(f"/tasks/{task.pk}/pause/", {"mode": "now"}).status_code == 302, "back again"


def test_a_fork_that_loses_its_database_leaves_no_workspace_and_no_task(desk: Desk) -> None:
    task = desk.held_call().task
    checkpoint = task.checkpoints.latest("seq")
    client = sign_in(desk.operator)
    client.raise_request_exception = False
    before = (Task.objects.count(), Workspace.objects.count(), AuditEntry.objects.count())
    with cut_off_at("workspaces_workspace", task.workspace_id):
        response = client.post(f"/tasks/{task.pk}/checkpoints/{checkpoint.seq}/fork/", {"reason": "try"})
    assert response.status_code == 503
    assert (Task.objects.count(), Workspace.objects.count(), AuditEntry.objects.count()) == before


def test_a_fault_that_is_not_the_databases_absence_stays_a_500(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    client = sign_in(desk.operator)
    client.raise_request_exception = False
    monkeypatch.setattr(User, "is_authenticated", property(lambda user: 1 / 0))
    for headers in ({}, {"HX-Request": "true"}):
        response = client.get("/workspaces/", headers=headers)
        assert (response.status_code, response.headers.get("Retry-After")) == (500, None)
    assert response["HX-Reswap"] == "innerHTML", "the place for notices itself stays"


def test_many_tasks_are_acted_on_until_the_database_goes_away_and_the_rest_is_told(desk: Desk) -> None:
    first, second, third = (desk.task(hold=False) for _ in range(3))
    client = sign_in(desk.operator)
    client.raise_request_exception = False
    with cut_off_at("workspaces_task", second.pk):
        response = client.post(
            "/fleet/act/", {"action": "pause", "reason": "look", "task": [first.pk, second.pk, third.pk]}
        )
    assert response.status_code == 200
    rows = page(response).all("ul.results li")
    assert ["result-done" in row["class"] for row in rows] == [True, False, False]
    assert "look whether it was done" in words(rows[1])
    assert "not tried" in words(rows[2])
    found = dict(Task.objects.values_list("pk", "status"))
    assert [found[task.pk] for task in (first, second, third)] == ["paused", "queued", "queued"]
