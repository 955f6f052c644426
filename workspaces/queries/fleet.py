"""The fleet page's reads: which tasks, in which order, and how many there are in each state.

Two queries make a page: one finds the ids in order, one loads only those rows, so that the page costs the
same with 50 tasks and with 10,000.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from django.contrib.auth.models import AnonymousUser
from django.db.models import (
    Case,
    Count,
    Exists,
    F,
    IntegerField,
    Max,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
    Value,
    When,
)
from django.db.models.functions import Coalesce

from workspaces.domain.states import ClaimState, EscalationStatus, TaskStatus, WaitingFor
from workspaces.models import AgentProfile, Escalation, Event, Latch, QuotaClaim, Step, Task, User, Workspace

from .access import visible_tasks, visible_workspaces
from .database import database_now
from .incidents import open_of

PAGE_SIZE = 50
FAILED_NEEDS_A_PERSON_FOR = timedelta(hours=24)  # an older failure has been seen
STALLED_AFTER = timedelta(seconds=90)  # a lease is 30 s; the scheduler takes a task over within seconds

SORTS: dict[str, tuple[str, ...]] = {
    "attention": ("attention", "liveliness", "-last_event_at", "-pk"),
    "newest": ("-created_at", "-pk"),
    "activity": ("-last_event_at", "-pk"),
    "waiting": ("waiting_since", "-pk"),  # longest first; tasks that do not wait come last (nulls last)
    "cost": ("-cost_usd", "-pk"),
    "tokens": ("-all_tokens", "-pk"),
    "steps": ("-steps_taken", "-pk"),
}


@dataclass(frozen=True, slots=True)
class Filters:
    """What the page's address says. Unknown values are dropped, so that an old link still opens."""

    status: str = ""
    needs: bool = False
    workspace: int | None = None
    user: int | None = None
    profile: int | None = None
    pool: int | None = None  # waits in this quota pool's queue
    text: str = ""
    sort: str = "attention"
    page: int = 1

    @classmethod
    def from_query(cls, query: Any) -> Filters:
        status = query.get("status", "")
        sort = query.get("sort", "attention")
        return cls(
            status=status if status in {item.value for item in TaskStatus} else "",
            needs=query.get("needs") == "1",
            workspace=_number(query.get("workspace")),
            user=_number(query.get("user")),
            profile=_number(query.get("profile")),
            pool=_number(query.get("pool")),
            text=query.get("q", "").replace("\x00", "").strip()[:200],
            sort=sort if sort in SORTS else "attention",
            page=max(1, _number(query.get("page")) or 1),
        )

    def address(self, **changes: Any) -> str:
        """The query string of these filters with some changed; back to page 1 unless the page is given."""
        changed = replace(self, **({"page": 1} | changes))
        values = {
            "status": changed.status,
            "needs": "1" if changed.needs else "",
            "workspace": changed.workspace,
            "user": changed.user,
            "profile": changed.profile,
            "pool": changed.pool,
            "q": changed.text,
            "sort": "" if changed.sort == "attention" else changed.sort,
            "page": changed.page if changed.page > 1 else "",
        }
        return "?" + urlencode({name: value for name, value in values.items() if value})

    @property
    def narrows(self) -> bool:
        return replace(self, sort="attention", page=1) != Filters()


@dataclass(frozen=True, slots=True)
class Page:
    tasks: Sequence[Task]
    number: int
    pages: int
    total: int

    @property
    def first(self) -> int:
        return (self.number - 1) * PAGE_SIZE + 1

    @property
    def last(self) -> int:
        return min(self.number * PAGE_SIZE, self.total)


OUT_OF_MONEY = Q(status=TaskStatus.WAITING.value, waiting_for=WaitingFor.BUDGET.value)


def needs_a_person(now: datetime) -> Q:
    """An open question, a budget without room, a fresh failure, an overdue wait, or a task that no worker touches."""
    return Q(has_question=True) | OUT_OF_MONEY | _overdue(now) | _failed(now)


