"""The quota pages, live: cards of the list replaced in place, the parts of one pool's page sent when they changed.

A pool's window slides by itself, so these pages look every LOOK_EVERY_S instead of being told; only while somebody
looks at them: a page in the background is sent nothing and costs no query. The order of the list stays as it was.
"""

from __future__ import annotations

import asyncio
import json
import re

from django.template.loader import render_to_string

from workspaces.models import QuotaPool
from workspaces.queries.access import visible_pools
from workspaces.queries.database import database_now
from workspaces.queries.quota_pools import pools_for
from workspaces.web.quota_parts import LIVE, card_context, page_context, period_of
from workspaces.web.trace_rows import number_or_none

from .lists import MAX_ROWS, LiveList

LOOK_EVERY_S = 2.0
NOT_FOUND = 4404
_CLOCK = re.compile(r"(<time[^>]*>)[^<]*")


class QuotaSocket(LiveList):
    """`shown` holds pools here. The page says `{"visible"}`, and `{"again"}` when it left out a part."""

    visible = False

    async def connect(self) -> None:
        await super().connect()
        if hasattr(self, "work"):
            self.work.append(self._start(self._look_forever()))

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        try:
            words = json.loads(text_data or "")
            if not isinstance(words, dict):
                return
            if "rows" in words:
                self.shown = {int(row) for row in words["rows"][:MAX_ROWS]}
        except (ValueError, TypeError, OverflowError, RecursionError):
            return
        if "visible" in words:
            self.visible = words["visible"] is True
        if words.get("again") is True:
            self.sent.clear()
        if self.visible:
            self.woken.set()

    async def _look_forever(self) -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            if self.visible:
                self.woken.set()

    def _wanted_groups(self) -> set[str]:
        return set()

    def prepare(self) -> None:
        self.sent: dict[str, int] = {}

    def fragments(self, tasks: set[int]) -> str:
        return "".join(self._changed(self.parts())) if self.visible else ""

    def parts(self) -> list[tuple[str, str]]:
        """(name, HTML) of everything that may have changed."""
        raise NotImplementedError

    def _changed(self, parts: list[tuple[str, str]]) -> list[str]:
        changed = [(name, html) for name, html in parts if self.sent.get(name) != _fixed(html)]
        self.sent |= {name: _fixed(html) for name, html in changed}
        return [html for _, html in changed]


def _fixed(html: str) -> int:
    """Equal for equal HTML, whatever "12 s ago" it says: the page's own clock keeps that fresh."""
    return hash(_CLOCK.sub(r"\1", html))


class QuotaConsumer(QuotaSocket):
    def parts(self) -> list[tuple[str, str]]:
        now = database_now()
        rows = pools_for(self.user, now)
        found: list[tuple[str, str]] = [
            (str(row.pool.pk), render_to_string("quota/_card.html", {**card_context(row, self.user), "oob": True}))
            for row in rows
            if row.pool.pk in self.shown
        ]
        new = sum(row.pool.pk not in self.shown for row in rows)
        found.append(("new", render_to_string("quota/_new.html", {"count": new, "oob": True})))
        return found


class PoolConsumer(QuotaSocket):
    """One pool's page. Who may not know of it is accepted and closed with a code, as on every page."""

    async def connect(self) -> None:
        await super().connect()
        if hasattr(self, "work") and not self.found:
            await self.close(code=NOT_FOUND)

    def prepare(self) -> None:
        super().prepare()
        self.pool_id: int = self.scope["url_route"]["kwargs"]["pool_id"]
        self.found = self._pool() is not None

    def parts(self) -> list[tuple[str, str]]:
        pool = self._pool()
        if pool is None:
            return []
        before = number_or_none(self.query.get("before"))
        context = page_context(pool, self.user, database_now(), period_of(self.query.get("period")), before)
        return [(name, render_to_string(template, {**context, "oob": True})) for name, template in LIVE.items()]

    def _pool(self) -> QuotaPool | None:
        return visible_pools(self.user).select_related("created_by").filter(pk=self.pool_id).first()
