"""The structural audit: for each failure, the artifact that would show it and the control that would stop it. Pure.

Facts that were counted in the database go in, items come out, each with whether it is there, the reason, and where the
rows behind it are. Nothing is assumed to work because the code exists: an artifact is present when rows of it exist,
or would exist for anything that happened; a control when this installation has it switched on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from workspaces.domain import audit_items as items
from workspaces.domain.audit_facts import Facts, Item, Presence, Proof, Role
from workspaces.domain.audit_quota import quota
from workspaces.domain.audit_words import incident_count, incident_proof
from workspaces.domain.incident_words import CLUSTERS, MODES
from workspaces.domain.incidents import Cluster, FailureMode, IncidentKind, clusters_of, kinds_of

P, M, C, K = Presence, FailureMode, Cluster, IncidentKind


@dataclass(frozen=True, slots=True)
class Row:
    """One failure mode or one cluster. `incidents`: how many were found here, of the kinds that belong to it."""

    value: str
    name: str
    line: str
    artifacts: Sequence[Item]
    controls: Sequence[Item]
    incidents: int
    proof: Proof

    @property
    def presence(self) -> Presence:
        """Missing: nothing shows it, or nothing stops it. Present: all of both is there."""
        every = (*self.artifacts, *self.controls)
        if _all_missing(self.artifacts) or _all_missing(self.controls):
            return Presence.MISSING
        return Presence.PRESENT if all(item.presence is Presence.PRESENT for item in every) else Presence.PARTIAL


@dataclass(frozen=True, slots=True)
class Audit:
    modes: Sequence[Row]
    clusters: Sequence[Row]

    @property
    def items(self) -> list[Item]:
        return [item for row in self.modes for item in (*row.artifacts, *row.controls)]

    def count(self, presence: Presence) -> int:
        return sum(item.presence is presence for item in self.items)


def audit(facts: Facts) -> Audit:
    by_mode = {
        M.LOST_HISTORY: items.lost_history(facts),
        M.QUOTA: quota(facts),
        M.LOOP: items.loop(facts),
        M.PARALYSIS: items.paralysis(facts),
        M.TRUNCATION: items.truncation(facts),
        M.BAD_CALL: items.bad_call(facts),
        M.COMPOUNDING: items.compounding(facts),
    }
    modes = [
        Row(
            mode.value,
            MODES[mode].name,
            MODES[mode].line,
            *_parted(of_mode),
            incident_count(facts, kinds_of(mode)),
            incident_proof(facts, "mode", mode.value),
        )
        for mode, of_mode in by_mode.items()
    ]
    every = [item for of_mode in by_mode.values() for item in of_mode] + items.clusters_only(facts)
    clusters = [
        Row(
            cluster.value,
            CLUSTERS[cluster].name,
            CLUSTERS[cluster].line,
            *_parted(item for item in every if cluster in item.clusters),
            incident_count(facts, [kind for kind in K if cluster in clusters_of(kind)]),
            incident_proof(facts, "cluster", cluster.value),
        )
        for cluster in C
    ]
    return Audit(modes, clusters)


def _parted(mixed: Iterable[Item]) -> tuple[list[Item], list[Item]]:
    found = list(mixed)
    return [item for item in found if item.role is Role.ARTIFACT], [item for item in found if item.role is Role.CONTROL]


def _all_missing(some: Sequence[Item]) -> bool:
    return all(item.presence is Presence.MISSING for item in some)
