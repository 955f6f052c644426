"""What the model was sent at a step, to the last character, and what differs between two steps."""

from __future__ import annotations

from typing import Any

from django.core.paginator import Paginator
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from workspaces.domain.context import SegmentKind
from workspaces.domain.context_diff import Part, difference
from workspaces.domain.diffs import unified_diff
from workspaces.models import Step, Task
from workspaces.queries.context_pages import (
    first_places,
    neighbours,
    origins_of,
    parts_of,
    step_named,
    steps_offered,
)
from workspaces.queries.contexts import NotRebuilt, Rebuilt, items_in, request_of
from workspaces.queries.receipts import receipt_of
from workspaces.queries.windows import NAMES, context_of

from ..access import signed_in, task_or_404
from ..errors import is_htmx
from ..trace_rows import diff_lines, number_or_none

PARTS_A_PAGE = 60
EXCERPT_CHARS = 700  # of a part on the page; the whole is a click away
CHANGES_SHOWN = 60


def _step_or_404(task: Task, number: int, branch: str | None) -> Step:
    step = step_named(task, number, number_or_none(branch))
    if step is None:
        raise Http404
    return step


@signed_in
@require_safe
def show(request: HttpRequest, task_id: int, number: int) -> HttpResponse:
    """The parts in the order in which they were sent; a long text is cut on the page, never in the hash."""
    task = task_or_404(request, task_id)
    step = _step_or_404(task, number, request.GET.get("branch"))
    before, after = neighbours(step)
    context: dict[str, Any] = {"task": task, "step": step, "use": context_of(step), "before": before, "after": after}
    try:
        rebuilt = request_of(step)
    except NotRebuilt as why:
        return render(request, "contexts/show.html", context | {"trouble": str(why)})
    kind = request.GET.get("kind", "")
    wanted = SegmentKind(kind) if kind in SegmentKind._value2member_map_ else None
    items = list(enumerate(items_in(rebuilt.built)))
    chosen = [(place, item) for place, item in items if wanted is None or item.kind is wanted]
    page = Paginator(chosen, PARTS_A_PAGE).get_page(request.GET.get("page"))
    origins = origins_of(item for _, item in page)
    context |= {
        "rebuilt": rebuilt,
        "page": page,
        "kind": wanted.value if wanted else "",
        "kinds": [(each.value, NAMES[each]) for each in SegmentKind if each in first_places([i for _, i in items])],
        "parts": [
            {
                "place": place,
                "item": item,
                "name": NAMES[item.kind],
                "text": item.text[:EXCERPT_CHARS],
                "cut": max(0, len(item.text) - EXCERPT_CHARS),
                "origin": origins.get(item.message_id or 0),
            }
            for place, item in page
        ],
    }
    return render(request, "contexts/show.html", context)


@signed_in
@require_safe
def part(request: HttpRequest, task_id: int, number: int, place: int) -> HttpResponse:
    """The whole text of one part."""
    task = task_or_404(request, task_id)
    step = _step_or_404(task, number, request.GET.get("branch"))
    try:
        items = items_in(request_of(step).built)
    except NotRebuilt as why:
        raise Http404 from why
    if place >= len(items):
        raise Http404
    if is_htmx(request):
        return render(request, "trace/_whole.html", {"text": items[place].text})
    return HttpResponse(items[place].text, content_type="text/plain; charset=utf-8")


@signed_in
@require_safe
def receipt(request: HttpRequest, task_id: int, seq: int) -> HttpResponse:
    """What a compaction took out of the context, from where to where, and what stayed."""
    task = task_or_404(request, task_id)
    found = receipt_of(task, seq)
    if found is None:
        raise Http404
    return render(request, "contexts/receipt.html", {"task": task, "receipt": found})


@signed_in
@require_safe
def compare(request: HttpRequest, task_id: int) -> HttpResponse:
    """What the model saw at one step and not at another. A step is named as 7@2: step 7 on branch 2."""
    task = task_or_404(request, task_id)
    offered = steps_offered(task)
    after = _named(task, request.GET.get("to")) or (step_named(task, *offered[0]) if offered else None)
    before = _named(task, request.GET.get("from"))
    if before is None and after is not None:
        earlier = neighbours(after)[0]
        before = step_named(task, earlier, after.branch.number) if earlier is not None else after
    context: dict[str, Any] = {"task": task, "offered": offered, "from": before, "to": after}
    if before is None or after is None:
        return render(request, "contexts/compare.html", context | {"trouble": "No step has asked a model yet."})
    try:
        old, new = request_of(before), request_of(after)
    except NotRebuilt as why:
        return render(request, "contexts/compare.html", context | {"trouble": str(why)})
    return render(request, "contexts/compare.html", context | _compared(old, new))


def _compared(old: Rebuilt, new: Rebuilt) -> dict[str, Any]:
    found = difference(parts_of(old.built), parts_of(new.built))
    return {
        "found": found,
        "same": not (found.added or found.removed or found.changed),
        "groups": [
            ("added", "Added", [_cut(part) for part in found.added[:CHANGES_SHOWN]], len(found.added)),
            ("removed", "No longer sent", [_cut(part) for part in found.removed[:CHANGES_SHOWN]], len(found.removed)),
        ],
        "changed": [
            {
                "change": change,
                "lines": diff_lines(unified_diff(change.before.text, change.after.text, change.after.label))[2:],
            }
            for change in found.changed[:CHANGES_SHOWN]
        ],
        "changed_count": len(found.changed),
        "exact": old.exact and new.exact,
    }


def _cut(part: Part) -> dict[str, Any]:
    return {
        "part": part,
        "name": NAMES[part.kind],
        "text": part.text[:EXCERPT_CHARS],
        "cut": max(0, len(part.text) - EXCERPT_CHARS),
    }


def _named(task: Task, name: str | None) -> Step | None:
    number, _, branch = (name or "").partition("@")
    wanted = number_or_none(number)
    return step_named(task, wanted, number_or_none(branch)) if wanted is not None else None
