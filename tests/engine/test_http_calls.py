"""http_request in the engine: effects by method, outcomes that nobody knows, edits, a worker that dies meanwhile."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest
from django.conf import LazySettings

from tests.engine.moments import killed_at
from tests.harness import events, scripted_task, work
from tests.tools.http_server import JSON, RawServer, http
from workspaces.actions.escalations import answer_escalation
from workspaces.domain.escalations import Decision
from workspaces.domain.states import TaskStatus
from workspaces.models import Escalation, LedgerEntry, Task, ToolCall
from workspaces.queries.profiles import tools_of

pytestmark = pytest.mark.django_db(transaction=True)


class Payments:
    """Answers the first `broken` requests by closing the connection."""

    def __init__(self, broken: int = 0) -> None:
        self.broken = broken

    def __call__(self, connection: socket.socket, raw: bytes) -> None:
        self.broken -= 1
        if self.broken < 0:
            connection.sendall(http(200, b'{"paid": 5}', content_type=JSON))


@pytest.fixture
def server(settings: LazySettings) -> Iterator[RawServer]:
    settings.HTTP_PRIVATE = ["127.0.0.0/8"]
    server = RawServer()
    yield server
    server.close()


def request_task(server: RawServer, method: str, **rules: Any) -> Task:
    scenario = f"""
    replies:
      - calls: [{{name: http_request, arguments: {{method: {method}, url: "{server.url("pay")}"}}}}]
      - calls: [{{name: finish, arguments: {{summary: "{{{{last_result}}}}"}}}}]
    """
    said = {"allow": [f"127.0.0.1:{server.port}"], "methods": ["GET", "POST"], **rules}
    return scripted_task(scenario, http=said)


def question(task: Task) -> Escalation:
    return Escalation.objects.get(task=task, status="open")


def answer(task: Task, decision: Decision, **more: Any) -> None:
    answer_escalation(question(task).pk, decision=decision, actor=task.created_by, words="looked", **more)


def keys(server: RawServer) -> list[str]:
    return [line.split(": ")[1].strip() for seen in server.seen for line in seen.splitlines() if "Idempotency" in line]


def test_a_broken_connection_of_an_effect_is_asked_about_with_what_is_known(server: RawServer) -> None:
    server.answers["pay"] = Payments(broken=1)
    task = work(request_task(server, "POST"))
    asked = question(task)
    assert asked.kind == "unknown_outcome"
    assert asked.question.startswith(f"POST {server.url('pay')} was sent, and no whole answer came: ")
    answer(task, Decision.NOT_DONE)
    task = work(task)
    assert task.status == TaskStatus.SUCCEEDED
    assert '{"paid": 5}' in task.result
    assert keys(server) == [LedgerEntry.objects.get().key] * 2


def test_what_a_person_says_of_it_is_the_result(server: RawServer) -> None:
    server.answers["pay"] = Payments(broken=1)
    task = work(request_task(server, "POST"))
    answer(task, Decision.HAPPENED)
    assert "An operator found that this did happen: looked" in work(task).result
    assert len(server.seen) == 1


def test_a_broken_connection_of_a_read_is_an_error_for_the_model(server: RawServer) -> None:
    server.answers["pay"] = Payments(broken=1)
    task = work(request_task(server, "GET"))
    assert task.status == TaskStatus.SUCCEEDED
    assert task.result.startswith("[result: error - GET ")
    assert not LedgerEntry.objects.exists()


def test_a_host_that_is_not_allowed_is_corrected_by_the_gate(server: RawServer) -> None:
    task = work(request_task(server, "GET", allow=["api.example.com"]))
    (judged,) = (event for event in events(task, "call.judged") if event["name"] == "http_request")
    assert judged["verdict"] == "correct"
    assert "not on the list" in judged["problems"][0]["reason"]
    assert server.seen == []


def test_a_site_that_allows_no_private_network_reaches_none(server: RawServer, settings: LazySettings) -> None:
    settings.HTTP_PRIVATE = []
    server.answers["pay"] = Payments()
    assert "private" in work(request_task(server, "POST")).result
    assert server.seen == []


def test_an_edit_that_only_reads_has_no_effect_any_more(server: RawServer) -> None:
    server.answers["pay"] = Payments()
    task = work(request_task(server, "POST", effects={"POST": "irreversible"}))
    assert question(task).kind == "held_call"
    answer(task, Decision.EDIT, arguments={"method": "GET", "url": server.url("pay")})
    assert work(task).status == TaskStatus.SUCCEEDED
    call = ToolCall.objects.get(task=task, name="http_request")
    assert (call.effect, call.effect_key) == ("none", "")
    assert not LedgerEntry.objects.exists()


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_worker_that_dies_at_a_request_leaves_a_read_to_be_repeated_and_an_effect_to_be_asked_about(
    server: RawServer, settings: LazySettings, method: str, before: bool
) -> None:
    server.answers["pay"] = Payments()
    task = request_task(server, method)
    task = work(killed_at(task, "workspaces.tools.http:HttpRequest.run", before=before))
    if method == "POST":
        assert question(task).kind == "unknown_outcome"
        answer(task, Decision.NOT_DONE)
        task = work(task)
    assert task.status == TaskStatus.SUCCEEDED
    assert '{"paid": 5}' in task.result


def test_a_key_is_in_no_row_but_its_sealed_one(server: RawServer) -> None:
    server.answers["pay"] = lambda connection, raw: connection.sendall(http(200, raw, content_type="text/plain"))
    secret = "Bearer only-for-the-server"
    task = work(request_task(server, "GET", headers={f"127.0.0.1:{server.port}": {"Authorization": secret}}))
    assert secret in server.seen[0]
    shown = f"{task.result} {task.profile_version.http} {[event.data for event in task.events.all()]}"
    assert "only-for-the-server" not in shown
    assert "only-for-the-server" not in repr(tools_of(task.profile_version))
