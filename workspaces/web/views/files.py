"""The files of a workspace as a task sees them: now, at any checkpoint, and what differs between two.

Contents are only ever shown as escaped text or sent as an attachment: nothing an agent wrote runs here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import quote

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.http import require_safe

from workspaces.domain.diffs import unified_diff
from workspaces.domain.text import binary_note, clean_text, decode_output
from workspaces.engine.boxes import driver_for, sandbox_for
from workspaces.models import Checkpoint, Task
from workspaces.queries.checkpoints import LISTED, offered
from workspaces.sandboxes.base import (
    Entry,
    FileChange,
    FileTooLarge,
    NotAFile,
    PathRefused,
    SandboxError,
    SnapshotMissing,
)

from ..access import signed_in, task_or_404
from ..errors import is_htmx
from ..trace_rows import diff_lines, number_or_none

SHOWN_BYTES = 512 * 1024
DOWNLOADED_BYTES = 50 * 1024 * 1024
ENTRIES = 1_000
FILE_DIFF_LINES = 2_000
NO_LONGER_KEPT = (
    "The files of this checkpoint are no longer kept: of the older ones only some stay, as the profile says."
)
NOT_THERE = (NotAFile, PathRefused, SnapshotMissing)


def _checkpoint_at(task: Task, at: str | None) -> Checkpoint | None:
    """The checkpoint with that seq; None is now. A seq without a checkpoint is a 404."""
    seq = number_or_none(at)
    if seq is None:
        return None
    return get_object_or_404(Checkpoint.objects.select_related("snapshot"), task=task, seq=seq)


def _read(task: Task, checkpoint: Checkpoint | None, path: str, limit_bytes: int) -> bytes:
    """Raises SandboxError."""
    if checkpoint is None:
        return sandbox_for(task.workspace).read(path, limit_bytes=limit_bytes)
    snapshots = driver_for(task.workspace).snapshots
    return snapshots.read(checkpoint.snapshot.ref, path, limit_bytes=limit_bytes)


def tree_context(task: Task, at: str | None, path: str | None) -> dict[str, Any]:
    """One folder, its parents, and the saved states to choose from."""
    checkpoint = _checkpoint_at(task, at)
    folder = clean_text(path or "").strip("/")
    entries: list[Entry] = []
    trouble = ""
    try:
        if checkpoint is None:
            entries = sandbox_for(task.workspace).list(folder, limit=ENTRIES + 1)
        else:
            snapshots = driver_for(task.workspace).snapshots
            entries = snapshots.list(checkpoint.snapshot.ref, folder, limit=ENTRIES + 1)
    except SnapshotMissing:
        trouble = NO_LONGER_KEPT
    except NOT_THERE as error:
        trouble = f"This folder is not there: {error}"
    except SandboxError as error:
        trouble = f"The files cannot be read now: {error} {error.hint}".strip()
    folders_first = sorted(map(_printable, entries[:ENTRIES]), key=lambda entry: (entry.kind != "folder", entry.path))
    return {
        "at": checkpoint.seq if checkpoint else "",
        "folder": folder,
        "parents": _parents(folder),
        "entries": [{"entry": entry, "name": PurePosixPath(entry.path).name} for entry in folders_first],
        "more_entries": len(entries) > ENTRIES,
        "trouble": trouble,
        "saved": list(offered(task)[:LISTED]),
    }


def _printable(entry: Entry) -> Entry:
    """A name that is no UTF-8 cannot stand in a page or an address: it is listed, and opened from the sandbox only."""
    path = clean_text(entry.path)
    return entry if path == entry.path else replace(entry, path=path, kind="other")


def printable_changes(changes: Sequence[FileChange]) -> list[FileChange]:
    """As `_printable`, for what differs between two saved states."""
    return [replace(change, path=clean_text(change.path)) for change in changes]


def _parents(folder: str) -> list[tuple[str, str]]:
    parts = PurePosixPath(folder).parts
    return [(part, "/".join(parts[: index + 1])) for index, part in enumerate(parts)]


@signed_in
@require_safe
def view(request: HttpRequest, task_id: int) -> HttpResponse:
    """One file as text, in a dialog (htmx) or on a page."""
    task = task_or_404(request, task_id)
    checkpoint = _checkpoint_at(task, request.GET.get("at"))
    path = request.GET.get("path", "")
    context: dict[str, Any] = {"task": task, "at": checkpoint.seq if checkpoint else "", "path": clean_text(path)}
    try:
        raw = _read(task, checkpoint, path, SHOWN_BYTES)
        text = _text_of(raw)
        context |= {"text": text or "", "binary": text is None, "size": len(raw)}
    except FileTooLarge as error:
        context["trouble"] = f"{error}. Download it instead."
    except NOT_THERE as error:
        raise Http404 from error
    except SandboxError as error:
        context["trouble"] = f"{error} {error.hint}".strip()
    return render(request, "files/_file.html" if is_htmx(request) else "files/file.html", context)


@signed_in
@require_safe
def download(request: HttpRequest, task_id: int) -> HttpResponse:
    """The bytes, always as an attachment that no browser will guess a type for."""
    task = task_or_404(request, task_id)
    path = request.GET.get("path", "")
    try:
        raw = _read(task, _checkpoint_at(task, request.GET.get("at")), path, DOWNLOADED_BYTES)
    except FileTooLarge as error:
        return HttpResponse(f"{error}\n", status=413, content_type="text/plain; charset=utf-8")
    except NOT_THERE as error:
        raise Http404 from error
    except SandboxError as error:
        return HttpResponse(f"{error}\n", status=503, content_type="text/plain; charset=utf-8")
    response = HttpResponse(raw, content_type="application/octet-stream")
    name = quote(PurePosixPath(path).name.encode("utf-8", "replace"))
    response["Content-Disposition"] = f"attachment; filename*=UTF-8''{name}"
    response["X-Content-Type-Options"] = "nosniff"
    response["Content-Security-Policy"] = "default-src 'none'; sandbox"
    response["Cache-Control"] = "private, no-store"
    return response


def _two(request: HttpRequest, task: Task) -> tuple[Checkpoint, Checkpoint]:
    before = _checkpoint_at(task, request.GET.get("before"))
    after = _checkpoint_at(task, request.GET.get("after"))
    if before is None or after is None:
        newest = list(offered(task)[:2])
        if not newest:
            raise Http404
        after = after or newest[0]
        earlier = offered(task).filter(seq__lt=after.seq).first()
        before = before or earlier or after
    return before, after


@signed_in
@require_safe
def diff(request: HttpRequest, task_id: int) -> HttpResponse:
    """Which files differ between two checkpoints; each file's diff is loaded when it is opened."""
    task = task_or_404(request, task_id)
    before, after = _two(request, task)
    context: dict[str, Any] = {
        "task": task,
        "before": before,
        "after": after,
        "saved": list(offered(task)[: 4 * LISTED]),
        "changes": [],
    }
    try:
        snapshots = driver_for(task.workspace).snapshots
        context["changes"] = printable_changes(snapshots.changes(before.snapshot.ref, after.snapshot.ref))
    except SandboxError as error:
        context["trouble"] = str(error)
    return render(request, "files/diff.html", context)


