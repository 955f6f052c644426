"""Pages that follow what happens: the fleet, and a task's trace, also over a socket that was cut."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from typing import Any

import pytest

from tests.browser.people import Person
from tests.browser.product import Product

pytestmark = [pytest.mark.browser, pytest.mark.stack]

STEADY = """
chunks: 3
chunk_delay_s: 0.1
replies:
  - repeat: 14
    text: Step {{index}} of a long walk.
    calls: [{name: shell, arguments: {command: "echo {{index}} >> walk; sleep 0.2"}}]
  - calls: [{name: finish, arguments: {summary: "arrived"}}]
"""
BRIEF = """
replies:
  - calls: [{name: shell, arguments: {command: "sleep 2"}}]
  - calls: [{name: finish, arguments: {summary: "done"}}]
"""
IN_TRACE = re.compile(r'<(li id="event-|pre class="event|div class="event|span class="(fact|event))')
# Every layout shift that no input caused, since the page began; the measure of web.dev/cls.
WATCH_SHIFTS = """
window.shifts = [];
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) {
    if (!entry.hadRecentInput) window.shifts.push({
      value: entry.value, nodes: entry.sources.map((source) => source.node?.outerHTML?.slice(0, 120)),
    });
  }
}).observe({ type: "layout-shift", buffered: true });
"""


def test_the_fleet_shows_a_change_of_state_and_a_new_task_without_a_reload(
    product: Product, desk: Any, person: Callable[..., Person]
) -> None:
    held = desk.task(BRIEF, hold=True, title="held at first")
    olive = person(desk.operator["id"])
    page = olive.open("/", live=True)
    row = page.locator(f"#task-row-{held}")
    assert "paused" in row.inner_text()
    page.evaluate("window.sameDocument = true")
    other = person(desk.owner["id"])
    other.open(f"/tasks/{held}/").locator("#control-resume").click()
    row.locator(".fleet-state", has_text="succeeded").wait_for(timeout=30_000)
    desk.task(BRIEF, title="came later")
    button = page.locator("#fleet-new button")
    button.wait_for()
    assert button.inner_text() == "Show 1 new task"
    assert page.get_by_text("came later").count() == 0
    button.click()
    page.get_by_text("came later").wait_for()
    assert page.evaluate("window.sameDocument") is True


def test_a_trace_grows_live_without_gap_or_double_also_after_the_web_server_was_killed(
    product: Product, desk: Any, person: Callable[..., Person]
) -> None:
    task = desk.task(STEADY, hold=True)
    olive = person(desk.operator["id"])
    olive.allow("WebSocket|ERR_CONNECTION|ERR_EMPTY", because="the server is killed")
    page = olive.page
    olive.open(f"/tasks/{task}/", live=True)
    page.locator("#control-resume").click()
    before_cut = olive.until(lambda: len(olive.shown_seqs()) > 25 and len(olive.shown_seqs()), what="rows arrive")
    web = product.stack.programs["web"]
    assert web.pid is not None
    os.kill(web.pid, signal.SIGKILL)
    olive.until(lambda: not web.alive(), what="the web server is dead")
    page.locator("#connection", has_text="reconnecting").wait_for()
    olive.until(lambda: product.task(task)["last_seq"] > before_cut + 10, what="it goes on meanwhile")
    product.stack.start_program("web")
    olive.wait_live(timeout_ms=60_000)
    olive.wait_status("succeeded", within_s=60)
    olive.until(lambda: len(olive.shown_seqs()) >= len(product.seqs(task)), what="the rows have caught up")
    assert olive.shown_seqs() == product.seqs(task)[::-1]


def test_a_page_that_was_offline_catches_up(product: Product, desk: Any, person: Callable[..., Person]) -> None:
    task = desk.task(STEADY, hold=True)
    olive = person(desk.operator["id"])
    olive.allow("WebSocket|ERR_INTERNET_DISCONNECTED|ERR_CONNECTION", because="the test takes the network away")
    page = olive.open(f"/tasks/{task}/", live=True)
    page.locator("#control-resume").click()
    olive.until(lambda: len(olive.shown_seqs()) > 15, what="rows arrive")
    olive.context.set_offline(True)
    page.evaluate("window.dispatchEvent(new Event('offline'))")
    olive.until(lambda: product.task(task)["status"] == "succeeded", within_s=60)
    olive.context.set_offline(False)
    olive.wait_status("succeeded", within_s=60)
    olive.until(lambda: len(olive.shown_seqs()) >= len(product.seqs(task)), what="the rows have caught up")
    assert olive.shown_seqs() == product.seqs(task)[::-1]


def test_nothing_moves_while_a_task_is_live(product: Product, desk: Any, person: Callable[..., Person]) -> None:
    task = desk.task(STEADY, hold=True)
    olive = person(desk.operator["id"])
    olive.page.add_init_script(WATCH_SHIFTS)
    page = olive.open(f"/tasks/{task}/", live=True)
    page.locator("#control-resume").click()
    olive.until(lambda: len(olive.shown_seqs()) > 20, what="it runs")
    page.evaluate("window.shifts.length = 0")
    olive.until(lambda: product.task(task)["steps_taken"] >= 10, within_s=60, what="it has run for a while")
    shifts = page.evaluate("window.shifts")
    # rows that arrive at the top of the list push the older ones down, which is what a trace does
    moved = [each for each in shifts if not all(node is None or IN_TRACE.match(node) for node in each["nodes"])]
    others = [node for each in moved for node in each["nodes"] if node and not IN_TRACE.match(node)]
    assert sum(each["value"] for each in moved) < 0.1, others


def test_somebody_reading_older_rows_is_not_moved(product: Product, desk: Any, person: Callable[..., Person]) -> None:
    task = desk.task(STEADY, hold=True)
    olive = person(desk.operator["id"])
    page = olive.open(f"/tasks/{task}/", live=True)
    page.locator("#control-resume").click()
    olive.until(lambda: len(olive.shown_seqs()) > 50, within_s=30, what="there is something to read")
    page.mouse.move(500, 600)
    page.mouse.wheel(0, 1200)
    page.locator("#trace-new:not([hidden])").wait_for()
    reads = page.evaluate(
        "(() => { const row = document.elementFromPoint(500, 600).closest('.event');"
        " return [row.id, Math.round(row.getBoundingClientRect().top)]; })()"
    )
    olive.wait_status("succeeded", within_s=60)
    now = page.evaluate("id => Math.round(document.getElementById(id).getBoundingClientRect().top)", reads[0])
    assert abs(now - reads[1]) <= 2
    page.locator("#trace-new").click()
    olive.until(lambda: olive.shown_seqs() == product.seqs(task)[::-1], what="every row, once")


def test_rows_do_not_move_a_link_away_from_under_the_pointer(
    product: Product, desk: Any, person: Callable[..., Person]
) -> None:
    task = desk.task(STEADY, hold=True)
    olive = person(desk.operator["id"])
    page = olive.open(f"/tasks/{task}/", live=True)
    page.locator("#control-resume").click()
    olive.until(lambda: len(olive.shown_seqs()) > 10, within_s=30, what="rows arrive")
    seq = olive.until(
        lambda: page.evaluate(
            "() => { const link = document.querySelector('#trace .event-seq');"
            " const box = link.getBoundingClientRect(); return [link.textContent, box.x + 4, box.y + 4]; }"
        )
    )
    page.mouse.move(seq[1], seq[2])
    page.locator("#trace-new:not([hidden])").wait_for(timeout=30_000)
    under = page.evaluate("([, x, y]) => document.elementFromPoint(x, y).closest('.event').id", seq)
    waiting = page.locator("#trace-new")
    olive.until(lambda: int(waiting.inner_text().split()[0]) > 12, within_s=60, what="a step and more has come")
    assert page.evaluate("([, x, y]) => document.elementFromPoint(x, y).closest('.event').id", seq) == under
    page.mouse.move(5, 5)
    olive.wait_status("succeeded", within_s=60)
    olive.until(lambda: olive.shown_seqs() == product.seqs(task)[::-1], what="then every row is shown, once")


def test_rows_that_came_by_the_socket_are_those_of_a_fresh_page(
    product: Product, desk: Any, person: Callable[..., Person]
) -> None:
    task = desk.task(BRIEF, hold=True)
    olive = person(desk.operator["id"])
    page = olive.open(f"/tasks/{task}/", live=True)
    page.locator("#control-resume").click()
    olive.wait_status("succeeded", within_s=60)
    olive.until(lambda: olive.shown_seqs() == product.seqs(task)[::-1], what="every row")
    rows = (
        "() => [...document.querySelectorAll('#trace > .event')].map(row => { const copy = row.cloneNode(true);"
        " copy.querySelectorAll('time').forEach(time => time.remove()); return copy.outerHTML; })"
    )
    arrived = page.evaluate(rows)
    page.reload()
    assert page.evaluate(rows) == arrived
