"""Incidents by structural cause, over the versions of each profile. Counts by SQL, verdicts by domain/recurrence.py."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.contrib.auth.models import AnonymousUser
from django.db.models import Count, Sum

from workspaces.domain.editions import PARTS, Change, changes, parts_of
from workspaces.domain.recurrence import Verdict, VersionRate, judge
from workspaces.models import Incident, ProfileVersion, User

from .access import visible_tasks

GROUPS_SHOWN = 40


@dataclass(frozen=True, slots=True)
class Group:
    """One cause in one profile. `incidents`: in the period; `hit`: tasks that met it."""

    cause: str
    kind: str
    profile_id: int
    profile: str
    incidents: int
    hit: int
    rates: Sequence[VersionRate]
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Edition:
    """A version with what it has otherwise than the one before."""

    version: ProfileVersion
    rate: VersionRate
    changes: Sequence[Change]


@dataclass(frozen=True, slots=True)
class Recurrence:
    groups: Sequence[Group]
    more: int  # groups that are not shown


def recurrence_of(
    user: User | AnonymousUser, *, profile: int | None = None, cause: str = "", since: datetime | None = None
) -> Recurrence:
    """The groups that met most tasks first. Tasks count from their first step on, by when they were made."""
    tasks = visible_tasks(user).filter(steps_taken__gt=0)
    if since:
        tasks = tasks.filter(created_at__gte=since)
    if profile:
        tasks = tasks.filter(profile_version__profile_id=profile)
    found = Incident.objects.filter(task__in=tasks)
    if cause:
        found = found.filter(cause=cause)
    seen: dict[tuple[int, str], list[Mapping[str, Any]]] = defaultdict(list)
    for row in (
        found.order_by()
        .values("cause", "kind", "task__profile_version__profile_id", "task__profile_version__number")
        .annotate(hit=Count("task", distinct=True), incidents=Count("pk"))
    ):
        seen[row["task__profile_version__profile_id"], row["cause"]].append(row)
    ranked = sorted(seen.items(), key=lambda item: (-sum(row["hit"] for row in item[1]), item[0]))
    shown = ranked[:GROUPS_SHOWN]
    profiles = {key[0] for key, _ in shown}
    ran = _ran(tasks, profiles)
    editions = _editions(profiles)
    groups = [_group(key, rows, ran[key[0]], editions[key[0]]) for key, rows in shown]
    return Recurrence(groups, len(ranked) - len(shown))


def editions_of(group: Group) -> list[Edition]:
    """The versions of the group's profile in order, with their changes in full."""
    versions = list(ProfileVersion.objects.filter(profile=group.profile_id).order_by("number"))
    rates = {rate.number: rate for rate in group.rates}
    found = []
    before: ProfileVersion | None = None
    for version in versions:
        differs = changes(_columns(before), _columns(version)) if before else []
        found.append(Edition(version, rates[version.number], differs))
        before = version
    return found


def _ran(tasks: Any, profiles: set[int]) -> dict[int, dict[int, tuple[int, int]]]:
    """profile → version number → (tasks, steps)"""
    found: dict[int, dict[int, tuple[int, int]]] = defaultdict(dict)
    rows = (
        tasks.filter(profile_version__profile__in=profiles)
        .order_by()
        .values_list("profile_version__profile_id", "profile_version__number")
        .annotate(Count("pk"), Sum("steps_taken"))
    )
    for profile, number, count, steps in rows:
        found[profile][number] = (count, steps or 0)
    return found


def _editions(profiles: set[int]) -> dict[int, list[tuple[ProfileVersion, tuple[str, ...]]]]:
    """profile → its versions in order, each with the parts that it has otherwise than the one before"""
    found: dict[int, list[tuple[ProfileVersion, tuple[str, ...]]]] = defaultdict(list)
    versions = ProfileVersion.objects.filter(profile__in=profiles).select_related("profile")
    for version in versions.order_by("profile", "number"):
        known = found[version.profile_id]
        differs = parts_of(changes(_columns(known[-1][0]), _columns(version))) if known else ()
        known.append((version, differs))
    return found


def _columns(version: ProfileVersion) -> Mapping[str, Any]:
    """What a version says, without who made it when, and without any secret."""
    return {column: getattr(version, column) for column in PARTS}


def _group(
    key: tuple[int, str],
    rows: Sequence[Mapping[str, Any]],
    ran: Mapping[int, tuple[int, int]],
    editions: Sequence[tuple[ProfileVersion, tuple[str, ...]]],
) -> Group:
    hits: dict[int, tuple[int, int]] = {}
    for row in rows:
        number = row["task__profile_version__number"]
        hit, incidents = hits.get(number, (0, 0))
        hits[number] = max(hit, row["hit"]), incidents + row["incidents"]
    rates = [
        VersionRate(
            version.number, *_counts(ran.get(version.number, (0, 0)), hits.get(version.number, (0, 0))), differs
        )
        for version, differs in editions
    ]
    return Group(
        cause=key[1],
        kind=rows[0]["kind"],
        profile_id=key[0],
        profile=editions[0][0].profile.name,
        incidents=sum(rate.incidents for rate in rates),
        hit=sum(rate.hit for rate in rates),
        rates=rates,
        verdict=judge(rates),
    )


def _counts(ran: tuple[int, int], hits: tuple[int, int]) -> tuple[int, int, int, int]:
    """tasks, hit, incidents, steps: in the order of VersionRate"""
    (tasks, steps), (hit, incidents) = ran, hits
    return tasks, min(hit, tasks), incidents, steps
