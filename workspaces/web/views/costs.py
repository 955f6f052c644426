"""What was spent, on whom, on what: one page form for the site, a user, a workspace, a task, a profile and a model.

Site staff see all. Others see what they spent themselves, workspaces that they own, and tasks that they can see.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.http import require_safe

from workspaces.domain.cost_periods import PERIODS, Period, read_period
from workspaces.domain.roles import Role
from workspaces.models import AgentProfile, Membership, User
from workspaces.queries import access
from workspaces.queries.cost_steps import calls_of, step_named, steps_of
from workspaces.queries.cost_sums import Scope
from workspaces.queries.costs import report_of, whole_life
from workspaces.queries.database import database_now
from workspaces.web.access import require_staff, signed_in, task_or_404, user_of, workspace_or_404
from workspaces.web.cost_charts import parts_figure, trend_figure
from workspaces.web.cost_exports import FORMATS, about_page, exported
from workspaces.web.cost_step_tables import calls_table, steps_table
from workspaces.web.cost_tables import Links, Table, tables_of

CHARTED = ("users", "workspaces", "models", "profiles")


@require_safe
@signed_in
def site(request: HttpRequest) -> HttpResponse:
    require_staff(request)
    return _page(request, Scope("site"), "Costs of the site", "costs-site")


@require_safe
@signed_in
def me(request: HttpRequest) -> HttpResponse:
    user = user_of(request)
    return _page(request, Scope("user", user.pk), "What you spent", f"costs-user-{user.pk}", mine=True)


@require_safe
@signed_in
def user(request: HttpRequest, user_id: int) -> HttpResponse:
    reader = user_of(request)
    if not reader.is_staff and reader.pk != user_id:
        raise Http404
    who = get_object_or_404(User, pk=user_id)
    name = who.get_full_name() or who.get_username()
    return _page(request, Scope("user", who.pk), f"What {name} spent", f"costs-user-{who.pk}", mine=reader == who)


@require_safe
@signed_in
def workspace(request: HttpRequest, workspace_id: int) -> HttpResponse:
    """By user, for its owners. Others who work there see their own part on their own page."""
    place = workspace_or_404(request, workspace_id)
    if access.role_in(user_of(request), place) is not Role.OWNER:
        raise Http404
    about = {"address": f"/workspaces/{place.pk}/", "name": place.name, "what": "workspace"}
    return _page(
        request,
        Scope("workspace", place.pk),
        f"Costs of workspace {place.name}",
        f"costs-workspace-{place.pk}",
        about=about,
    )


@require_safe
@signed_in
def task(request: HttpRequest, task_id: int) -> HttpResponse:
    """From its first day on, unless a period is asked for."""
    found = task_or_404(request, task_id)
    now = database_now()
    asked = any(request.GET.get(name) for name in ("period", "from", "to"))
    period = read_period(request.GET, now) if asked else whole_life(found, now)
    page = request.GET.get("page", "")
    steps = steps_of(found, period, int(page) if page.isdecimal() and len(page) < 6 else 1)
    return _page(
        request,
        Scope("task", found.pk),
        f"Costs of task {found.pk}: {found.title}",
        f"costs-task-{found.pk}",
        period=period,
        more=[steps_table(found.pk, steps)],
        page={"page": str(steps.page)} if steps.page > 1 else {},
        about={"address": f"/tasks/{found.pk}/", "name": f"task {found.pk}", "what": "task"},
        task=found,
        steps=steps,
    )


@require_safe
@signed_in
def step(request: HttpRequest, task_id: int, number: int) -> HttpResponse:
    """Each model call of a step with quantity, price and where the price is from."""
    found = task_or_404(request, task_id)
    branch = request.GET.get("branch", "")
    chosen = step_named(found, number, int(branch) if branch.isdecimal() and len(branch) < 6 else None)
    if number > 10**9 or chosen is None:
        raise Http404
    calls = calls_of(chosen)
    title = f"Costs of step {chosen.number} of task {found.pk}"
    shown = calls_table(calls)
    form = request.GET.get("format", "")
    if form in FORMATS:
        name = f"costs-task-{found.pk}-step-{chosen.number}-branch-{chosen.branch.number}"
        return exported(form, [shown], name=name, about={"page": title, "branch": chosen.branch.number})
    context = {
        "task": found,
        "step": chosen,
        "title": title,
        "table": shown,
        "calls": calls,
        "usd": sum((call.usd for call in calls), start=0),
        "unpriced": sum(call.unpriced for call in calls),
    }
    return render(request, "costs/step.html", context)


@require_safe
@signed_in
def profile(request: HttpRequest, profile_id: int) -> HttpResponse:
    reader = user_of(request)
    if reader.is_staff:
        found = get_object_or_404(AgentProfile, pk=profile_id)
    else:
        found = get_object_or_404(access.usable_profiles(reader), pk=profile_id)
    return _page(
        request,
        Scope("profile", found.pk, own=None if reader.is_staff else reader.pk),
        f"Costs of profile {found.name}" if reader.is_staff else f"What you spent with profile {found.name}",
        f"costs-profile-{found.pk}",
        mine=not reader.is_staff,
        about={"address": f"/profiles/{found.pk}/", "name": found.name, "what": "profile"},
    )


@require_safe
@signed_in
def model(request: HttpRequest) -> HttpResponse:
    """`name` in the address: names of models hold slashes and more."""
    reader = user_of(request)
    name = request.GET.get("name", "").replace("\x00", "")[:200]
    if not name:
        raise Http404
    return _page(
        request,
        Scope("model", name, own=None if reader.is_staff else reader.pk),
        f"Costs of model {name}" if reader.is_staff else f"What you spent with model {name}",
        "costs-model",
        mine=not reader.is_staff,
        keep={"name": name},
    )


def _page(
    request: HttpRequest,
    scope: Scope,
    title: str,
    name: str,
    *,
    mine: bool = False,
    period: Period | None = None,
    more: Sequence[Table] = (),
    keep: dict[str, str] | None = None,
    page: dict[str, str] | None = None,
    **context: Any,
) -> HttpResponse:
    """`more`: tables of this page only; `keep`: what else its address must say; `page`: what its exports' must."""
    reader = user_of(request)
    period = period or read_period(request.GET, database_now())
    form = request.GET.get("format", "")
    if period.problem and form in FORMATS:
        return HttpResponse(period.problem, status=400, content_type="text/plain; charset=utf-8")
    report = report_of(scope, period)
    tables = [*tables_of(report, _links(reader, mine)), *more]
    if form in FORMATS:
        file_name = f"{name}-{period.first}-{period.last}"
        return exported(form, tables, name=file_name, about=about_page(title, period))
    named = {each.name: each for each in tables}
    charted = next((named[each] for each in CHARTED if each in named), None)
    shown = {
        "title": title,
        "report": report,
        "period": period,
        "periods": [(key, words) for key, words in PERIODS.items() if key != "custom"],
        "tables": named,
        "rest": [each for each in tables if each.name not in ("summary", "trend", "hot_spots", "steps")],
        "figures": {"trend": trend_figure(named["trend"])} | ({"parts": parts_figure(charted)} if charted else {}),
        "charted": charted,
        "keep": keep or {},
        "csv": period.address(format="csv", **(keep or {}), **(page or {})),
        "json": period.address(format="json", **(keep or {}), **(page or {})),
    }
    return render(request, "costs/show.html", shown | context)


def _links(reader: User, mine: bool) -> Links:
    owned = Membership.objects.filter(user=reader, role=Role.OWNER.value).values_list("workspace", flat=True)
    return Links(reader.is_staff, mine, frozenset(owned) if not reader.is_staff else frozenset())