@signed_in
@require_safe
def diff_file(request: HttpRequest, task_id: int) -> HttpResponse:
    """One file's unified diff between two checkpoints."""
    task = task_or_404(request, task_id)
    before, after = _two(request, task)
    path = request.GET.get("path", "")
    old, new = _text_at(task, before, path), _text_at(task, after, path)
    context: dict[str, Any] = {"path": clean_text(path)}
    if isinstance(old, _Unshown) or isinstance(new, _Unshown):
        context["trouble"] = next(side.why for side in (old, new) if isinstance(side, _Unshown))
    else:
        context["lines"] = diff_lines(unified_diff(old, new, clean_text(path)), FILE_DIFF_LINES)
    return render(request, "files/_diff_file.html", context)


class _Unshown:
    """A file that has no text to compare, and why."""

    def __init__(self, why: str) -> None:
        self.why = why


def _text_at(task: Task, checkpoint: Checkpoint, path: str) -> str | _Unshown:
    try:
        raw = _read(task, checkpoint, path, SHOWN_BYTES)
    except NotAFile:
        return ""
    except FileTooLarge as error:
        return _Unshown(f"Too large to compare here: {error}.")
    except SandboxError as error:
        return _Unshown(str(error))
    text = _text_of(raw)
    return _Unshown("A binary file: its bytes differ.") if text is None else text


def _text_of(raw: bytes) -> str | None:
    """None: binary, by what decode_output says or (as git does) a NUL byte near the beginning."""
    text = decode_output(raw)
    return None if b"\0" in raw[:8192] or text == binary_note(raw) else text
