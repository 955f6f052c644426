"""Quota and money in front of the desk: a task that meets an exhausted pool says so and goes on when an operator raises
its limit; a budget is hit, raised and the task ends; what the cost pages draw and export is what their tables say."""

from __future__ import annotations

import csv
import io
import json
import re
import urllib.request
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from tests.browser.people import Person
from tests.browser.product import Product

pytestmark = [pytest.mark.browser, pytest.mark.stack]

# Two calls, 1,000 and 2,000 tokens in, 100 and 200 out: at 3 and 15 USD a million 0.0045 and 0.009, 0.0135 in all
SCENARIO = """
replies:
  - text: I write down what I am about to do.
    calls: [{name: note, arguments: {section: plan, text: "say the colour"}}]
    usage: {input: 1000, output: 100}
  - calls: [{name: finish, arguments: {summary: "The colour is blue."}}]
    usage: {input: 2000, output: 200}
"""
PRICED: dict[str, Any] = {
    "input_usd_per_mtok": "3",
    "output_usd_per_mtok": "15",
    "max_output_tokens": 300,
    "detectors": {"observe_only": True},
}


@pytest.fixture(scope="module")
def boss(product: Product) -> dict[str, Any]:
    made: dict[str, Any] = product.do("user", is_staff=True)
    return made


def test_a_task_that_meets_an_exhausted_pool_says_so_and_goes_on_when_its_limit_is_raised(
    product: Product, desk: Any, person: Callable[..., Person], boss: dict[str, Any]
) -> None:
    version = product.do("profile", owner=desk.owner["id"], scenario=SCENARIO, **PRICED)
    first = product.do("task", workspace_id=desk.workspace["id"], version=version)
    olive, staff = person(desk.operator["id"]), person(boss["id"])
    page = olive.open(f"/tasks/{first}/", live=True)
    olive.wait_status("succeeded", within_s=60)

    # --- site staff allow one token a day, of which thousands are gone: nothing frees itself before midnight
    pool = product.rows("select pool_id from workspaces_modelcall where task_id = %s limit 1", first)[0]["pool_id"]
    settings = staff.open(f"/quota/{pool}/settings/")
    settings.locator("#pool-form [name=tokens_per_day]").fill("1")
    settings.locator("#pool-form [name=reason]").fill("the provider complains")
    settings.locator("#pool-form button[type=submit]").click()
    settings.locator("#quota-history-title").wait_for()

    # --- the next task waits, and says for what, where it stands and until when
    second = product.do("task", workspace_id=desk.workspace["id"], version=version)
    page = olive.open(f"/tasks/{second}/", live=True)
    olive.wait_status("waiting", within_s=60)
    wait = page.locator("#task-quota")
    wait.get_by_text("Expected").wait_for()
    said = " ".join(wait.inner_text().split())
    assert "Place 1 of 1" in said, said
    assert "tokens a day are used" in said, said
    rows = product.rows("select waiting_for, waiting_until from workspaces_task where id = %s", second)
    assert rows[0]["waiting_for"] == "quota"
    assert rows[0]["waiting_until"] is not None
    page.goto("/")
    page.locator("#fleet-quota a", has_text="1 on").wait_for()

    # --- the pool's page shows the queue; raised, the task goes on by itself
    shown = staff.open(f"/quota/{pool}/", live=True)
    shown.locator(f"#pool-queue a[href='/tasks/{second}/']").wait_for()
    shown.locator("#quota-chart-calls").scroll_into_view_if_needed()
    shown.locator("#quota-chart-calls[data-ready] .main-svg").first.wait_for(timeout=30_000)
    bars = shown.evaluate("document.querySelector('#quota-chart-calls .chart-plot').data[0].y")
    assert str(sum(bars)) == shown.locator("#pool-history .quota-sum td").first.inner_text().strip() == "2"
    page = olive.open(f"/tasks/{second}/", live=True)
    settings = staff.open(f"/quota/{pool}/settings/")
    settings.locator("#pool-form [name=tokens_per_day]").fill("100000000")
    settings.locator("#pool-form [name=reason]").fill("they gave us more")
    settings.locator("#pool-form button[type=submit]").click()
    olive.wait_status("succeeded", within_s=60)
    notices = product.rows(
        "select kind from workspaces_quotanotice where pool_id = %s and kind = 'limit_set' order by id", pool
    )
    assert len(notices) == 2
    waited = product.rows("select max(waited_s) as waited from workspaces_modelcall where task_id = %s", second)
    assert waited[0]["waited"] > 0


