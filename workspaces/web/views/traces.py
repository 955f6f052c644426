"""Pages of a trace, and the whole texts of which it shows excerpts."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_safe

from workspaces.models import ModelCall, ToolCall
from workspaces.queries.access import may_operate
from workspaces.queries.trace import TraceFilter

from ..access import signed_in, task_or_404
from ..errors import is_htmx
from ..task_parts import trace_context
from ..trace_rows import number_or_none


@signed_in
@require_safe
def index(request: HttpRequest, task_id: int) -> HttpResponse:
    """The next rows for htmx; without it, the page itself from there on."""
    task = task_or_404(request, task_id)
    if not is_htmx(request):
        return redirect(f"/tasks/{task_id}/?{request.GET.urlencode()}")
    wanted = TraceFilter.from_words(request.GET.get("group"), request.GET.get("branch"))
    before = number_or_none(request.GET.get("before"))
    context = trace_context(task, wanted, before, may_operate(request.user, task.workspace))
    return render(request, "trace/_page.html", context)


@signed_in
@require_safe
def call(request: HttpRequest, task_id: int, call_id: int) -> HttpResponse:
    """The whole result of a tool call."""
    task = task_or_404(request, task_id)
    found = get_object_or_404(ToolCall.objects.only("result", "name"), pk=call_id, task=task)
    return _whole(request, found.result)


@signed_in
@require_safe
def reply(request: HttpRequest, task_id: int, reply_id: int) -> HttpResponse:
    """The whole text of a model's reply."""
    task = task_or_404(request, task_id)
    found = get_object_or_404(ModelCall.objects.only("text"), pk=reply_id, task=task)
    return _whole(request, found.text)


def _whole(request: HttpRequest, text: str) -> HttpResponse:
    if is_htmx(request):
        return render(request, "trace/_whole.html", {"text": text})
    return HttpResponse(text, content_type="text/plain; charset=utf-8")