def _overdue(now: datetime) -> Q:
    return Q(status=TaskStatus.WAITING.value, waiting_until__lt=now) | Q(
        status__in=[TaskStatus.RUNNING.value, TaskStatus.PAUSING.value], lease_until__lt=now - STALLED_AFTER
    )


def _failed(now: datetime) -> Q:
    return Q(status=TaskStatus.FAILED.value, finished_at__gt=now - FAILED_NEEDS_A_PERSON_FOR)


def filtered(user: User | AnonymousUser, filters: Filters, now: datetime) -> QuerySet[Task]:
    """The visible tasks that match, unordered. Annotated with `has_question`."""
    tasks = visible_tasks(user).annotate(
        has_question=Exists(Escalation.objects.filter(task=OuterRef("pk"), status=EscalationStatus.OPEN.value))
    )
    if filters.status:
        tasks = tasks.filter(status=filters.status)
    if filters.needs:
        tasks = tasks.filter(needs_a_person(now))
    if filters.workspace:
        tasks = tasks.filter(workspace_id=filters.workspace)
    if filters.user:
        tasks = tasks.filter(created_by_id=filters.user)
    if filters.profile:
        tasks = tasks.filter(profile_version__profile_id=filters.profile)
    if filters.pool:
        waiting = QuotaClaim.objects.filter(task=OuterRef("pk"), pool=filters.pool, state=ClaimState.WAITING.value)
        tasks = tasks.filter(Exists(waiting), status=TaskStatus.WAITING.value, waiting_for=WaitingFor.QUOTA.value)
    if filters.text:
        match = Q(title__icontains=filters.text) | Q(instruction__icontains=filters.text)
        number = filters.text.removeprefix("#")
        if number.isascii() and number.isdigit() and len(number) < 18:
            match |= Q(pk=int(number))
        tasks = tasks.filter(match)
    return tasks


