"""Somebody in front of the desk: one browser context, its page, and what the browser complained about."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable
from typing import Any

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Playwright

from tests.browser.product import Product

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--force-color-profile=srgb",
]
WIDE = {"width": 1440, "height": 900}
NARROW = {"width": 390, "height": 844}


def chromium_path() -> str:
    """Empty when there is none."""
    return next((found for name in BROWSERS if (found := shutil.which(name))), "")


def launch(playwright: Playwright) -> Browser:
    return playwright.chromium.launch(executable_path=chromium_path(), args=FLAGS)


class Person:
    """`errors` are what the console and the page reported; those that a test expects are named by `allow`."""

    def __init__(self, browser: Browser, product: Product, user_id: int | None = None, **options: Any) -> None:
        self.product = product
        options.setdefault("viewport", WIDE)
        self.context: BrowserContext = browser.new_context(base_url=product.url, **options)
        if user_id is not None:
            key = product.do("session", user_id=user_id)
            self.context.add_cookies([{"name": product.cookie, "value": key, "url": product.url}])
        self.errors: list[str] = []
        self._allowed: list[re.Pattern[str]] = []
        self.page: Page = self.context.new_page()
        self.page.set_default_timeout(10_000)
        self.page.on("console", self._heard)
        self.page.on("pageerror", lambda error: self.errors.append(f"exception: {error}"))

    def _heard(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.errors.append(f"{message.text} ({message.location.get('url', '')})")

    def allow(self, pattern: str, *, because: str) -> None:
        """The browser will complain so, and that is right here. `because` is for the reader."""
        assert because
        self._allowed.append(re.compile(pattern))

    @property
    def complaints(self) -> list[str]:
        return [text for text in self.errors if not any(pattern.search(text) for pattern in self._allowed)]

    def open(self, path: str, *, live: bool = False) -> Page:
        """Go there; `live` waits until the socket is open and the page says so."""
        self.page.goto(path)
        if live:
            self.wait_live()
        return self.page

    def wait_live(self, timeout_ms: float = 10_000) -> None:
        self.page.locator("#connection", has_text="live").wait_for(timeout=timeout_ms)

    def status(self) -> str:
        return self.page.locator("#task-status").inner_text().strip().lower()

    def wait_status(self, status: str, *, within_s: float = 30) -> None:
        self.page.locator("#task-status", has_text=re.compile(rf"^\s*{status}\s*$", re.I)).wait_for(
            timeout=within_s * 1000
        )

    def shown_seqs(self) -> list[int]:
        """The seqs of the trace's rows, in the order of the page."""
        seqs: list[int] = self.page.eval_on_selector_all(
            "#trace > .event", "rows => rows.map(row => Number(row.dataset.seq))"
        )
        return seqs

    def until(self, check: Callable[[], Any], *, within_s: float = 15, what: str = "") -> Any:
        """The first true value of `check`; the page's events are handled while waiting."""
        deadline = time.monotonic() + within_s
        while not (value := check()):
            assert time.monotonic() < deadline, f"not within {within_s} s: {what or check}"
            self.page.wait_for_timeout(50)
        return value

    def close(self) -> None:
        self.context.close()
