"""What is watched of people's work: a task that stands still, a user who spends faster than usual. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from workspaces.domain.alert_watches import Trouble, Whom, duration
from workspaces.domain.alerts import AlertKind, Edge, Happening
from workspaces.domain.incidents import Severity
from workspaces.domain.states import TaskStatus, WaitingFor


@dataclass(frozen=True, slots=True)
class QuietTask:
    """A task that should go on by itself. Times in seconds since 1970."""

    id: int
    title: str
    status: TaskStatus
    waiting_for: str
    last_s: float  # its newest event, or when it took this status
    until_s: float | None  # while it waits
    whom: Whom


def stuck(tasks: Iterable[QuietTask], *, minutes: float, since_s: float, now_s: float) -> list[Trouble]:
    """A wait is judged by its end: for quota that is to come, for a person and for a time that is to come it is in
    order however long it lasts. Who is paused is never read."""
    found = []
    for task in tasks:
        waits = task.status is TaskStatus.WAITING
        if waits and task.waiting_for == WaitingFor.OPERATOR:
            continue
        begins_s = task.last_s if not waits else task.until_s if task.until_s is not None else now_s
        if now_s - max(begins_s, since_s) < minutes * 60:
            continue
        quiet = duration(now_s - begins_s)
        words = (
            f"Task {task.id} ({task.title}) waits for {task.waiting_for}, {quiet} longer than it should."
            if waits
            else f"Task {task.id} ({task.title}) is {task.status.value} and has had no event for {quiet}."
        )
        happening = Happening(
            AlertKind.TASK_STUCK,
            Edge.BEGAN,
            f"task:{task.id}",
            now_s,
            words=words,
            detail=task.waiting_for or task.status.value,
            cause=f"stuck:{task.waiting_for or task.status.value}",
            task=task.id,
            workspace=task.whom.workspace,
            user=task.whom.user,
            profile=task.whom.profile,
            data={"since_s": round(begins_s), "quiet_s": round(now_s - begins_s)},
        )
        found.append(Trouble(happening, frozenset({task.whom})))
    return found


@dataclass(frozen=True, slots=True)
class Spent:
    """USD in an hour of the clock, in one place."""

    hour_s: int  # its beginning, in seconds since 1970
    usd: float
    whom: Whom


@dataclass(frozen=True, slots=True)
class Spending:
    """USD. `hour`: the last sixty minutes. `past`: whole hours before in which something was spent."""

    user: int
    name: str
    hour: float
    past: Sequence[float]
    whom: frozenset[Whom]


def spending_of(user: int, name: str, spent: Iterable[Spent], *, now_s: float) -> Spending:
    """The last sixty minutes: this hour's, and of the hour before as large a part as is still within them."""
    hours: dict[int, float] = defaultdict(float)
    whom = set()
    for each in spent:
        hours[each.hour_s] += each.usd
        whom.add(each.whom)
    this = int(now_s // HOUR_S) * HOUR_S
    left = 1 - (now_s - this) / HOUR_S
    past = [usd for hour, usd in sorted(hours.items()) if hour < this - HOUR_S and usd > 0]
    return Spending(user, name, hours[this] + left * hours[this - HOUR_S], past, frozenset(whom))


HOUR_S = 3_600
FEWEST_PAST_HOURS = 5
USUAL_TOP = 0.95
CALMS_AT = 0.8  # of the threshold: it goes on until the last hour is below this


def usual_of(past: Sequence[float]) -> tuple[float, float] | None:
    """A usual hour and a high one, of hours with spending: their median, and what 95 of 100 stay below.

    Robust: up to half of the hours may have been anything without moving the first one. None: too few to tell.
    """
    if len(past) < FEWEST_PAST_HOURS:
        return None
    ordered = sorted(past)
    return median(ordered), ordered[min(len(ordered) - 1, int(len(ordered) * USUAL_TOP))]


def overspending(
    users: Iterable[Spending], *, factor: float, least_usd: float, active: Collection[str], now_s: float
) -> list[Trouble]:
    """Above `factor` usual hours, above a high hour, and above `least_usd`. Without enough past hours nothing is."""
    found = []
    for each in users:
        usual = usual_of(each.past)
        if usual is None:
            continue
        subject = f"spending:{each.user}"
        bar = max(factor * usual[0], usual[1], least_usd)
        if each.hour <= bar * (CALMS_AT if subject in active else 1):
            continue
        words = (
            f"{each.name} spent {each.hour:,.2f} USD in the last hour; an hour with costs usually takes"
            f" {usual[0]:,.2f} USD, a high one {usual[1]:,.2f} USD."
        )
        happening = Happening(
            AlertKind.SPEND_RATE,
            Edge.BEGAN,
            subject,
            now_s,
            Severity.ERROR if each.hour > 2 * bar else Severity.WARNING,
            words=words,
            cause=f"user:{each.user}",
            user=each.user,
            data={"hour_usd": round(each.hour, 6), "usual_usd": round(usual[0], 6), "high_usd": round(usual[1], 6)},
        )
        found.append(Trouble(happening, each.whom))
    return found