def page_of(user: User | AnonymousUser, filters: Filters) -> Page:
    now = database_now()
    found = filtered(user, filters, now)
    total = found.count()
    pages = max(1, -(-total // PAGE_SIZE))
    number = min(filters.page, pages)
    start = (number - 1) * PAGE_SIZE
    ids = list(_ordered(found, filters.sort, now).values_list("pk", flat=True)[start : start + PAGE_SIZE])
    loaded = {task.pk: task for task in rows(user, ids)}
    return Page([loaded[pk] for pk in ids if pk in loaded], number, pages, total)


def _ordered(tasks: QuerySet[Task], sort: str, now: datetime) -> QuerySet[Task]:
    if sort == "attention":
        tasks = tasks.annotate(
            attention=Case(
                When(has_question=True, then=Value(0)),
                When(OUT_OF_MONEY, then=Value(0)),
                When(_overdue(now), then=Value(1)),
                When(_failed(now), then=Value(2)),
                default=Value(3),
                output_field=IntegerField(),
            ),
            liveliness=Case(
                When(status__in=["running", "pausing", "waiting", "queued"], then=Value(0)),
                When(status="paused", then=Value(1)),
                default=Value(2),
                output_field=IntegerField(),
            ),
        )
    if sort == "tokens":
        tasks = tasks.annotate(all_tokens=F("prompt_tokens") + F("output_tokens"))
    return tasks.order_by(*SORTS[sort])


def rows(user: User | AnonymousUser, ids: Sequence[int]) -> list[Task]:
    """Those of the tasks that the user may see, with all that a row shows. Order is the caller's."""
    now = database_now()
    tasks = (
        visible_tasks(user)
        .filter(pk__in=ids)
        .select_related("workspace", "created_by", "profile_version__profile", "latch__placed_by")
        .annotate(
            open_questions=Count(
                "escalations", filter=Q(escalations__status=EscalationStatus.OPEN.value), distinct=True
            ),
            last_kind=Subquery(Event.objects.filter(task=OuterRef("pk"), seq=OuterRef("last_seq")).values("kind")[:1]),
            # a branch that a rollback has just begun stands where its first step will follow
            step_number=Coalesce(
                Subquery(Step.objects.filter(branch=OuterRef("branch")).order_by("-number").values("number")[:1]),
                F("branch__first_step") - 1,
            ),
            waits_in_pool=Subquery(
                QuotaClaim.objects.filter(
                    task=OuterRef("pk"), state__in=[ClaimState.WAITING.value, ClaimState.GRANTED.value]
                )
                .order_by("-queued_at")
                .values("pool")[:1]
            ),
        )
    )
    found: list[Task] = list(tasks)
    incidents = open_of(task.pk for task in found)
    for task in found:
        task.attention_reason = _why(task, now)  # type: ignore[attr-defined]
        task.open_incidents = incidents.get(task.pk)  # type: ignore[attr-defined]
    return found


def _why(task: Any, now: datetime) -> str:
    """Why a person should look at this task first, or an empty string."""
    if task.open_questions:
        return f"{task.open_questions} open question{'' if task.open_questions == 1 else 's'}"
    if task.waiting_for == WaitingFor.BUDGET.value:
        return "its budget has no room"
    if task.status == TaskStatus.WAITING.value and task.waiting_until and task.waiting_until < now:
        return "waits longer than it said it would"
    busy = task.status in (TaskStatus.RUNNING.value, TaskStatus.PAUSING.value)
    if busy and task.lease_until and task.lease_until < now - STALLED_AFTER:
        return "no worker has touched it since its lease ran out"
    if (
        task.status == TaskStatus.FAILED.value
        and task.finished_at
        and (task.finished_at > now - FAILED_NEEDS_A_PERSON_FOR)
    ):
        return "failed"
    return ""


def counts(user: User | AnonymousUser, filters: Filters) -> dict[str, int]:
    """Tasks by state and how many need a person, under all filters but the state itself."""
    now = database_now()
    found = filtered(user, replace(filters, status="", needs=False), now)
    sums = {status.value: Count("pk", filter=Q(status=status.value)) for status in TaskStatus}
    return found.aggregate(needs=Count("pk", filter=needs_a_person(now)), all=Count("pk"), **sums)


def newest_task_id(user: User | AnonymousUser) -> int:
    return visible_tasks(user).aggregate(newest=Max("pk"))["newest"] or 0


def new_since(user: User | AnonymousUser, filters: Filters, task_id: int) -> int:
    """How many tasks that match were created after that one."""
    return filtered(user, filters, database_now()).filter(pk__gt=task_id).count()


@dataclass(frozen=True, slots=True)
class Choices:
    workspaces: Sequence[Workspace]
    users: Sequence[User]
    profiles: Sequence[AgentProfile]


def choices(user: User | AnonymousUser) -> Choices:
    """What the filters can be set to: only what is on some visible task or workspace."""
    tasks = visible_tasks(user)
    return Choices(
        workspaces=list(visible_workspaces(user).order_by("name")),
        users=list(User.objects.filter(pk__in=tasks.values("created_by")).order_by("username")),
        profiles=list(AgentProfile.objects.filter(pk__in=tasks.values("profile_version__profile")).order_by("name")),
    )


def standing_holds(user: User | AnonymousUser) -> list[Latch]:
    """Holds on more than one task that the user can see, other than the fleet's (the frame shows that one)."""
    mine = visible_workspaces(user)
    wanted = Q(workspace__in=mine)
    if user.is_authenticated:
        wanted |= Q(user=user)
    if getattr(user, "is_staff", False):
        wanted |= Q(user__isnull=False)
    return list(
        Latch.objects.filter(wanted, released_at=None, task=None)
        .select_related("workspace", "user", "placed_by")
        .order_by("-placed_at")
    )


def _number(text: str | None) -> int | None:
    if text and text.isascii() and text.isdigit() and len(text) < 18:
        return int(text)
    return None
