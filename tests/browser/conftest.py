"""One product and one Chromium for all browser tests; a fresh browser context for each person in a test.

Package scope, not session: Playwright keeps an event loop in this thread while it runs, which other tests do
not expect. A missing browser skips with the reason; on CI it fails.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, sync_playwright

from agentdesk.environment import REPO
from tests.browser.people import BROWSERS, Person, chromium_path, launch
from tests.browser.product import Product

FAILED = pytest.StashKey[bool]()
SEEN = REPO / "build" / "browser"


def missing(words: str) -> None:
    if os.environ.get("CI"):
        pytest.fail(words)
    pytest.skip(words)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.when == "call":
        item.stash[FAILED] = report.failed
    return report


@pytest.fixture(scope="package")
def chromium() -> Iterator[Browser]:
    if not chromium_path():
        missing(f"no Chromium: none of {', '.join(BROWSERS)} is on PATH")
    with sync_playwright() as playwright:
        browser = launch(playwright)
        yield browser
        browser.close()


@pytest.fixture(scope="package")
def product(chromium: Browser) -> Iterator[Product]:
    with Product() as running:
        yield running


@pytest.fixture
def containers(product: Product) -> None:
    """The test needs real containers."""
    if product.driver != "docker":
        missing(f"no Docker engine: {product.why_local}")


@pytest.fixture
def person(chromium: Browser, product: Product, request: pytest.FixtureRequest) -> Iterator[Callable[..., Person]]:
    """`person(user_id, **context options)`. What the console complained about fails the test at its end.

    A failed test leaves what each person saw in build/browser/.
    """
    people: list[Person] = []

    def come(user_id: int | None = None, **options: Any) -> Person:
        people.append(Person(chromium, product, user_id, **options))
        return people[-1]

    yield come
    if request.node.stash.get(FAILED, False):
        for number, each in enumerate(people, 1):
            each.page.screenshot(path=SEEN / f"{request.node.name[:60]}-{number}.png", full_page=True)
    complaints = [text for each in people for text in each.complaints]
    for each in people:
        each.close()
    assert not complaints, "the browser complained: " + "; ".join(complaints)


class Desk:
    """A workspace with its owner and an operator, and tasks that play a scenario in it."""

    def __init__(self, product: Product, driver: str) -> None:
        self.product = product
        self.owner = product.do("user")
        self.operator = product.do("user")
        self.workspace = product.do("workspace", owner=self.owner["id"], driver=driver)
        self.add(self.operator, "operator")

    def add(self, user: dict[str, Any], role: str) -> None:
        self.product.do("member", workspace_id=self.workspace["id"], user_id=user["id"], role=role)

    def task(self, scenario: str, profile: dict[str, Any] | None = None, **fields: Any) -> int:
        version = self.product.do("profile", owner=self.owner["id"], scenario=scenario, **(profile or {}))
        number: int = self.product.do("task", workspace_id=self.workspace["id"], version=version, **fields)
        return number


@pytest.fixture
def desk(product: Product) -> Desk:
    """Its commands run by the local driver, which starts quicker than a container."""
    return Desk(product, "local")


@pytest.fixture
def container_desk(containers: None, product: Product) -> Desk:
    return Desk(product, "docker")
