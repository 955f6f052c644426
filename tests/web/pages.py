"""Reading of pages in tests: parsed HTML, never substrings."""

from __future__ import annotations

from typing import Any

from bs4 import BeautifulSoup, Tag


class Page:
    """A response as a reader sees it."""

    def __init__(self, html: str | bytes) -> None:
        self.soup = BeautifulSoup(html, "html.parser")

    def all(self, selector: str) -> list[Tag]:
        return self.soup.select(selector)

    def one(self, selector: str) -> Tag:
        found = self.all(selector)
        assert len(found) == 1, f"{len(found)} elements match {selector}"
        return found[0]

    def none(self, selector: str) -> None:
        found = self.all(selector)
        assert not found, f"{len(found)} elements match {selector}, the first: {found[0]}"

    def text(self, selector: str) -> str:
        """Its words, with single spaces."""
        return words(self.one(selector))


def words(tag: Tag) -> str:
    return " ".join(tag.get_text(" ").split())


def page(response: Any) -> Page:
    return Page(response.content)
