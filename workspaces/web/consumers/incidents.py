"""Incidents, live: rows of the list replaced in place and new ones offered; the parts of one incident's page.

Nothing moves by itself under the pointer: a new incident is counted on a button, a part is sent only when it has
changed, and what a person types stands in dialogs and cards that are never replaced while they are open.
"""

from __future__ import annotations

import re
import time

from django.template.loader import render_to_string

from workspaces.models import Incident
from workspaces.queries import incidents
from workspaces.queries.access import visible_incidents
from workspaces.web.frame_counts import frame_counts
from workspaces.web.incident_parts import LIVE, page_context
from workspaces.web.incident_tiles import tiles

from .lists import LiveList

COUNTS_EVERY_S = 2.0  # they read every visible incident
NOT_FOUND = 4404
_CLOCK = re.compile(r"(<time[^>]*>)[^<]*")


class IncidentsConsumer(LiveList):
    """`shown` holds incidents here."""

    def prepare(self) -> None:
        self.filters = incidents.Filters.from_query(self.query)
        self.newest = incidents.newest_id(self.user)
        self.counted_at = 0.0
        self.sent: dict[int, int] = {}

    def tasks_shown(self) -> set[int]:
        return set(visible_incidents(self.user).filter(pk__in=self.shown).values_list("task", flat=True))

    def fragments(self, tasks: set[int]) -> str:
        known = incidents.of_tasks(tasks) if tasks else []
        parts: list[str] = []
        for incident in incidents.rows(self.user, sorted({pk for pk, _ in known} & self.shown)):
            html: str = render_to_string("incidents/_row.html", {"incident": incident, "oob": True})
            if self.sent.get(incident.pk) != _fixed(html):
                self.sent[incident.pk] = _fixed(html)
                parts.append(html)
        if any(pk > self.newest and pk not in self.shown for pk, _ in known):
            count = incidents.new_since(self.user, self.filters, self.newest)
            context = {"count": count, "address": f"/incidents/{self.filters.address()}", "oob": True}
            parts.append(render_to_string("incidents/_new.html", context))
        if known and time.monotonic() - self.counted_at >= COUNTS_EVERY_S:
            self.counted_at = time.monotonic()
            parts.append(self._counts())
        elif known:
            self.loop.call_soon_threadsafe(self.loop.call_later, COUNTS_EVERY_S, self._count_later, tasks)
        return "".join(parts)

    def _count_later(self, tasks: set[int]) -> None:
        """Counted too lately: look again after the pause, also if nothing else happens."""
        self.dirty |= tasks
        self.woken.set()

    def _counts(self) -> str:
        counts = tiles(incidents.counts_by_kind(self.user, self.filters), self.filters)
        return render_to_string("incidents/_counts.html", {"counts": counts, "oob": True}) + frame_counts(self.user)


def _fixed(html: str) -> int:
    """Equal for equal HTML, whatever "12 s ago" it says: the page's own clock keeps that fresh."""
    return hash(_CLOCK.sub(r"\1", html))


class IncidentConsumer(LiveList):
    """One incident's page. A part is sent when its HTML is another than the one that was sent last."""

    task_id = 0

    async def connect(self) -> None:
        """Who may not see it is accepted and closed with a code: a browser cannot read why a handshake failed."""
        await super().connect()
        if hasattr(self, "work") and not self.task_id:
            await self.close(code=NOT_FOUND)

    def prepare(self) -> None:
        """The page says with `seen` how far the task's trace went when it was made; what came since is sent at once."""
        self.incident_id: int = self.scope["url_route"]["kwargs"]["incident_id"]
        self.sent: dict[str, int] = {}
        incident = self._incident()
        if incident is None:
            return
        self.task_id = incident.task_id
        if self.query.get("seen") == str(incident.task.last_seq):
            self.sent = {name: _fixed(html) for name, html in self._parts(incident)}
        else:
            self.dirty.add(self.task_id)
            self.woken.set()

    def tasks_shown(self) -> set[int]:
        return {self.task_id}

    def fragments(self, tasks: set[int]) -> str:
        if self.task_id not in tasks:
            return ""
        incident = self._incident()
        if incident is None:
            return ""
        changed = [(name, html) for name, html in self._parts(incident) if self.sent.get(name) != _fixed(html)]
        self.sent |= {name: _fixed(html) for name, html in changed}
        return "".join([html for _, html in changed] + [frame_counts(self.user)]) if changed else ""

    def _incident(self) -> Incident | None:
        related = ("task__workspace", "task__profile_version__profile", "branch", "acknowledged_by", "resolved_by")
        return visible_incidents(self.user).select_related(*related).filter(pk=self.incident_id).first()

    def _parts(self, incident: Incident) -> list[tuple[str, str]]:
        context = {**page_context(incident, self.user), "oob": True}
        return [(name, render_to_string(template, context)) for name, template in LIVE.items()]
