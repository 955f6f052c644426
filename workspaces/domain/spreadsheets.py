"""Cells of an exported CSV that no spreadsheet takes for a formula. Pure."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

# what Excel, LibreOffice and Google Sheets may begin to calculate; tab and line ends can hide one of them
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")


def cell(value: Any) -> str:
    """As it is written. Words that could be a formula get an apostrophe before them; numbers stay numbers."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, datetime | date):
        return value.isoformat()
    text = str(value).replace("\x00", "")
    return f"'{text}" if text.lstrip(" ").startswith(FORMULA_STARTS) else text


def csv_text(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """RFC 4180: comma, CR LF, quotes where they are needed."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow([cell(name) for name in columns])
    writer.writerows([cell(value) for value in row] for row in rows)
    return out.getvalue()
