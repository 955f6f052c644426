"""Every page at the width of a phone, and legible in the light and in the dark."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.browser.people import NARROW, Person
from tests.browser.product import Product
from tests.harness import eventually

pytestmark = [pytest.mark.browser, pytest.mark.stack]

HELD = """
replies:
  - text: "A first look at a_very_long_name_without_any_place_to_break_it_that_goes_on_and_on_and_on_and_on.txt"
    calls: [{name: shell, arguments: {command: "seq 1 400 | tr '\\n' ' '"}}]
  - calls: [{name: send_invoice, arguments: {customer: "ACME, a customer with a name of some length", amount: 10}}]
"""
LOOPS = """
replies:
  - repeat: 3
    calls: [{name: read_file, arguments: {path: a_name_without_any_place_to_break_it_that_goes_on_and_on_and_on.txt}}]
  - calls: [{name: ask_operator, arguments: {question: "Where is it?"}}]
"""
LEAST_CONTRAST = 4.5  # WCAG 2.2, 1.4.3, for text of this size

# Contrast of every text that is seen, against the nearest opaque background; the worst first.
CONTRAST = """() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (colour) => {
    canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const light = ([r, g, b]) => [r, g, b].map((each) => each / 255)
    .map((each) => (each <= 0.03928 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4))
    .reduce((sum, each, at) => sum + each * [0.2126, 0.7152, 0.0722][at], 0);
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = rgba(getComputedStyle(at).backgroundColor);
      if (colour[3] > 0.98) return colour;
    }
    return [255, 255, 255, 1];
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !element.checkVisibility({ opacityProperty: true })) continue;
    const unread = "svg, script, style, template, :disabled, [aria-disabled=true], .visually-hidden, .skip-link";
    if (element.closest(unread)) continue;
    const style = getComputedStyle(element);
    const [a, b] = [light(rgba(style.color)), light(behind(element))].sort((x, y) => y - x);
    found.push([(a + 0.05) / (b + 0.05), walker.currentNode.data.trim().slice(0, 40), element.className]);
  }
  return found.sort((x, y) => x[0] - y[0]);
}"""


@pytest.fixture(scope="module")
def paths(product: Product) -> list[str]:
    """Every page of the desk, with a held call and a long trace on it."""
    from tests.browser.conftest import Desk

    desk = Desk(product, "local")
    task = desk.task(HELD)
    looped = Desk(product, "local").task(LOOPS)  # the first one holds its workspace while it waits
    found = eventually(
        lambda: product.rows("select id from workspaces_incident where task_id = %s", looped), within_s=60
    )
    incident = found[0]["id"]
    product.do("user", name="looker", is_staff=True)
    pool = product.rows("select pool_id from workspaces_modelcall where task_id = %s limit 1", task)[0]["pool_id"]
    return [
        "/",
        f"/tasks/{task}/",
        f"/tasks/{task}/?panel=checkpoints",
        "/inbox/",
        "/alerts/",
        "/incidents/",
        f"/incidents/{incident}/",
        "/incidents/recurrence/",
        "/incidents/compounding/",
        "/audit/",
        f"/tasks/{looped}/audit/",
        "/tasks/new/",
        "/profiles/",
        "/profiles/new/",
        "/workspaces/",
        f"/workspaces/{desk.workspace['id']}/",
        f"/workspaces/{desk.workspace['id']}/terminal/",
        "/quota/",
        f"/quota/{pool}/",
        "/costs/",
        f"/costs/tasks/{task}/",
        "/costs/reconcile/",
        "/budgets/new/",
        "/prices/",
        "/alerts/rules/",
        "/alerts/rules/new/",
        "/alerts/endpoints/",
        "/alerts/endpoints/new/",
    ]


def looker(product: Product) -> int:
    number: int = product.rows("select id from workspaces_user where username = 'looker'")[0]["id"]
    return number


def test_no_page_scrolls_sideways_on_a_phone(product: Product, paths: list[str], person: Callable[..., Person]) -> None:
    olive = person(looker(product), viewport=NARROW)
    wide = {}
    for path in paths:
        page = olive.open(path)
        page.wait_for_timeout(300)
        for here in page.locator(".topnav [aria-current], .tabs [aria-current]").all():
            box = here.bounding_box()
            assert box is not None, path
            assert box["x"] + box["width"] <= NARROW["width"] + 1, f"where one is stands out of sight on {path}"
        width = page.evaluate("document.documentElement.scrollWidth")
        if width > NARROW["width"]:
            wide[path] = width
    assert not wide


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_can_be_read(scheme: Any, product: Product, paths: list[str], person: Callable[..., Person]) -> None:
    olive = person(looker(product), color_scheme=scheme)
    for path in paths:
        page = olive.open(path)
        worst = page.evaluate(CONTRAST)
        assert worst, path
        assert worst[0][0] >= LEAST_CONTRAST, (path, worst[:5])
