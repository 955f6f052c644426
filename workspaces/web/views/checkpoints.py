"""Back to a checkpoint, or on from it in a fork: a dialog that says what will happen, and the deed."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.http import require_safe

from workspaces.actions import rollbacks
from workspaces.actions.errors import Refused
from workspaces.domain.roles import Role
from workspaces.engine.boxes import driver_for
from workspaces.models import Checkpoint, Task
from workspaces.queries.access import may_operate
from workspaces.queries.checkpoints import LISTED, RollbackPreview, offered, rollback_preview
from workspaces.queries.effects import standing_since
from workspaces.queries.task_limits import limits_of
from workspaces.sandboxes.base import FileChange, SandboxError

from ..access import require_role, signed_in, task_or_404, user_of
from ..errors import is_htmx, problem
from ..task_parts import head_context
from ..trace_rows import number_or_none
from .files import printable_changes

FILES_NAMED = 200


def _checkpoint(request: HttpRequest, task_id: int, seq: int) -> Checkpoint:
    task = task_or_404(request, task_id)
    require_role(request, task.workspace, Role.OPERATOR)
    found = Checkpoint.objects.select_related("snapshot", "branch")
    checkpoint = get_object_or_404(found, task=task, seq=seq)
    checkpoint.task = task
    return checkpoint


def _no_longer_kept(request: HttpRequest, checkpoint: Checkpoint) -> HttpResponse | None:
    """What is said instead of a dialog when the files of the checkpoint were dropped."""
    if checkpoint.snapshot.dropped_at is None:
        return None
    earlier = offered(checkpoint.task).filter(seq__lt=checkpoint.seq).first()
    nearest = f" The nearest one before it is #{earlier.seq}." if earlier else ""
    return problem(request, 409, f"The files of #{checkpoint.seq} are no longer kept, as the profile says.{nearest}")


@signed_in
@require_safe
def choose(request: HttpRequest, task_id: int) -> HttpResponse:
    """Another checkpoint was picked in the dialog: that one's, with the reason as far as it was typed."""
    seq = number_or_none(request.GET.get("to"))
    if seq is None:
        raise Http404
    query = urlencode({name: request.GET[name] for name in ("reason", "tell") if request.GET.get(name)})
    return redirect(f"{reverse('task-rollback', args=[task_id, seq])}?{query}")


@signed_in
def rollback(request: HttpRequest, task_id: int, seq: int) -> HttpResponse:
    checkpoint = _checkpoint(request, task_id, seq)
    if gone := _no_longer_kept(request, checkpoint):
        return gone
    typed: dict[str, Any] = {
        "reason": request.POST.get("reason") or request.GET.get("reason", ""),
        "tell": bool(request.POST.get("tell") or request.GET.get("tell")),
    }
    if request.method == "POST":
        try:
            rollbacks.roll_back(checkpoint.pk, actor=user_of(request), **typed)
        except Refused as refusal:
            if is_htmx(request):
                return problem(request, 409, str(refusal))
            return _rollback_dialog(request, checkpoint, typed, refused=str(refusal))
        if not is_htmx(request):
            return redirect("task", task_id)
        task = task_or_404(request, task_id)
        operate = may_operate(request.user, task.workspace)
        return render(request, "tasks/_header.html", head_context(task, operate, user_of(request)))
    return _rollback_dialog(request, checkpoint, typed)


def _rollback_dialog(
    request: HttpRequest, checkpoint: Checkpoint, typed: dict[str, Any], refused: str = ""
) -> HttpResponse:
    preview = rollback_preview(checkpoint)
    changes, trouble = _files_undone(preview)
    context = {"preview": preview, "changes": changes, "trouble": trouble, "files_named": FILES_NAMED}
    context["saved"] = list(offered(checkpoint.task)[:LISTED])
    return _dialog(request, "checkpoints/_rollback.html", checkpoint, context | typed, refused)


def _files_undone(preview: RollbackPreview) -> tuple[list[FileChange], str]:
    """Changes from the checkpoint to the newest saved state, or why they cannot be told."""
    if preview.newest is None or preview.same_disk:
        return [], ""
    refs = preview.checkpoint.snapshot.ref, preview.newest.snapshot.ref
    try:
        found = driver_for(preview.checkpoint.task.workspace).snapshots.changes(*refs)
        return printable_changes(found), ""
    except SandboxError as error:
        return [], str(error)


@signed_in
def fork(request: HttpRequest, task_id: int, seq: int) -> HttpResponse:
    checkpoint = _checkpoint(request, task_id, seq)
    if gone := _no_longer_kept(request, checkpoint):
        return gone
    typed: dict[str, Any] = {
        "reason": request.POST.get("reason", ""),
        "instruction": request.POST.get("instruction", ""),
        "hold": bool(request.POST.get("hold")),
        "tell": bool(request.POST.get("tell")),
    }
    if request.method == "POST":
        try:
            made: Task = rollbacks.fork(checkpoint.pk, actor=user_of(request), **typed)
        except Refused as refusal:
            if is_htmx(request):
                return problem(request, 409, str(refusal))
            return _fork_dialog(request, checkpoint, typed, str(refusal))
        if not is_htmx(request):
            return redirect("task", made.pk)
        response = HttpResponse(status=204)
        response["HX-Redirect"] = reverse("task", args=[made.pk])
        return response
    return _fork_dialog(request, checkpoint, typed)


def _fork_dialog(
    request: HttpRequest, checkpoint: Checkpoint, typed: dict[str, Any], refused: str = ""
) -> HttpResponse:
    context = typed | {"effects": standing_since(checkpoint)}
    return _dialog(request, "checkpoints/_fork.html", checkpoint, context, refused)


def _dialog(
    request: HttpRequest, template: str, checkpoint: Checkpoint, context: dict[str, Any], refused: str = ""
) -> HttpResponse:
    """The dialog alone for htmx, else on a page of its own."""
    own = limits_of(checkpoint.task).own
    context = {"checkpoint": checkpoint, "task": checkpoint.task, "own_limits": own, "refused": refused, **context}
    if is_htmx(request):
        return render(request, template, context)
    context["dialog"] = template
    return render(request, "checkpoints/page.html", context, status=409 if refused else 200)
