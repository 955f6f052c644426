"""Who may come in, two people at once, and hands that stay on the keyboard."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.browser.people import Person
from tests.browser.product import Product

pytestmark = [pytest.mark.browser, pytest.mark.stack]

HELD = """
replies:
  - calls: [{name: send_invoice, arguments: {customer: ACME, amount: 10}}]
  - calls: [{name: finish, arguments: {summary: sent}}]
"""
WAITS = """
replies:
  - calls: [{name: shell, arguments: {command: "sleep 30"}}]
  - calls: [{name: finish, arguments: {summary: done}}]
"""


def test_signing_in_leads_to_the_page_that_was_asked_for(
    product: Product, desk: Any, person: Callable[..., Person]
) -> None:
    product.do("user", name="nadia", password="correct horse battery")
    nadia = person()
    page = nadia.open("/inbox/")
    assert "/sign-in/" in page.url
    page.get_by_label("Name").fill("nadia")
    page.get_by_label("Password").fill("wrong")
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("alert").wait_for()
    assert page.get_by_label("Name").input_value() == "nadia"
    page.get_by_label("Password").fill("correct horse battery")
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("heading", name="Inbox", exact=True).wait_for()
    page.locator("#connection", has_text="live").wait_for()


def test_an_outsider_gets_a_404_and_no_socket(product: Product, desk: Any, person: Callable[..., Person]) -> None:
    task = desk.task(HELD, hold=True)
    outsider = person(product.do("user")["id"])
    outsider.allow("404", because="that is the answer")
    page = outsider.page
    answer = page.goto(f"/tasks/{task}/")
    assert answer is not None
    assert answer.status == 404
    page.get_by_role("heading", name="There is nothing here").wait_for()
    page.goto("/")
    assert page.locator("[data-row]").count() == 0
    code = page.evaluate(
        """task => new Promise((done) => {
            const socket = new WebSocket(`ws://${location.host}/ws/tasks/${task}/`);
            let heard = 0;
            socket.onmessage = () => { heard += 1; };
            socket.onopen = () => socket.send(JSON.stringify({ after: 0, rows: true }));
            socket.onclose = (event) => done([event.code, heard]);
        })""",
        task,
    )
    assert code == [4404, 0]


def test_the_second_of_two_operators_is_told_who_was_first(
    product: Product, desk: Any, person: Callable[..., Person]
) -> None:
    task = desk.task(HELD)
    olive, owen = person(desk.operator["id"]), person(desk.owner["id"])
    owen.allow("409", because="the answer came too late")
    olive.allow("409", because="the answer came too late")
    for each in (olive, owen):
        each.open(f"/tasks/{task}/", live=True)
        each.page.locator("#task-escalations button[value=approve]").wait_for(timeout=20_000)
    pressed = "document.querySelector('#task-escalations button[value=approve]').click()"
    olive.page.evaluate(pressed)
    owen.page.evaluate(pressed)
    olive.wait_status("succeeded")
    assert product.sandbox(desk.workspace).read("sent.jsonl").decode().count("ACME") == 1
    first = product.events(task, "escalation.answered")
    assert len(first) == 1
    names = {desk.operator["id"]: (desk.operator["name"], owen), desk.owner["id"]: (desk.owner["name"], olive)}
    winner, second = names[first[0]["actor_id"]]
    second.page.locator(
        "#task-escalations, #notice", has_text=re.compile(rf"{winner}\s.*answered", re.S)
    ).first.wait_for()


def test_a_viewer_watches_and_has_no_controls(product: Product, desk: Any, person: Callable[..., Person]) -> None:
    task = desk.task(HELD)
    viewer = product.do("user")
    desk.add(viewer, "viewer")
    vera = person(viewer["id"])
    page = vera.open(f"/tasks/{task}/", live=True)
    vera.wait_status("waiting")
    assert page.locator("#control-pause, #control-cancel, #task-escalations form").count() == 0
    page.get_by_text("viewing only").wait_for()


def test_a_task_is_steered_from_the_keyboard(product: Product, desk: Any, person: Callable[..., Person]) -> None:
    task = desk.task(WAITS)
    olive = person(desk.operator["id"])
    page = olive.open(f"/tasks/{task}/", live=True)
    olive.wait_status("running")
    page.keyboard.press("?")
    shortcuts = page.locator("#key-help[open]")
    shortcuts.wait_for()
    for key in ("p", "r", "m"):
        assert shortcuts.locator("[data-keys-here] kbd", has_text=re.compile(f"^{key}$")).count() <= 1
    assert "Write to the agent" in shortcuts.inner_text()
    page.keyboard.press("Escape")
    shortcuts.wait_for(state="hidden")
    page.keyboard.press("m")
    dialog = page.locator("#message-dialog[open]")
    dialog.wait_for()
    page.keyboard.type("rpj are letters here")
    assert dialog.locator("textarea").input_value() == "rpj are letters here"
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")
    dialog.wait_for(state="hidden")
    page.keyboard.press("j")
    first = page.locator(".event[aria-current]").get_attribute("id")
    page.keyboard.press("j")
    assert page.locator(".event[aria-current]").get_attribute("id") != first
    page.keyboard.press("k")
    assert page.locator(".event[aria-current]").get_attribute("id") == first
    page.keyboard.press("p")
    olive.wait_status("pausing")
    page.locator("#control-pause-now").click()
    olive.wait_status("paused")
    page.keyboard.press("r")
    olive.wait_status("running")


def test_the_fleet_is_walked_with_j_and_k_and_opened_with_enter(
    product: Product, desk: Any, person: Callable[..., Person]
) -> None:
    tasks = [desk.task(HELD, hold=True, title=f"walk {number}") for number in range(3)]
    olive = person(desk.operator["id"])
    page = olive.open(f"/?workspace={desk.workspace['id']}", live=True)
    assert page.locator("[data-row]").count() == len(tasks)
    page.keyboard.press("j")
    page.keyboard.press("j")
    current = page.locator("[data-row][aria-current]")
    assert current.count() == 1
    chosen = (current.get_attribute("id") or "").removeprefix("task-row-")
    page.keyboard.press("x")
    assert page.locator(f"#tick-{chosen}").is_checked()
    page.locator("#bulk-bar").wait_for()
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/tasks/{chosen}/")
    page.keyboard.press("g")
    page.keyboard.press("f")
    page.get_by_role("heading", name="Fleet", exact=True).wait_for()
