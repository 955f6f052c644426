"""The strip of counts above the incidents, and the words of the filters. Pure: counts in, tiles out."""

from __future__ import annotations

from collections.abc import Mapping

from workspaces.domain.incident_words import CLUSTERS, KINDS, MODES
from workspaces.domain.incidents import IncidentKind, IncidentState, Severity
from workspaces.queries.incidents import Filters
from workspaces.web.fleet_counts import Tile

STATE_CHOICES = (
    ("unresolved", "Open and acknowledged"),
    *((state.value, state.value.capitalize()) for state in IncidentState),
)
SEVERITY_CHOICES = [(severity.value, severity.value.capitalize()) for severity in reversed(Severity)]
MODE_CHOICES = [(mode.value, words.name) for mode, words in MODES.items()]
CLUSTER_CHOICES = [(cluster.value, words.name) for cluster, words in CLUSTERS.items()]
PERIOD_CHOICES = (("hour", "Last hour"), ("day", "Last 24 hours"), ("week", "Last 7 days"), ("month", "Last 30 days"))


def tiles(counts: Mapping[str, int], filters: Filters) -> list[Tile]:
    """All, then each kind that was seen; each is a link that filters by it."""
    found = [
        Tile(
            "all",
            sum(counts.values()),
            filters.address(kind="", mode="", cluster=""),
            "Every incident that you can see and that fits the other filters",
            current=not (filters.kind or filters.mode or filters.cluster),
        )
    ]
    for kind in IncidentKind:
        number = counts.get(kind.value, 0)
        current = filters.kind == kind.value
        if number or current:
            address = filters.address(kind=kind.value, mode="", cluster="")
            found.append(Tile(KINDS[kind].name.lower(), number, address, KINDS[kind].line, current=current))
    return found
