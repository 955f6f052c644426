"""The fleet page and what can be done to many tasks at once."""

from __future__ import annotations

from dataclasses import dataclass

from django.db import DatabaseError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from workspaces.actions.errors import Refused
from workspaces.actions.tasks import cancel_task, pause_task, resume_task
from workspaces.domain.roles import Role, at_least
from workspaces.domain.states import PauseMode
from workspaces.models import Latch, Task, User
from workspaces.queries import fleet
from workspaces.queries.access import role_in, visible_tasks
from workspaces.queries.budget_pages import alerts
from workspaces.queries.database import is_away
from workspaces.web.access import NEEDS, is_htmx, signed_in, user_of
from workspaces.web.errors import steering
from workspaces.web.fleet_counts import tiles
from workspaces.web.quota_parts import quota_waits
from workspaces.web.views.latches import reason_of

MAX_AT_ONCE = 500
SORT_WORDS = (
    ("attention", "Needs a person first"),
    ("newest", "Newest first"),
    ("activity", "Last event first"),
    ("waiting", "Longest wait first"),
    ("cost", "Most expensive first"),
    ("tokens", "Most tokens first"),
    ("steps", "Most steps first"),
)
UNSURE = "the database stopped answering: look whether it was done, then try again"
UNTRIED = "not tried: the database does not answer"
HEADINGS = {"pause": "Pause", "resume": "Resume", "cancel": "Cancel"}


@require_safe
@signed_in
def show(request: HttpRequest) -> HttpResponse:
    user = user_of(request)
    filters = fleet.Filters.from_query(request.GET)
    page = fleet.page_of(user, filters)
    context = {
        "filters": filters,
        "page": page,
        "previous_address": filters.address(page=page.number - 1) if page.number > 1 else "",
        "next_address": filters.address(page=page.number + 1) if page.number < page.pages else "",
        "choices": fleet.choices(user),
    }
    if is_htmx(request):
        return render(request, "fleet/_list.html", context)
    context |= {
        "counts": tiles(fleet.counts(user, filters), filters),
        "quota_waits": quota_waits(user, filters),
        "alerts": alerts(user),
        "holds": [Hold.of(latch, user) for latch in fleet.standing_holds(user)],
        "sorts": SORT_WORDS,
    }
    return render(request, "fleet/show.html", context)


@dataclass(frozen=True, slots=True)
class Hold:
    """A standing hold as `latches/_hold.html` shows it."""

    latch: Latch
    held: str
    may_release: bool
    dialog_id: str

    @classmethod
    def of(cls, latch: Latch, user: User) -> Hold:
        if latch.workspace is not None:
            held = f"Workspace {latch.workspace.name}"
            may = at_least(role_in(user, latch.workspace), Role.OWNER)
        else:
            held = f"Everything of {latch.user}"
            may = user.is_staff
        return cls(latch, held, may, f"release-{latch.pk}")


@dataclass(frozen=True, slots=True)
class Result:
    """What came of one task of a bulk action."""

    task_id: int
    title: str
    done: bool
    words: str


@steering
def act(request: HttpRequest) -> HttpResponse:
    """Each task by itself: one that refuses does not stop the others."""
    action = request.POST.get("action", "")
    if action not in HEADINGS:
        raise Refused("Choose pause, resume or cancel.")
    ids = list(dict.fromkeys(text for text in request.POST.getlist("task") if text.isascii() and text.isdigit()))
    if len(ids) > MAX_AT_ONCE:
        raise Refused(f"At most {MAX_AT_ONCE} tasks at once; {len(ids)} were chosen.")
    reason = request.POST.get("reason", "").strip()[:500] if action == "resume" else reason_of(request)
    mode = PauseMode.NOW if request.POST.get("mode") == "now" else PauseMode.BOUNDARY
    user = user_of(request)
    tasks = visible_tasks(user).filter(pk__in=[text for text in ids if len(text) < 18]).select_related("workspace")
    results = _act_on_each(list(tasks.order_by("pk")), action, mode, reason, user)
    done = sum(1 for result in results if result.done)
    heading = f"{HEADINGS[action]}: {done} of {len(results)} done"
    return render(request, "fleet/_results.html", {"heading": heading, "results": results})


def _act_on_each(tasks: list[Task], action: str, mode: PauseMode, reason: str, user: User) -> list[Result]:
    """A database that goes away in the middle: what was done until then is told, the rest is not tried."""
    results: list[Result] = []
    for task in tasks:
        try:
            results.append(_act_on(task, action, mode, reason, user))
        except DatabaseError as error:
            if not is_away(error):
                raise
            results.append(Result(task.pk, task.title, False, UNSURE))
            return results + [Result(rest.pk, rest.title, False, UNTRIED) for rest in tasks[len(results) :]]
    return results


def _act_on(task: Task, action: str, mode: PauseMode, reason: str, user: User) -> Result:
    if not at_least(role_in(user, task.workspace), Role.OPERATOR):
        return Result(task.pk, task.title, False, NEEDS[Role.OPERATOR])
    try:
        if action == "pause":
            after = pause_task(task.pk, mode=mode, reason=reason, actor=user)
        elif action == "resume":
            after = resume_task(task.pk, reason=reason, actor=user)
        else:
            after = cancel_task(task.pk, reason=reason, actor=user)
    except Refused as refusal:
        return Result(task.pk, task.title, False, str(refusal))
    told = "is being cancelled: its worker stops what runs" if after.cancelling else f"is {after.status}"
    return Result(task.pk, task.title, True, told)
