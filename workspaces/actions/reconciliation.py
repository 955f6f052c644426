"""Exports of providers: brought here, read into rows, read anew with other columns. Never touches a usage record."""

from __future__ import annotations

import hashlib

from django.db import transaction

from workspaces.domain import provider_exports
from workspaces.domain.provider_exports import MAPPED, ColumnMap, NotReadable, ReadExport, Sheet
from workspaces.domain.text import clean_text, clip
from workspaces.models import AuditEntry, UsageImport, UsageImportRow, User

from .clock import database_now
from .errors import Refused

FILE_NAME_CHARS = 200
_BATCH = 2_000


def bring_export(data: bytes, *, file_name: str, actor: User) -> tuple[UsageImport, bool]:
    """The import of this file, and whether it is new: the same bytes are never imported twice.

    A known form is read at once; another one waits for its columns. Raises Refused.
    """
    digest = hashlib.sha256(data).hexdigest()
    if known := UsageImport.objects.filter(sha256=digest).first():
        return known, False
    try:
        text = provider_exports.decoded(data)
        sheet = provider_exports.sheet_of(text)
    except NotReadable as why:
        raise Refused(str(why)) from None
    form = sheet.form()
    with transaction.atomic():
        made, new = UsageImport.objects.get_or_create(
            sha256=digest,
            defaults={
                "provider": form.provider if form else "",
                "form": form.name if form else MAPPED,
                "file_name": clip(clean_text(file_name).strip() or "export.csv", FILE_NAME_CHARS),
                "size_bytes": len(data),
                "text": text,
                "created_by": actor,
                "created_at": database_now(),
            },
        )
        if new:
            _audit(made, "usage_import.bring", actor)
            if form:
                _read(made, sheet, form.columns)
    return made, new


def choose_columns(import_id: int, columns: ColumnMap, *, provider: str, actor: User) -> UsageImport:
    """Read the file with these columns; what was read with others before is replaced. Raises Refused."""
    with transaction.atomic():
        made = UsageImport.objects.select_for_update().get(pk=import_id)
        if made.form != MAPPED:
            raise Refused("The columns of this export are known; nobody has to choose them.")
        sheet = provider_exports.sheet_of(made.text)
        _checked(sheet, columns)
        made.rows.all().delete()
        made.provider = provider
        _read(made, sheet, columns)
        _audit(made, "usage_import.columns", actor)
    return made


def _checked(sheet: Sheet, columns: ColumnMap) -> None:
    """Raises Refused."""
    if not columns.day:
        raise Refused("Say which column holds the day.")
    counted = (*columns.input_tokens, *columns.output_tokens, columns.cost_usd)
    if not any(counted):
        raise Refused("Say which column holds tokens, or the cost in USD.")
    named = (*columns.day, columns.model, *columns.cached_input_tokens, *columns.cache_write_tokens, *counted)
    if missing := [name for name in named if name and name not in sheet.columns]:
        raise Refused(f"The file has no column “{missing[0][:80]}”.")


def _read(made: UsageImport, sheet: Sheet, columns: ColumnMap) -> None:
    read: ReadExport = provider_exports.read_export(sheet, columns)
    UsageImportRow.objects.bulk_create(
        (
            UsageImportRow(
                source=made,
                line=row.line,
                day=row.day,
                model=row.model,
                input_tokens=row.input_tokens,
                cached_input_tokens=row.cached_input_tokens,
                cache_write_tokens=row.cache_write_tokens,
                output_tokens=row.output_tokens,
                cost_usd=row.cost_usd,
                problem=row.problem,
                raw=row.raw,
            )
            for row in read.rows
        ),
        batch_size=_BATCH,
    )
    days = [row.day for row in read.good if row.day]
    made.columns = columns.as_json()
    made.rows_read, made.rows_bad, made.rows_empty = len(read.good), len(read.bad), read.empty
    made.first_day, made.last_day = min(days, default=None), max(days, default=None)
    made.read_at = database_now()
    made.save()


def _audit(made: UsageImport, action: str, actor: User) -> None:
    AuditEntry.objects.create(
        actor=actor,
        action=action,
        data={"import": made.pk, "file": made.file_name, "sha256": made.sha256, "columns": made.columns},
        at=database_now(),
    )
