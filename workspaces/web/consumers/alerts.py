"""Alerts, live: the bell of every page, rows of the list replaced in place and new ones offered, one alert's parts.

The group "alerts" only says that something changed: each socket reads what its user may see, at every rendering, and
sends what is not what it sent last. Nothing moves by itself under the pointer.
"""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from typing import Any

from django.template.loader import render_to_string

from workspaces.models import Alert
from workspaces.queries import alerts
from workspaces.queries.access import visible_alerts
from workspaces.queries.bell import bell_of
from workspaces.queries.database import database_now
from workspaces.web.alert_parts import LIVE, head_context, page_context, shown_rows

from .lists import LiveList

COUNTS_EVERY_S = 2.0  # they count every tab
NOT_FOUND = 4404
_CLOCK = re.compile(r"(<time[^>]*>)[^<]*")


def _fixed(html: str) -> int:
    """Equal for equal HTML, whatever "12 s ago" it says: the page's own clock keeps that fresh."""
    return hash(_CLOCK.sub(r"\1", html))


class AlertSocket(LiveList):
    """Sends a part when its HTML is another than the one that was sent last."""

    flush_every_s = 1.0

    def prepare(self) -> None:
        self.sent: dict[Any, int] = {}

    async def alerts_changed(self, message: dict[str, Any]) -> None:
        self.woken.set()

    def _wanted_groups(self) -> set[str]:
        return {"alerts"}

    def tasks_shown(self) -> set[int]:
        return set()

    def changed(self, name: Any, html: str) -> str:
        if self.sent.get(name) == _fixed(html):
            return ""
        self.sent[name] = _fixed(html)
        return html


class BellConsumer(AlertSocket):
    """Says how things stand as soon as it is open, also after a connection that was lost; it is told of no row."""

    def prepare(self) -> None:
        super().prepare()
        self.since = database_now()
        self.woken.set()

    def fragments(self, tasks: set[int]) -> str:
        bell = bell_of(self.user)
        context = {"bell": bell, "oob": True}
        html = "".join(
            self.changed(name, render_to_string(template, context))
            for name, template in (("count", "alerts/_bell_count.html"), ("list", "alerts/_bell_list.html"))
        )
        new = [alert for alert in bell.newest if alert.opened_at is not None and alert.opened_at > self.since]
        if new:  # a screen reader is told of what came, not of what somebody took up
            self.since = max(alert.opened_at for alert in new if alert.opened_at is not None)
            html += render_to_string("alerts/_bell_said.html", {"bell": bell, "newest": new[0], "oob": True})
        return html


class AlertsConsumer(AlertSocket):
    """`shown` holds alerts here. `made` in the address: when the page was made, in seconds since 1970."""

    def prepare(self) -> None:
        super().prepare()
        self.filters = alerts.Filters.from_query(self.query)
        self.made = moment_of(self.query.get("made")) or database_now()
        self.counted_at = 0.0

    def fragments(self, tasks: set[int]) -> str:
        parts: list[str] = []
        for row in shown_rows(self.user, alerts.rows(self.user, sorted(self.shown))):
            html: str = render_to_string("alerts/_row.html", {"row": row, "oob": True})
            parts.append(self.changed(row.alert.pk, html))
        count = alerts.new_since(self.user, self.filters, self.made, self.shown)
        context = {"count": count, "address": f"/alerts/{self.filters.address()}", "oob": True}
        parts.append(self.changed("new", render_to_string("alerts/_new.html", context)))
        if (waited := time.monotonic() - self.counted_at) >= COUNTS_EVERY_S:
            self.counted_at = time.monotonic()
            above = {**head_context(self.user, self.filters), "filters": self.filters, "oob": True}
            parts += [
                self.changed(name, render_to_string(f"alerts/{name}.html", above)) for name in ("_states", "_tiles")
            ]
        else:  # counted too lately: look again after the pause, also if nothing else happens
            self.loop.call_soon_threadsafe(self.loop.call_later, COUNTS_EVERY_S - waited, self.woken.set)
        return "".join(parts)


def moment_of(text: str | None) -> datetime | None:
    try:
        return datetime.fromtimestamp(float(text or ""), UTC)
    except (ValueError, OverflowError, OSError):
        return None


class AlertConsumer(AlertSocket):
    """One alert's page. Who may not see it is accepted and closed with a code, as on every page."""

    async def connect(self) -> None:
        await super().connect()
        if hasattr(self, "work") and not self.found:
            await self.close(code=NOT_FOUND)

    def prepare(self) -> None:
        super().prepare()
        self.alert_id: int = self.scope["url_route"]["kwargs"]["alert_id"]
        self.found = self._alert() is not None
        self.woken.set()

    def fragments(self, tasks: set[int]) -> str:
        alert = self._alert()
        if alert is None:
            return ""
        context = {**page_context(alert, self.user, self.query), "oob": True}
        return "".join(self.changed(name, render_to_string(template, context)) for name, template in LIVE.items())

    def _alert(self) -> Alert | None:
        related = ("rule", "user", "workspace", "acknowledged_by", "resolved_by")
        return visible_alerts(self.user).select_related(*related).filter(pk=self.alert_id).first()
