"""A workspace's terminal: a command box and what was run. For operators and owners; to others it does not exist."""

from __future__ import annotations

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_http_methods, require_safe

from workspaces.actions.errors import Refused
from workspaces.actions.sleep import want_awake
from workspaces.actions.terminal import order_command, stop_command
from workspaces.domain.terminal import DEFAULT_LIMIT_S, TIME_LIMITS_S
from workspaces.models import Workspace
from workspaces.queries.terminal import commands_of, operated_workspace, terminal_page
from workspaces.web.access import is_htmx, signed_in, user_of
from workspaces.web.errors import done, problem, steering
from workspaces.web.terminal_parts import state_context
from workspaces.web.trace_rows import number_or_none


def _workspace(request: HttpRequest, workspace_id: int) -> Workspace:
    workspace = operated_workspace(request.user, workspace_id)
    if workspace is None:
        raise Http404
    return workspace


@require_http_methods(["GET", "HEAD", "POST"])
@signed_in
def show(request: HttpRequest, workspace_id: int) -> HttpResponse:
    workspace = _workspace(request, workspace_id)
    if request.method != "POST":
        want_awake(workspace.pk)  # so that the first command need not wait for it
        return _page(request, workspace)
    text, limit_s = request.POST.get("command", ""), number_or_none(request.POST.get("limit_s")) or 0
    try:
        order_command(workspace.pk, text=text, limit_s=limit_s, actor=user_of(request))
    except Refused as refused:
        if is_htmx(request):  # the box is not touched: what was typed stays
            return problem(request, 409, str(refused))
        return _page(request, workspace, text=text, limit_s=limit_s, error=str(refused), status=409)
    if is_htmx(request):
        return render(request, "terminal/_box.html", _box(workspace, "", limit_s, ""))
    return redirect("terminal", workspace.pk)


@steering
def stop(request: HttpRequest, workspace_id: int, command_id: int) -> HttpResponse:
    workspace = _workspace(request, workspace_id)
    get_object_or_404(commands_of(workspace.pk), pk=command_id)
    stop_command(command_id, actor=user_of(request))
    return done(request, "The command is being stopped.", back=request.path.split("terminal/")[0] + "terminal/")


@require_safe
@signed_in
def output(request: HttpRequest, workspace_id: int, command_id: int) -> HttpResponse:
    """All that was kept of its output, as text that nothing runs."""
    workspace = _workspace(request, workspace_id)
    command = get_object_or_404(commands_of(workspace.pk), pk=command_id)
    response = HttpResponse(command.output, content_type="text/plain; charset=utf-8")
    response["X-Content-Type-Options"] = "nosniff"
    response["Content-Security-Policy"] = "default-src 'none'; sandbox"
    response["Cache-Control"] = "private, no-store"
    return response


def _page(
    request: HttpRequest,
    workspace: Workspace,
    *,
    text: str = "",
    limit_s: int = DEFAULT_LIMIT_S,
    error: str = "",
    status: int = 200,
) -> HttpResponse:
    before = number_or_none(request.GET.get("before"))
    found = terminal_page(workspace.pk, before=before)
    context = (
        _box(workspace, text, limit_s, error)
        | {
            "commands": found.commands,
            "older_than": found.older_than,
            "before": before,
            "newest": found.commands[0].pk if found.commands and before is None else 0,
        }
        | state_context(workspace)
    )
    return render(request, "terminal/show.html", context, status=status)


def _box(workspace: Workspace, text: str, limit_s: int, error: str) -> dict[str, object]:
    limits = [(limit, limit == limit_s) for limit in TIME_LIMITS_S]
    return {"workspace": workspace, "typed": text, "limits": limits, "error": error}
