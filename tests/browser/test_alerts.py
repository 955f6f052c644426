"""Told of a loop, from nothing: an endpoint and a rule are made, a test is sent, an agent loops, the message arrives.

The receiver is a process of its own that verifies with the official library; the link in the message is opened in a
browser that nobody is signed in to.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.browser.people import Person
from tests.browser.product import Product
from tests.receiver import Arrival, Receiver

pytestmark = [pytest.mark.browser, pytest.mark.stack]

LOOPS = """
replies:
  - {repeat: 3, calls: [{name: read_file, arguments: {path: nope.txt}}]}
  - {delay_s: 30, calls: [{name: finish, arguments: {summary: It is not there.}}]}
"""


def test_told_of_a_loop_by_a_webhook_that_is_acknowledged_from_its_link_and_sent_again(
    product: Product, desk: Any, person: Callable[..., Person], tmp_path: Path
) -> None:
    with Receiver(tmp_path / "receiver") as receiver:
        owner = person(desk.owner["id"])
        page = owner.page

        # --- an endpoint is made; its secret is shown this once, and taken from the page
        owner.open("/alerts/endpoints/new/")
        page.locator("#endpoint-form [name=kind][value=webhook]").check()
        page.locator("#endpoint-form [name=name]").fill("My pager")
        page.locator("#endpoint-form [name=address]").fill(receiver.url("pager"))
        page.locator("#endpoint-form button[type=submit]").click()
        secret = page.locator("#secret").inner_text().strip()
        assert secret.startswith("whsec_")
        receiver.trust("pager", secret)
        endpoint = page.url
        page.reload()
        page.locator("#endpoint-secrets").wait_for()
        assert secret not in page.content()

        # --- a test is sent, and the page shows that it has arrived
        page.locator("#send-test").click()
        page.locator("#endpoint-test", has_text="delivered").wait_for(timeout=30_000)
        assert [arrival.body["type"] for arrival in receiver.accepted("pager")] == ["endpoint.test.v1"]

        # --- a rule is made that tells there
        owner.open("/alerts/rules/new/")
        form = page.locator("#rule-form")
        form.locator("[name=name]").fill("My loops")
        form.locator("[name=kinds][value=incident]").check()
        form.locator("[name=incident_kinds][value=loop]").check()
        form.locator("label", has_text="My pager").locator("input").check()
        form.locator("button[type=submit]", has_text="Make the rule").click()
        page.locator("#rules-own", has_text="My loops").wait_for()

        # --- an agent loops: the message arrives, the bell and the open page show it without being loaded again
        watching = person(desk.owner["id"])
        watching.open("/alerts/", live=True)
        task = desk.task(LOOPS)
        opened = told(owner, receiver, "alert.opened.v1")
        data = opened.body["data"]
        alert = data["alert"]["id"]
        incident = product.rows("select * from workspaces_incident where task_id = %s", task)[0]
        assert (data["alert"]["rule"]["name"], data["alert"]["state"]) == ("My loops", "open")
        assert ("incident", incident["id"]) in {(each["type"], each["id"]) for each in data["evidence"]}
        watching.page.locator(f"#bell-alert-{alert}").wait_for(state="attached")
        watching.page.locator("#alerts-new button").click()
        row = watching.page.locator(f"#alert-row-{alert}")
        row.wait_for()

        # --- the link is looked at by somebody who is not signed in: nothing has changed; then it is used, once
        stranger = person()
        link = data["links"]["acknowledge"]
        stranger.open(link)
        stranger.open(link)
        stranger.page.locator("#link #does").wait_for()
        assert state_of(product, alert) == "open"
        stranger.page.locator("#link button[type=submit]").click()
        stranger.page.locator("#done").wait_for()
        assert state_of(product, alert) == "acknowledged"
        row.locator(".alert-state", has_text="acknowledged").wait_for()
        watching.page.locator(f"#bell-alert-{alert}").wait_for(state="detached")
        told(owner, receiver, "alert.acknowledged.v1")
        stranger.allow("the server responded with a status of 4", because="a link acts once")
        stranger.open(link)
        stranger.page.locator("h1", has_text="This link does nothing").wait_for()

        # --- who did what stands on the alert's page; the message is sent again from the list, and is the same one
        owner.open(f"/alerts/{alert}/")
        page.locator("#alert-history", has_text="Acknowledged").wait_for()
        owner.open(f"{endpoint}deliveries/")
        page.locator(".deliveries a", has_text="alert.opened.v1").click()
        page.locator("#delivery-body").wait_for()
        assert link.rstrip("/").rpartition("/")[2] not in page.content()
        page.locator("#resend").click()
        again = owner.until(
            lambda: [each for each in receiver.accepted("pager") if each.id == opened.id][1:],
            within_s=30,
            what="the message comes again",
        )
        assert again[0].raw == opened.raw
        page.locator("#attempts", has_text=re.compile("2")).wait_for()
        assert not receiver.refused()

        # --- by the keyboard alone: chosen and resolved, the focus is back on the row; the rule is muted in its list
        keys = watching.page.keyboard
        for key in ("j", "x", "e"):
            keys.press(key)
        watching.page.locator("#bulk-resolve-reason").fill("It was told where the file is")
        watching.page.locator("#bulk-resolve button[type=submit]").click()
        watching.page.locator("#bulk-results .result-done").wait_for()
        keys.press("Escape")
        watching.page.locator(f"#alert-link-{alert}:focus").wait_for()
        assert watching.page.locator("#alert-rows :checked").count() == 0
        owner.open("/alerts/rules/")
        page.locator("#rules-own .rule button", has_text="Mute…").click()
        page.locator("dialog[open] [name=reason]").fill("We know")
        page.locator("dialog[open] button[type=submit]").click()
        page.locator("#rules-own .rule", has_text="muted").wait_for()


def told(owner: Person, receiver: Receiver, type_: str) -> Arrival:
    """The first message of the type, once it has arrived."""
    found: list[Arrival] = owner.until(
        lambda: [each for each in receiver.accepted("pager") if each.body["type"] == type_],
        within_s=60,
        what=f"{type_} arrives",
    )
    return found[0]


def state_of(product: Product, alert: int) -> str:
    state: str = product.rows("select state from workspaces_alert where id = %s", alert)[0]["state"]
    return state
