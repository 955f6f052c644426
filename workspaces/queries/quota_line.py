"""A pool's queue as it stands: who comes when, why each waits, and how long that may take. Writes nothing.

Everyone is counted; who is named is a matter of who asks: another user's tasks are a number, never a title.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from workspaces.domain.quotas import Claim, Share, Use
from workspaces.domain.states import ClaimState, TaskStatus, WaitingFor
from workspaces.domain.waits import in_order
from workspaces.models import QuotaClaim, QuotaPool, QuotaShare, Task, User

from .access import visible_tasks
from .database import database_now
from .quota_state import Situation

COUNTED = 5_000  # claims that are put in order; a longer queue says so
SHOWN = 50


@dataclass(frozen=True, slots=True)
class Place:
    """`ahead`: what goes before it, and itself; `own_before`: tasks of the same user that go before it."""

    number: int  # 1 is next
    claim: Claim
    ahead: Use
    own_before: int

    @property
    def queued_at(self) -> datetime:
        return datetime.fromtimestamp(self.claim.queued_at, UTC)

    @property
    def not_before(self) -> datetime | None:
        return None if self.claim.not_before is None else datetime.fromtimestamp(self.claim.not_before, UTC)


@dataclass(frozen=True, slots=True)
class QueueRow:
    """`why`: of the first, and of those that wait for a reason of their own. `skipped`: places of others before it."""

    place: Place
    task: Task
    expected_s: float
    why: str
    skipped: int


@dataclass(frozen=True, slots=True)
class Queue:
    total: int
    rows: list[QueueRow]
    after: int  # places behind the last row
    counted: bool  # False: longer than what was put in order


def places_of(situation: Situation) -> list[Place]:
    """Everyone who waits, in order. Two queries, of at most COUNTED narrow rows each."""
    waiting = (
        QuotaClaim.objects.filter(pool=situation.pool, state=ClaimState.WAITING.value, queued_at__isnull=False)
        .order_by("tag", "pk")
        .values_list(
            "user",
            "task",
            "input_tokens",
            "output_tokens",
            "queued_at",
            "interactive",
            "retry",
            "not_before",
            "task_finish",
            "tag",
        )[:COUNTED]
    )
    theirs: dict[int, list[Claim]] = defaultdict(list)
    for user, task, read, written, queued_at, interactive, retry, not_before, finish, tag in waiting:
        not_before_s = None if not_before is None else not_before.timestamp()
        queued_s = queued_at.timestamp() if queued_at else 0.0
        claim = Claim(user, task, read, written, queued_s, interactive, retry, not_before_s, finish, tag)
        theirs[user].append(claim)
    if not theirs:
        return []
    shares = QuotaShare.objects.filter(pool=situation.pool, user__in=theirs)
    known = {user: Share(weight, finish) for user, weight, finish in shares.values_list("user", "weight", "finish")}
    lines = [(known.get(user) or Share(), claims) for user, claims in theirs.items()]
    places: list[Place] = []
    read = written = 0
    before: dict[int, int] = defaultdict(int)
    for number, claim in enumerate(in_order(lines, situation.limits), start=1):
        read += claim.input_tokens
        written += claim.output_tokens
        places.append(Place(number, claim, Use(number, read, written), before[claim.user]))
        before[claim.user] += 1
    return places


def queue_of(situation: Situation, user: User, total: int) -> Queue:
    """The first SHOWN places that the user may see named."""
    places = places_of(situation) if total else []
    named = places if user.is_staff else seen_by(user, places)
    named = named[:SHOWN]
    related = ("created_by", "workspace")
    tasks = Task.objects.select_related(*related).in_bulk([each.claim.task for each in named]) if named else {}
    rows: list[QueueRow] = []
    last = 0
    for place in named:
        if place.claim.task not in tasks:
            continue
        skipped, last = place.number - last - 1, place.number
        own_reason = place.number == 1 or situation.later(place.claim) or place.claim.retry
        why = situation.why_of(place.claim, place.number) if own_reason else ""
        rows.append(QueueRow(place, tasks[place.claim.task], situation.expected_s(place.ahead), why, skipped))
    return Queue(total, rows, max(0, total - last), counted=total <= COUNTED)


def seen_by(user: User, places: Sequence[Place]) -> list[Place]:
    """Those of tasks that the user may see."""
    ids = [place.claim.task for place in places]
    seen = set(visible_tasks(user).filter(pk__in=ids).values_list("pk", flat=True)) if ids else set()
    return [place for place in places if place.claim.task in seen]


@dataclass(frozen=True, slots=True)
class TaskWait:
    """Where a task stands in a pool's queue. `place` None: its turn has come, or the queue is too long to count."""

    pool: QuotaPool
    situation: Situation
    place: Place | None
    waiting: int
    expected_s: float | None
    why: str
    interactive: bool

    @property
    def others_before(self) -> int:
        return self.place.number - 1 - self.place.own_before if self.place else 0


def wait_of(task: Task) -> TaskWait | None:
    """Four queries for a task that waits for quota, none for any other."""
    if task.status != TaskStatus.WAITING.value or task.waiting_for != WaitingFor.QUOTA.value:
        return None
    claim = (
        QuotaClaim.objects.filter(task=task, state__in=[ClaimState.WAITING.value, ClaimState.GRANTED.value])
        .select_related("pool")
        .order_by("-queued_at")
        .first()
    )
    if claim is None:
        return None
    situation = Situation.of(claim.pool, database_now())
    places = places_of(situation)
    place = next((each for each in places if each.claim.task == task.pk), None)
    return TaskWait(
        claim.pool,
        situation,
        place,
        len(places),
        situation.expected_s(place.ahead) if place else None,
        situation.why_of(place.claim, place.number) if place else "",
        claim.interactive,
    )
