"""A page's tables as one CSV or one JSON, with the same rows and the same numbers. Pure but for the response."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.http import HttpResponse, JsonResponse

from workspaces.domain.cost_periods import Period
from workspaces.domain.spreadsheets import csv_text
from workspaces.web.cost_tables import Table

FORMATS = ("csv", "json")


def exported(form: str, tables: Sequence[Table], *, name: str, about: Mapping[str, Any]) -> HttpResponse:
    """`name`: of the file, without its ending."""
    if form == "json":
        told = {"about": dict(about), "tables": {table.name: table.as_json() for table in tables}}
        response: HttpResponse = JsonResponse(told)
    else:
        response = HttpResponse(as_csv(tables), content_type="text/csv; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="{name}.{form}"'
    response["X-Content-Type-Options"] = "nosniff"
    return response


def as_csv(tables: Sequence[Table]) -> str:
    """All tables below one header: the first column names the table, the others are those of any of them."""
    columns = list(dict.fromkeys(column.name for table in tables for column in table.columns))
    rows = []
    for table in tables:
        for row in table.rows:
            values = {cell.column.name: cell.value for cell in row.cells}
            rows.append([table.name, *(values.get(name) for name in columns)])
    return csv_text(["table", *columns], rows)


def about_page(title: str, period: Period) -> dict[str, str]:
    return {
        "page": title,
        "from": period.first.isoformat(),
        "to": period.last.isoformat(),
        "made_at": period.now.isoformat(),
    }
