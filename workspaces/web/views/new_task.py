"""The page on which a task is given to an agent. Attachments are stored here and brought in by the engine."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.csrf import csrf_exempt, csrf_protect
from django.views.decorators.http import require_http_methods

from workspaces.actions.errors import Refused
from workspaces.actions.tasks import create_task
from workspaces.queries.database import database_now
from workspaces.web.access import signed_in, user_of
from workspaces.web.task_form import TaskForm, newest_versions, operated_workspaces
from workspaces.web.uploads import HomeUploadHandler, StoredUpload


@csrf_exempt  # the check is made below, after the upload handler is set: reading the token reads the files
@require_http_methods(["GET", "HEAD", "POST"])
@signed_in
def new(request: HttpRequest) -> HttpResponse:
    if request.method != "POST":
        return _page(request, TaskForm(user_of(request), initial=_wanted(request)))
    handler = HomeUploadHandler(request)
    request.upload_handlers = [handler]
    return _create(request, handler)


@csrf_protect
def _create(request: HttpRequest, handler: HomeUploadHandler) -> HttpResponse:
    form = TaskForm(user_of(request), request.POST)
    valid = form.is_valid()
    files = [upload for upload in request.FILES.getlist("files") if isinstance(upload, StoredUpload)]
    archive = request.FILES.get("archive")
    form.take_uploads(files, archive if isinstance(archive, StoredUpload) else None, handler.refused)
    if valid and form.is_valid():
        try:
            task = create_task(
                workspace=form.cleaned_data["workspace"],
                profile_version=form.cleaned_data["profile"],
                instruction=form.cleaned_data["instruction"],
                title=form.cleaned_data["title"],
                hold=form.cleaned_data["hold"],
                intake=form.intake or None,
                limits=form.limits,
                actor=user_of(request),
            )
            return redirect("task", task.pk)
        except Refused as refusal:
            form.add_error(None, str(refusal))
    handler.throw_away()
    files_lost = bool(request.FILES or handler.refused)
    return _page(request, form, files_lost=files_lost, status=422)


def _page(request: HttpRequest, form: TaskForm, *, status: int = 200, **more: Any) -> HttpResponse:
    user = user_of(request)
    context = {
        "form": form,
        "workspaces": operated_workspaces(user),
        "versions": newest_versions(user),
        "chosen_workspace": str(form["workspace"].value() or ""),
        "chosen_profile": str(form["profile"].value() or ""),
        "upload_limit_bytes": settings.UPLOAD_MAX_BYTES,
        "deadline_help": f"Now it is {database_now():%Y-%m-%d %H:%M}. When it has passed, the task stops and asks.",
    }
    return render(request, "tasks/new.html", context | more, status=status)


def _wanted(request: HttpRequest) -> dict[str, str]:
    """A link can choose the workspace and the profile version; a sole choice is made."""
    wanted = {name: request.GET.get(name, "") for name in ("workspace", "profile")}
    user = user_of(request)
    for name, choices in (("workspace", operated_workspaces(user)), ("profile", newest_versions(user))):
        if not wanted[name]:
            found = list(choices[:2])
            if len(found) == 1:
                wanted[name] = str(found[0].pk)
    return wanted
