"""Every detector over one window, ranked, one finding for one trouble. Pure, and fast enough for every step.

`find` is asked after each step and speaks only of a trouble that the newest turn belongs to: what has ended is no
finding. Storms are rates over time and are asked apart (storms.storms).
"""

from __future__ import annotations

from collections.abc import Callable

from workspaces.domain import circling, contradiction, loops, monologue, paralysis, progress
from workspaces.domain.incidents import Finding, IncidentKind
from workspaces.domain.seen import Seen, seen
from workspaces.domain.thresholds import Thresholds
from workspaces.domain.trail import Trail

Rule = Callable[[Seen, Thresholds], list[Finding]]
RULES: tuple[Rule, ...] = (
    *monologue.RULES,
    *loops.RULES,
    *circling.RULES,
    *contradiction.RULES,
    *paralysis.RULES,
    *progress.RULES,
)

# which of two findings about the same turns is kept: the one that says more exactly what is wrong comes first
_ORDER = (
    "same_question",
    "corrected_again",
    "back_and_forth",
    "cycle",
    "same_error",
    "same_call_same_result",
    "same_error_other_calls",
    "chanting",
    "same_text",
    "contradictory_results",
    "endless_poll",
    "only_waiting",
    "empty_again",
    "plan_only",
    "no_action",
    "circling",
    "nothing_works",
    "no_news",
    "exit_out_of_reach",
)
DEFAULTS = Thresholds()


def find(trail: Trail, thresholds: Thresholds = DEFAULTS) -> list[Finding]:
    """The troubles that the newest turn is a part of, the most exact first."""
    if not trail.turns:
        return []
    view = seen(trail)
    found = [finding for rule in RULES for finding in rule(view, thresholds)]
    found.sort(key=lambda finding: (_rank(finding), -finding.count, finding.first_seq))
    return _one_for_one_trouble(found)


def _rank(finding: Finding) -> int:
    name = "cycle" if finding.pattern.startswith("cycle_of_") else finding.pattern
    return _ORDER.index(name)


def _one_for_one_trouble(found: list[Finding]) -> list[Finding]:
    """A later finding goes when most of its evidence was told by an earlier one; so do vaguer ones beside a loop."""
    kept: list[Finding] = []
    told: set[int] = set()
    for finding in found:
        seqs = {place.seq for place in finding.evidence}
        if kept and (2 * len(seqs & told) >= len(seqs) or _vague(finding) or finding.kind in _kinds(kept)):
            continue
        kept.append(finding)
        told |= seqs
    return kept


def _vague(finding: Finding) -> bool:
    return finding.kind in (IncidentKind.NO_PROGRESS, IncidentKind.PARALYSIS)


def _kinds(findings: list[Finding]) -> set[IncidentKind]:
    return {finding.kind for finding in findings}
