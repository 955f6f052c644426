"""The fleet page, live: rows replaced in place, counts, and how many new tasks there are. Never reorders."""

from __future__ import annotations

import time

from django.template.loader import render_to_string

from workspaces.queries import fleet
from workspaces.queries.budget_pages import alerts
from workspaces.web.fleet_counts import tiles
from workspaces.web.frame_counts import frame_counts
from workspaces.web.quota_parts import quota_waits

from .lists import LiveList

COUNTS_EVERY_S = 2.0  # they read every visible task


class FleetConsumer(LiveList):
    def prepare(self) -> None:
        self.filters = fleet.Filters.from_query(self.query)
        self.newest = fleet.newest_task_id(self.user)
        self.counted_at = 0.0

    def fragments(self, tasks: set[int]) -> str:
        parts: list[str] = [
            render_to_string("fleet/_row.html", {"task": task, "oob": True})
            for task in fleet.rows(self.user, sorted(tasks & self.shown))
        ]
        if any(task > self.newest and task not in self.shown for task in tasks):
            count = fleet.new_since(self.user, self.filters, self.newest)
            context = {"count": count, "address": f"/{self.filters.address()}", "oob": True}
            parts.append(render_to_string("fleet/_new.html", context))
        if time.monotonic() - self.counted_at >= COUNTS_EVERY_S:
            self.counted_at = time.monotonic()
            parts.append(counts_html(self))
        elif tasks:
            self.counts_are_due()
        return "".join(parts)

    def counts_are_due(self) -> None:
        """Counted too lately: look again after the pause, also if nothing else happens."""
        self.loop.call_soon_threadsafe(self.loop.call_later, COUNTS_EVERY_S, self.woken.set)


def counts_html(consumer: FleetConsumer) -> str:
    counted = fleet.counts(consumer.user, consumer.filters)
    counts: str = render_to_string("fleet/_counts.html", {"counts": tiles(counted, consumer.filters), "oob": True})
    filters = consumer.filters
    context = {"quota_waits": quota_waits(consumer.user, filters), "filters": filters, "oob": True}
    counts += render_to_string("fleet/_quota_waits.html", context)
    counts += render_to_string("budgets/_alerts.html", {"alerts": alerts(consumer.user), "oob": True})
    return counts + frame_counts(consumer.user)
