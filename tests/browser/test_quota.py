"""An exhausted pool in front of the desk: the task that meets it says so, and goes on once there is room."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.browser.conftest import Desk
from tests.browser.people import Person
from tests.browser.product import Product

pytestmark = [pytest.mark.browser, pytest.mark.stack]

SCENARIO = """
replies:
  - calls: [{name: note, arguments: {section: plan, text: "Look first."}}]
  - text: I have looked.
    calls: [{name: finish, arguments: {summary: "All is well."}}]
"""


def set_tokens_a_day(staff: Person, pool: int, tokens: str) -> None:
    page = staff.open(f"/quota/{pool}/settings/")
    page.get_by_label("Tokens a day").fill(tokens)
    page.locator("#pool-form").get_by_label("Why").fill("the contract says so")
    page.get_by_role("button", name="Change").click()
    page.wait_for_url(f"**/quota/{pool}/")


def test_a_task_meets_an_exhausted_pool_says_so_and_goes_on_when_there_is_room(
    desk: Desk, product: Product, person: Callable[..., Person]
) -> None:
    version = product.do("profile", owner=desk.owner["id"], scenario=SCENARIO)
    first = product.do("task", workspace_id=desk.workspace["id"], version=version)
    owner = person(desk.owner["id"])
    owner.until(lambda: product.task(first)["status"] == "succeeded", within_s=60, what="the first task ends")
    (pool,) = product.rows("select distinct pool_id from workspaces_modelcall where task_id = %s", first)[0].values()

    staff = person(product.do("user", is_staff=True)["id"])
    set_tokens_a_day(staff, pool, "1")  # more than that is used today: nobody gets anything before midnight
    second = product.do("task", workspace_id=desk.workspace["id"], version=version, instruction="Look again.")
    owner.open(f"/tasks/{second}/", live=True)
    owner.wait_status("waiting", within_s=60)
    where = owner.page.locator("#task-quota")
    where.get_by_text("Place 1 of 1").wait_for()
    assert "1 tokens a day are used" in where.inner_text()

    owner.open("/", live=True)
    owner.page.locator("#fleet-quota a", has_text="1 on").wait_for()
    page = owner.open(f"/quota/{pool}/", live=True)
    assert "full" in page.locator("#pool-limits tr", has_text="Tokens").last.inner_text()
    assert "Look again." in page.locator("#pool-queue tbody").inner_text()
    chart = page.locator("#quota-chart-calls")
    chart.scroll_into_view_if_needed()
    page.locator("#quota-chart-calls[data-ready] .main-svg").first.wait_for(timeout=30_000)
    drawn = page.evaluate(
        "document.querySelector('#quota-chart-calls .chart-plot').data[0].y.reduce((sum, each) => sum + each, 0)"
    )
    assert str(drawn) == page.locator("#pool-history .quota-sum td").first.inner_text().strip() == "2"

    set_tokens_a_day(staff, pool, "100000000")
    page.locator("#pool-notices", has_text="tokens per day 1 →").wait_for(timeout=30_000)
    page.locator("#pool-queue", has_text="Nobody waits").wait_for(timeout=60_000)
    owner.open(f"/tasks/{second}/", live=True)
    owner.wait_status("succeeded", within_s=60)