def test_a_budget_is_hit_raised_from_the_task_and_the_task_ends_where_it_was(
    product: Product, desk: Any, person: Callable[..., Person]
) -> None:
    version = product.do("profile", owner=desk.owner["id"], scenario=SCENARIO, **PRICED)
    owner = person(desk.owner["id"])
    form = owner.open("/tasks/new/")
    form.locator("select[name=workspace]").select_option(str(desk.workspace["id"]))
    form.locator("select[name=profile]").select_option(str(version))
    form.locator("[name=instruction]").fill("Say which colour is set.")
    form.locator("details", has=form.locator("[name=budget_usd]")).locator("summary").click()
    form.locator("[name=budget_usd]").fill("0.0095")  # room for one call of the two
    form.locator("form button[type=submit]").last.click()
    form.wait_for_url(re.compile(r"/tasks/\d+/"))
    task = int(re.search(r"/tasks/(\d+)/", form.url)[1])  # type: ignore[index]

    # --- without room for the second call it waits, with everything kept
    owner.wait_live()
    owner.wait_status("waiting", within_s=60)
    short = form.locator(".task-budget-short")
    short.wait_for()
    calls = "select status, cost_usd from workspaces_modelcall where task_id = %s order by id"
    assert [row["cost_usd"] for row in product.rows(calls, task)] == [Decimal("0.0045")]
    account = "select a.spent_usd, a.reserved_usd from workspaces_budgetaccount a join workspaces_budget b"
    account += " on b.id = a.budget_id where b.task_id = %s"
    assert product.rows(account, task) == [{"spent_usd": Decimal("0.0045"), "reserved_usd": 0}]

    # --- raised with a reason, right there, it ends; nothing was asked twice
    short.locator("a", has_text="Raise and go on").click()
    raised = form.locator("dialog[open]")
    raised.locator("[name=limit_usd]").fill("0.05")
    raised.locator("[name=reason]").fill("worth it")
    raised.locator("button[type=submit]").click()
    owner.wait_status("succeeded", within_s=60)
    assert [row["status"] for row in product.rows(calls, task)] == ["replied", "replied"]
    assert product.rows(account, task) == [{"spent_usd": Decimal("0.0135"), "reserved_usd": 0}]
    audited = product.rows(
        "select reason from workspaces_auditentry where action = 'budget.changed' and task_id = %s", task
    )
    assert [row["reason"] for row in audited] == ["worth it"]


def test_what_the_cost_pages_draw_and_export_is_what_their_tables_say(
    product: Product, desk: Any, person: Callable[..., Person]
) -> None:
    version = product.do("profile", owner=desk.owner["id"], scenario=SCENARIO, **PRICED)
    task = product.do("task", workspace_id=desk.workspace["id"], version=version)
    owner = person(desk.owner["id"])
    owner.open(f"/tasks/{task}/", live=True)
    owner.wait_status("succeeded", within_s=60)

    page = owner.open(f"/costs/tasks/{task}/")
    assert money(page.locator("#cost-total").inner_text()) == Decimal("0.0135")

    page = owner.open("/costs/me/?period=today")
    assert money(page.locator("#cost-total").inner_text()) == Decimal("0.0135")
    drawn = page.locator("#trend-chart .js-plotly-plot, #trend-chart .chart-plot.js-plotly-plot").first
    drawn.wait_for()
    bars = drawn.evaluate("plot => plot.data.map(trace => [trace.meta.role, trace.y.reduce((a, b) => a + b, 0)])")
    assert dict(bars)["step"] == pytest.approx(0.0135)
    in_table = sum(money(cell) for cell in page.locator("#trend tbody tr td:nth-child(2)").all_inner_texts())
    assert in_table == Decimal("0.0135")

    told = exported(owner, product, page.locator("#export-csv").get_attribute("href") or "")
    assert "0.0135" in told
    dearest = [
        row for row in csv.reader(io.StringIO(told)) if any(f"#{task}" in cell or cell == str(task) for cell in row)
    ]
    assert dearest, told
    figures = json.loads(exported(owner, product, page.locator("#export-json").get_attribute("href") or ""))
    assert "0.0135" in json.dumps(figures)


def money(text: str) -> Decimal:
    """What a cell shows, in USD."""
    found = re.search(r"[\d,]*\.?\d+", text)
    return Decimal(found[0].replace(",", "")) if found else Decimal(0)


def exported(person: Person, product: Product, href: str) -> str:
    cookies = "; ".join(f"{each['name']}={each['value']}" for each in person.context.cookies())
    request = urllib.request.Request(person.page.evaluate("href => new URL(href, location).href", href))
    request.add_header("Cookie", cookies)
    with urllib.request.urlopen(request, timeout=20) as answer:
        text: str = answer.read().decode("utf-8-sig")
    return text
