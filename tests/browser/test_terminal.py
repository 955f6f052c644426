"""An operator's terminal in a real browser and a real container: typed, live, stopped, refused, kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.browser.people import NARROW, Person
from tests.browser.product import Product

pytestmark = [pytest.mark.browser, pytest.mark.stack]


def typed(olive: Person, command: str) -> None:
    box = olive.page.locator("#terminal-command")
    box.fill(command)
    box.press("Enter")


def test_commands_are_typed_watched_and_stopped(
    product: Product, container_desk: Any, person: Callable[..., Person]
) -> None:
    desk = container_desk
    olive = person(desk.operator["id"])
    olive.allow("409", because="a second command is refused while the first one runs")
    page = olive.open(f"/workspaces/{desk.workspace['id']}/", live=False)
    page.keyboard.press("t")
    page.wait_for_url("**/terminal/")
    olive.wait_live()
    typed(olive, "id -u; echo made > made.txt")
    page.locator(".command-finished .command-output").wait_for(timeout=60_000)
    assert page.locator(".command-output").inner_text().strip() not in ("", "0"), "nobody is root in a sandbox"
    assert product.sandbox(desk.workspace).read("made.txt") == b"made\n"

    typed(olive, "for n in $(seq 1 600); do echo line $n; sleep 0.2; done")
    page.locator("pre[data-live]", has_text="line 3").wait_for(timeout=60_000)
    typed(olive, "echo too early")
    page.locator("#notice .notice-error", has_text="still runs here").wait_for()
    assert page.locator("#terminal-command").input_value() == "echo too early"
    page.get_by_role("button", name="Stop").click()
    page.locator(".command", has_text="stopped by an operator").wait_for(timeout=30_000)

    page.locator("#terminal-command").press("Enter")
    page.locator(".command-finished .command-output", has_text="too early").wait_for(timeout=60_000)
    page.locator("#terminal-command").press("ArrowUp")
    assert page.locator("#terminal-command").input_value() == "echo too early"
    assert page.locator(".command").count() == 3

    phone = person(desk.operator["id"], viewport=NARROW)
    phone.open(f"/workspaces/{desk.workspace['id']}/terminal/")
    phone.page.locator(".command").first.wait_for()
    assert phone.page.evaluate("document.documentElement.scrollWidth") <= NARROW["width"]
