"""The pictures of docs/quickstart.md: `make pictures`. Starts the product with its demo in a temporary home.

What is on them is real: the demo's tasks run while the pictures are taken. Writes docs/pictures/*.png only.
"""

from __future__ import annotations

import sys
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

from agentdesk.environment import REPO
from tests.browser.people import NARROW, Person, chromium_path, launch
from tests.browser.product import Product

FOLDER = REPO / "docs" / "pictures"
SIZE = {"width": 1280, "height": 800}
MAX_BYTES = 200_000


def main() -> int:
    if not chromium_path():
        print("No Chromium is on PATH: apt-get install chromium", file=sys.stderr)
        return 1
    FOLDER.mkdir(parents=True, exist_ok=True)
    with Product(AGENTDESK_DEMO="1") as product, sync_playwright() as playwright:
        browser = launch(playwright)
        take_all(browser, product)
        browser.close()
    return 0


def take_all(browser: Browser, product: Product) -> None:
    users = {row["username"]: row["id"] for row in product.rows("select id, username from workspaces_user")}
    tasks = {row["title"]: row["id"] for row in product.rows("select id, title from workspaces_task")}
    build, invoice = tasks["Build and test the inventory"], tasks["Invoice Kestrel Bikes for this week"]
    stuck = tasks["Put the rates into a table"]
    olive = Person(browser, product, users["olive"], viewport=SIZE, color_scheme="light")
    page = olive.page

    olive.until(lambda: product.task(build)["steps_taken"] >= 9, within_s=240, what="the demo has got on")
    olive.until(lambda: product.task(invoice)["status"] == "waiting", within_s=60, what="the invoice is held")
    olive.open("/", live=True)
    save(page, "fleet")

    pool = product.rows("select id from workspaces_quotapool where name = 'Demo: a small allowance'")[0]["id"]
    olive.open(f"/quota/{pool}/", live=True)
    page.locator("#pool-queue").wait_for()
    page.wait_for_timeout(1_500)
    save(page, "quota")

    olive.open(f"/tasks/{build}/?panel=scratchpad", live=True)
    page.locator("#latest .latest-call").wait_for(timeout=30_000)
    save(page, "task")

    olive.open(f"/tasks/{invoice}/", live=True)
    card = page.locator("#task-escalations .card-urgent")
    card.locator("summary", has_text="Edit").click()
    card.scroll_into_view_if_needed()
    save(page, "approve")

    olive.until(lambda: product.task(stuck)["status"] == "waiting", within_s=60, what="the stuck agent is asked about")
    incident = product.rows("select id from workspaces_incident where task_id = %s", stuck)[0]["id"]
    olive.open(f"/incidents/{incident}/", live=True)
    save(page, "incident")

    olive.open("/alerts/", live=True)
    page.locator("[data-row]").nth(1).wait_for(timeout=30_000)
    save(page, "alerts")

    page.goto(f"/tasks/{stuck}/steps/5/context/")
    page.locator("#context-proof").wait_for()
    save(page, "context")

    olive.open(f"/tasks/{build}/?panel=checkpoints", live=True)
    page.locator("#control-pause-now").click()
    olive.wait_status("paused")
    page.wait_for_timeout(500)
    save(page, "pause")

    saved = sorted(product.checkpoints(build).values())
    page.goto(f"/tasks/{build}/?panel=checkpoints")
    page.locator("#panel tr", has_text=f"#{saved[-3]}").locator("[title='Roll back to here']").click()
    dialog = page.locator("#rollback-dialog[open]")
    dialog.locator("#rollback-reason").fill("The last cases test nothing new")
    save(page, "rollback")

    page.goto(f"/tasks/{build}/diff/?before={saved[4]}&after={saved[7]}")
    page.locator(".diff-file pre, .diff-file .diff").first.wait_for()
    save(page, "changes")
    olive.close()

    night = Person(browser, product, users["olive"], viewport=SIZE, color_scheme="dark")
    night.open("/", live=True)
    save(night.page, "fleet-dark")
    night.close()

    phone = Person(browser, product, users["olive"], viewport=NARROW, color_scheme="light", device_scale_factor=2)
    phone.open(f"/tasks/{build}/", live=True)
    save(phone.page, "phone")
    phone.close()

    product.do(
        "usage", tasks=600, driver=product.driver
    )  # last: three months of work that the other pictures must not show
    later = Person(browser, product, users["olive"], viewport=SIZE, color_scheme="light")
    later.open("/costs/?period=30d")
    later.page.locator("#trend-chart .main-svg").first.wait_for(timeout=30_000)
    save(later.page, "costs")
    later.close()
    assert not olive.complaints, olive.complaints


def save(page: Page, name: str) -> Path:
    path = FOLDER / f"{name}.png"
    page.screenshot(path=path, animations="disabled", caret="hide")
    size = path.stat().st_size
    assert size <= MAX_BYTES, f"{path.name} has {size} bytes; at most {MAX_BYTES}"
    print(f"{path.relative_to(REPO)}  {size // 1000} KB", flush=True)
    return path


if __name__ == "__main__":
    sys.exit(main())
