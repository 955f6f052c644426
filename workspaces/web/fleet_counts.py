"""The strip of counts above the fleet: rows of words for `fleet/_counts.html`. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from workspaces.domain.states import TaskStatus
from workspaces.queries.fleet import Filters

ICONS = {
    "queued": "queued",
    "running": "play",
    "waiting": "clock",
    "pausing": "pausing",
    "paused": "pause",
    "succeeded": "check",
    "failed": "cross",
    "cancelled": "ban",
}
TITLES = {
    "queued": "Ready; no worker has taken it up yet",
    "running": "A worker advances it",
    "waiting": "For a workspace, quota, an operator, a budget, a child or a time: each row says which",
    "pausing": "Told to pause; a worker is still busy",
    "paused": "Held by an order; resume it to go on",
    "succeeded": "Ended with a result",
    "failed": "Ended without one",
    "cancelled": "Ended by a person",
}
QUIET = {"pausing"}  # shown only when there are some


@dataclass(frozen=True, slots=True)
class Tile:
    words: str
    number: int
    address: str
    title: str
    icon: str = ""
    current: bool = False
    urgent: bool = False

    @property
    def shown(self) -> str:
        return f"{self.number:,}"


def tiles(counts: Mapping[str, int], filters: Filters) -> list[Tile]:
    found = [
        Tile(
            "needs a person",
            counts["needs"],
            filters.address(needs=True, status=""),
            "An open question, a budget without room, a failure of the last 24 hours, an overdue wait, or no worker",
            icon="hand",
            current=filters.needs,
            urgent=True,
        ),
        Tile(
            "all",
            counts["all"],
            filters.address(needs=False, status=""),
            "Every task that you can see and that fits the other filters",
            current=not filters.needs and not filters.status,
        ),
    ]
    for status in TaskStatus:
        number = counts[status.value]
        current = filters.status == status.value
        if number or current or status.value not in QUIET:
            found.append(
                Tile(
                    status.value,
                    number,
                    filters.address(needs=False, status=status.value),
                    TITLES[status.value],
                    icon=ICONS[status.value],
                    current=current,
                )
            )
    return found
