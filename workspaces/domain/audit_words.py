"""How the audit's items are put: counts in words, where the rows behind them are, a detector's state. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from workspaces.domain.audit_facts import Facts, Item, Presence, Proof, Role
from workspaces.domain.incidents import Cluster, IncidentKind

P, C = Presence, Cluster


def detector(facts: Facts, name: str, kinds: Iterable[IncidentKind], *clusters: Cluster) -> Item:
    """On in every version in use, in some, only watching, or not there at all."""
    kinds = tuple(kinds)
    seen = incident_count(facts, kinds)
    proofs = tuple(
        Proof(f"{facts.incidents.get(kind.value, 0)} {kind.value.replace('_', ' ')}", "incidents",
              (("kind", kind.value), *task_of(facts)))
        for kind in kinds
    )  # fmt: skip
    known = {detector: (acts, watches) for detector, acts, watches in facts.tools.detectors}
    ours = [known.get(kind.value, (0, 0)) for kind in kinds]
    versions = facts.tools.versions
    acts, watches = min((each[0] for each in ours), default=0), min((sum(each) for each in ours), default=0)
    if not versions:
        return control(name, P.PARTIAL, "no profile is in use yet", proofs, *clusters)
    off = f"off in {versions - watches}"
    of_all = n(versions, "profile version")
    if acts == versions:
        return control(name, P.PRESENT, f"on in {of_all}; {n(seen, 'incident')}", proofs, *clusters)
    if not watches:
        return control(name, P.MISSING, f"{off} of {of_all}", proofs, *clusters)
    told = f"on in {acts} of {of_all}, only watching in {watches - acts}, {off}"
    return control(name, P.PARTIAL, told, proofs, *clusters)


def ladder(facts: Facts) -> Item:
    versions, acting = facts.tools.versions, facts.tools.acting
    told = f"{n(facts.nudges, 'incident')} told to the agent, after {facts.nudges_helped} of which it went another way"
    if acting < versions:
        told += f"; {versions - acting} of {n(versions, 'profile version')} only write down what is found"
    presence = P.PRESENT if acting == versions else P.PARTIAL if acting else P.MISSING
    proofs = (incident_proof(facts, "mode", "loop"),)
    return control("Tell the agent, then ask a person, then stop", presence, told, proofs, C.PLANNING, C.LONG_HORIZON)


def artifact(name: str, presence: Presence, why: str, proofs: tuple[Proof, ...], *clusters: Cluster) -> Item:
    return Item(Role.ARTIFACT, name, presence, why, proofs, frozenset(clusters))


def control(name: str, presence: Presence, why: str, proofs: tuple[Proof, ...], *clusters: Cluster) -> Item:
    return Item(Role.CONTROL, name, presence, why, proofs, frozenset(clusters))


def incident_count(facts: Facts, kinds: Iterable[IncidentKind]) -> int:
    return sum(facts.incidents.get(kind.value, 0) for kind in kinds)


def task_of(facts: Facts) -> tuple[tuple[str, Any], ...]:
    return (("task", facts.task),) if facts.task else ()


def incident_proof(facts: Facts, name: str, value: str) -> Proof:
    return Proof("Incidents", "incidents", ((name, value), *task_of(facts)))


def trace(facts: Facts, group: str = "", words: str = "Trace") -> tuple[Proof, ...]:
    if facts.task is None:
        return (Proof("Tasks", "fleet"),)
    return (Proof(words, "task", (("task", facts.task), *((("group", group),) if group else ()))),)


def page(facts: Facts, page: str, words: str) -> tuple[Proof, ...]:
    """A part of the task's page; for the site, the list in which each task is found."""
    if page == "questions":
        return (Proof(words, "questions", task_of(facts)),)
    if facts.task is None:
        return (Proof("Tasks", "fleet"),)
    return (Proof(words, page, (("task", facts.task),)),)


def open_to(facts: Facts) -> str:
    return f"in {n(facts.open_networks, 'workspace')} the network is open: effects can be made"


def n(count: int, noun: str, plural: str = "") -> str:
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def times(count: int) -> str:
    return "not needed here so far" if not count else f"needed {'once' if count == 1 else f'{count:,} times'} here"


def listed(names: Sequence[str], limit: int = 4) -> str:
    shown = ", ".join(names[:limit])
    return f"{shown} and {len(names) - limit} more" if len(names) > limit else shown
