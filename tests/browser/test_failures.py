"""Failures made visible and steerable, in front of the desk: a loop from the first nudge to an operator's words, an
answer of nothing shown as such, a compaction's receipt, and the audit that names the artifact of each failure."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.browser.people import Person
from tests.browser.product import Product

pytestmark = [pytest.mark.browser, pytest.mark.stack]

# Asks a service that answers with nothing, fills its context with listings, then reads a file that is not there,
# again and again, until somebody says which one is.
SCENARIO = """
side:
  summary: {text: "The service answered with nothing. The listings hold numbers only."}
replies:
  - text: I ask the service what there is to do.
    calls: [{name: http_request, arguments: {method: GET, url: "%s/jobs", expect: json}}]
  - text: I look through the listings.
    calls: [{name: shell, arguments: {command: "seq 1 2400"}}]
  - calls: [{name: shell, arguments: {command: "seq 3001 5400"}}]
  - calls: [{name: shell, arguments: {command: "seq 6001 8400"}}]
  - repeat: 30
    cases:
      - when: {any_result_matches: "colour = blue"}
        calls: [{name: finish, arguments: {summary: "The colour is blue."}}]
      - when: {message_matches: "config.toml"}
        text: Then I read config.toml.
        calls: [{name: shell, arguments: {command: "echo 'colour = blue' > config.toml; cat config.toml"}}]
      - text: I read the settings.
        calls: [{name: shell, arguments: {command: "cat settings.ini"}}]
"""


@pytest.fixture(scope="module")
def empty_service() -> Iterator[str]:
    """Answers 200 with an empty list to everything."""

    class Nothing(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"[]")

        def log_message(self, *args: Any) -> None:
            """Quiet."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Nothing)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join(10)


def test_a_loop_is_nudged_escalated_and_resolved_by_words_and_every_failure_of_the_task_has_its_artifact(
    product: Product, desk: Any, person: Callable[..., Person], empty_service: str
) -> None:
    profile = {
        "tools": ["shell", "read_file", "note", "finish"],
        "http": {"allow": [empty_service.removeprefix("http://")]},
        "context_window_tokens": 9_000,
        "max_output_tokens": 500,
        "context_policy": {"keep_recent": 2},
    }
    task = desk.task(SCENARIO % empty_service, profile=profile, instruction="Which colour is set?")
    olive = person(desk.operator["id"])
    page = olive.open(f"/tasks/{task}/", live=True)

    # --- the loop goes on after the nudge, so a person is asked: on the task's page, live
    card = page.locator("#task-escalations .card-urgent")
    card.wait_for(timeout=60_000)
    olive.wait_status("waiting", within_s=10)
    assert "settings.ini" in card.inner_text()
    rungs = [row["data"]["rung"] for row in product.events(task, "incident.responded")]
    assert rungs == ["nudged", "escalated"]
    nudge = page.locator("#trace .event", has_text="incident answered", has=page.locator("text=nudged")).first
    nudge.wait_for()

    # --- an empty 200 is called empty, in the trace and to the model
    row = page.locator("#trace .event", has_text="http_request").filter(has_text="call finished")
    assert "empty" in row.inner_text().lower()
    assert any("[result: empty" in text for text in told(product, task))

    # --- the receipt of the compaction opens and can be read
    page.locator("#trace .event", has_text="context compacted").first.get_by_text("Receipt", exact=True).click()
    page.locator("#receipt-sum").wait_for()
    receipt = page.locator("main").inner_text()
    assert ".agentdesk/context/" in receipt, "where the long listings went"
    assert "word for word" in page.locator("#pinned-proof").inner_text()
    before, after = (int(each) for each in compacted_tokens(product, task))
    assert after < before

    # --- the incident's page: the evidence, and the same attempt again and again
    page.goto(f"/tasks/{task}/?panel=incidents")
    page.locator("#panel #incidents a", has_text="Loop").first.click()
    page.locator("#incident-head").wait_for()
    assert "settings.ini" in page.locator(".incident-words").inner_text()
    attempts = page.locator("#incident-attempts").inner_text()
    assert "nothing changed" in attempts.lower()

    # --- a person's words: the agent goes another way, and the incident is over
    page.locator("#incident-acts a", has_text="Answer the open question").click()
    question = page.locator("#incident-questions .card-urgent, #task-escalations .card-urgent").first
    question.locator("summary", has_text="Continue").click()
    question.locator("details[open] textarea[name=words]").fill("Read config.toml instead.")
    question.locator("details[open] button[type=submit]").click()
    olive.wait_status("succeeded", within_s=30)
    loop = product.rows("select rung, nudge_helped from workspaces_incident where task_id = %s and kind = 'loop'", task)
    assert [(row["rung"], row["nudge_helped"]) for row in loop] == [("escalated", False)]

    # --- the audit names the artifact of each failure of this task
    page.goto(f"/tasks/{task}/audit/")
    audit = page.locator("#audit")
    for artifact in (
        "Event log, chained by hash",
        "Calls with the hashes of arguments and result",
        "Manifest of what each step was sent",
        "Named results",
        "Scratchpad: plan, attempts, contradictions",
        "Waits and refusals, in the trace",
        "Failure and cost by length and by agents",
    ):
        assert audit.get_by_text(artifact, exact=True).is_visible(), artifact
    told_to_agent = audit.inner_text()
    assert "1 incident told to the agent, after 0 of which it went another way" in told_to_agent
    assert "1 result named empty" in told_to_agent
    assert "may, to the hosts of their lists" in told_to_agent
    audit.locator("a", has_text="1 loop").first.click()
    page.locator("#incident-list", has_text="settings.ini").wait_for()


def compacted_tokens(product: Product, task: int) -> tuple[int, int]:
    data = product.events(task, "context.compacted")[0]["data"]
    return data["tokens_before"], data["tokens_after"]


def told(product: Product, task: int) -> list[str]:
    """What tools told the model."""
    rows = product.rows("select content from workspaces_message where task_id = %s and role = 'tool'", task)
    return [row["content"] for row in rows]
