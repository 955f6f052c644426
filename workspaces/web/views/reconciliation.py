"""What providers say was used, beside what was recorded here. For site staff: it concerns every workspace."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_http_methods

from workspaces.actions.errors import Refused
from workspaces.actions.reconciliation import bring_export, choose_columns
from workspaces.domain.provider_exports import (
    FORMS,
    MAPPED,
    MAX_BYTES,
    MAX_ROWS,
    ColumnMap,
    ReadExport,
    Sheet,
    read_export,
    sheet_of,
)
from workspaces.models import ProfileVersion, UsageImport
from workspaces.queries.reconciliation import imports, reconciled
from workspaces.web.access import signed_in, user_of
from workspaces.web.cost_exports import FORMATS, exported
from workspaces.web.reconciliation_tables import bad_table, difference_table, preview_table

PREVIEWED = 10
SHOWN = 1_000
TITLES = {form.name: form.title for form in FORMS} | {MAPPED: "columns chosen by hand"}
# what is likely to be meant, by the beginning of a column's name or a part of it
GUESSES = {
    "day": ("date", "day", "time", "created"),
    "model": ("model",),
    "input_tokens": ("input", "prompt"),
    "cached_input_tokens": ("cached", "cache_read"),
    "cache_write_tokens": ("cache_write", "cache_creation"),
    "output_tokens": ("output", "completion"),
    "cost_usd": ("cost", "amount", "usd", "spend"),
}
LABELS = {
    "day": "Day or time",
    "model": "Model",
    "input_tokens": "Input tokens",
    "cached_input_tokens": "Cached input tokens",
    "cache_write_tokens": "Cache write tokens",
    "output_tokens": "Output tokens",
    "cost_usd": "Cost in USD",
}
PROVIDERS = [("", "those of the models that it names")] + [
    (value, f"all of {label}") for value, label in ProfileVersion.Provider.choices if value != "scripted"
]


def _staff_only(request: HttpRequest) -> None:
    if not user_of(request).is_staff:
        raise Http404


@require_http_methods(["GET", "HEAD", "POST"])
@signed_in
def index(request: HttpRequest) -> HttpResponse:
    _staff_only(request)
    error = ""
    if request.method == "POST":
        upload = request.FILES.get("file")
        try:
            if upload is None:
                raise Refused("Choose a file.")
            data = upload.read(MAX_BYTES + 1)
            made, new = bring_export(data, file_name=upload.name or "", actor=user_of(request))
        except Refused as refusal:
            error = str(refusal)
        else:
            if not new:
                messages.info(request, "This file was imported before: here it is. Nothing was added.")
            return redirect("reconciliation-import", made.pk)
    context = {
        "imports": [(each, TITLES.get(each.form, each.form)) for each in imports()],
        "forms": FORMS,
        "most_mb": MAX_BYTES // 1024**2,
        "most_rows": MAX_ROWS,
        "error": error,
    }
    return render(request, "costs/reconcile.html", context, status=422 if error else 200)


@require_http_methods(["GET", "HEAD", "POST"])
@signed_in
def show(request: HttpRequest, import_id: int) -> HttpResponse:
    _staff_only(request)
    source = get_object_or_404(UsageImport.objects.select_related("created_by"), pk=import_id)
    if request.method == "POST":
        return _columns_chosen(request, source)
    if source.read_at is None or request.GET.get("columns"):
        return _columns_page(request, source)
    found = reconciled(source)
    shown = difference_table(found)
    bad = bad_table(found)
    form = request.GET.get("format", "")
    if form in FORMATS:
        tables = [table for table in (shown, bad) if table.rows]
        about = {"file": source.file_name, "sha256": source.sha256, "provider": source.provider}
        return exported(form, tables, name=f"costs-difference-{source.pk}", about=about)
    context = {
        "source": source,
        "title_of_form": TITLES.get(source.form, source.form),
        "found": found,
        "table": replace(shown, rows=shown.rows[:SHOWN]),
        "shown": SHOWN if len(shown.rows) > SHOWN else 0,
        "bad": bad,
        "apart": sum(1 for row in found.rows if not row.agrees),
        "mapped": source.form == MAPPED,
    }
    return render(request, "costs/import.html", context)


def _columns_chosen(request: HttpRequest, source: UsageImport) -> HttpResponse:
    """Preview, or store."""
    columns = _chosen(request.POST)
    provider = request.POST.get("provider", "")
    if provider not in dict(PROVIDERS):
        provider = ""
    if request.POST.get("act") != "store":
        return _columns_page(request, source, columns, provider=provider)
    try:
        choose_columns(source.pk, columns, provider=provider, actor=user_of(request))
    except Refused as refusal:
        return _columns_page(request, source, columns, provider=provider, error=str(refusal), status=422)
    messages.success(request, "The file was read with these columns.")
    return redirect("reconciliation-import", source.pk)


def _columns_page(
    request: HttpRequest,
    source: UsageImport,
    columns: ColumnMap | None = None,
    *,
    provider: str | None = None,
    error: str = "",
    status: int = 200,
) -> HttpResponse:
    if source.form != MAPPED:
        raise Http404
    sheet = sheet_of(source.text)
    if columns is None:
        columns = ColumnMap.from_json(source.columns) if source.columns else _guessed(sheet)
    preview: ReadExport | None = read_export(sheet, columns, most=PREVIEWED) if columns.day else None
    chosen = _one_each(columns)
    context: dict[str, Any] = {
        "source": source,
        "fields": [(name, label, chosen.get(name, "")) for name, label in LABELS.items()],
        "columns": sheet.columns,
        "cached_inside": columns.cached_inside,
        "providers": PROVIDERS,
        "provider": source.provider if provider is None else provider,
        "count": len(sheet.lines),
        "preview": preview_table(preview) if preview else None,
        "previewed": PREVIEWED,
        "error": error,
    }
    return render(request, "costs/columns.html", context, status=status)


def _chosen(data: Mapping[str, str]) -> ColumnMap:
    def many(name: str) -> tuple[str, ...]:
        return (data[name],) if data.get(name) else ()

    return ColumnMap(
        day=many("day"),
        model=data.get("model", ""),
        input_tokens=many("input_tokens"),
        cached_input_tokens=many("cached_input_tokens"),
        cache_write_tokens=many("cache_write_tokens"),
        output_tokens=many("output_tokens"),
        cost_usd=data.get("cost_usd", ""),
        cached_inside=data.get("cached_inside") == "on",
    )


def _one_each(columns: ColumnMap) -> dict[str, str]:
    found = {}
    for name in LABELS:
        value = getattr(columns, name)
        found[name] = value if isinstance(value, str) else next(iter(value), "")
    return found


def _guessed(sheet: Sheet) -> ColumnMap:
    """The first column whose name says it; the special kinds of tokens take theirs before the general ones."""
    free = list(sheet.columns)
    found: dict[str, str] = {}
    for name in ("cached_input_tokens", "cache_write_tokens", *GUESSES):
        if name in found:
            continue
        match = next((column for part in GUESSES[name] for column in free if part in column), "")
        if match:
            found[name] = match
            free.remove(match)
    return _chosen(found)
