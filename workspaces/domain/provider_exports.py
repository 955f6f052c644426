"""Reads a provider's usage or cost export (CSV) into rows of one form: day, model, tokens, USD. Pure.

Every line is accounted for: read, empty (a day on which the provider counted nothing), or bad with its number and
what is wrong. Known forms are recognised by their columns; for anything else a person says which column is what.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

MAX_BYTES = 5 * 1024**2
MAX_ROWS = 50_000
MAX_COLUMNS = 200
FIRST_DAY, LAST_DAY = date(2015, 1, 1), date(2100, 1, 1)  # of any provider's usage
RAW_CHARS = 500
MODEL_CHARS = 200
MOST_TOKENS = 10**15
MOST_USD = Decimal(10) ** 9
TOKENS = ("input_tokens", "cached_input_tokens", "cache_write_tokens", "output_tokens")
FIELDS = ("day", "model", *TOKENS, "cost_usd")


class NotReadable(Exception):
    """The file as a whole, in words for whoever brought it."""


@dataclass(frozen=True, slots=True)
class ColumnMap:
    """Which columns say what. Of `day` the first that holds something counts; tokens of several columns are added.

    `cached_inside`: the input column counts cached tokens as well (OpenAI's way), so they are taken out of it.
    """

    day: tuple[str, ...]
    model: str = ""
    input_tokens: tuple[str, ...] = ()
    cached_input_tokens: tuple[str, ...] = ()
    cache_write_tokens: tuple[str, ...] = ()
    output_tokens: tuple[str, ...] = ()
    cost_usd: str = ""
    currency: str = ""
    cached_inside: bool = False

    def as_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ColumnMap:
        read: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in data.items()
        }
        return cls(**read)


@dataclass(frozen=True, slots=True)
class Form:
    """A known export. `needs`: the columns by which it is told from others."""

    name: str
    title: str
    provider: str
    needs: frozenset[str]
    columns: ColumnMap


# The column names are those of the exports themselves, as public readers of them have them in 2026
FORMS = (
    Form(
        "anthropic_usage",
        "Anthropic usage export",
        "anthropic",
        frozenset({"usage_date_utc", "model_version", "usage_input_tokens_no_cache", "usage_output_tokens"}),
        ColumnMap(
            day=("usage_date_utc",),
            model="model_version",
            input_tokens=("usage_input_tokens_no_cache",),
            cached_input_tokens=("usage_input_tokens_cache_read",),
            cache_write_tokens=(
                "usage_input_tokens_cache_write_5m",
                "usage_input_tokens_cache_write_1h",
                "usage_input_tokens_cache_write",
            ),
            output_tokens=("usage_output_tokens",),
        ),
    ),
    Form(
        "anthropic_cost",
        "Anthropic cost export",
        "anthropic",
        frozenset({"usage_date_utc", "model", "token_type", "cost_usd"}),
        ColumnMap(day=("usage_date_utc",), model="model", cost_usd="cost_usd"),
    ),
    Form(
        "openai_cost",
        "OpenAI cost export",
        "openai",
        frozenset({"start_time", "amount_value", "amount_currency"}),
        ColumnMap(
            day=("start_time_iso", "start_time"), model="line_item", cost_usd="amount_value", currency="amount_currency"
        ),
    ),
    Form(
        "openai_usage",
        "OpenAI usage export",
        "openai",
        frozenset({"start_time", "num_model_requests", "input_tokens", "output_tokens"}),
        ColumnMap(
            day=("start_time_iso", "start_time"),
            model="model",
            input_tokens=("input_tokens",),
            cached_input_tokens=("input_cached_tokens",),
            output_tokens=("output_tokens",),
            cached_inside=True,
        ),
    ),
)
MAPPED = "mapped"


@dataclass(frozen=True, slots=True)
class ExportRow:
    """One line that was read, or (`problem`) could not be. Tokens and USD are None where the export has no column."""

    line: int
    day: date | None = None
    model: str = ""
    input_tokens: int | None = None
    cached_input_tokens: int | None = None
    cache_write_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: Decimal | None = None
    problem: str = ""
    raw: str = ""


@dataclass(frozen=True, slots=True)
class Sheet:
    """A file as lines of cells. `columns` in lower case; `lines`: (number in the file, cells)."""

    columns: tuple[str, ...]
    lines: Sequence[tuple[int, tuple[str, ...]]] = field(default_factory=list)

    def form(self) -> Form | None:
        return next((form for form in FORMS if form.needs <= set(self.columns)), None)


@dataclass(frozen=True, slots=True)
class ReadExport:
    """`empty` lines say that nothing was counted; they are not bad and hold nothing."""

    rows: Sequence[ExportRow]
    empty: int

    @property
    def good(self) -> list[ExportRow]:
        return [row for row in self.rows if not row.problem]

    @property
    def bad(self) -> list[ExportRow]:
        return [row for row in self.rows if row.problem]


def decoded(data: bytes) -> str:
    """The file's text. Raises NotReadable."""
    if len(data) > MAX_BYTES:
        raise NotReadable(f"The file has {len(data) / 1024**2:.1f} MB; at most {MAX_BYTES // 1024**2} MB are taken.")
    encodings = ("utf-16",) if data[:2] in (b"\xff\xfe", b"\xfe\xff") else ("utf-8-sig", "cp1252")
    for encoding in encodings:
        try:
            return data.decode(encoding).replace("\x00", "")
        except UnicodeDecodeError:
            continue
    raise NotReadable("The file is not text: export it as CSV.")


def sheet_of(text: str) -> Sheet:
    """Raises NotReadable: no header, no rows, too many rows."""
    if not text.strip():
        raise NotReadable("The file is empty.")
    header = text.lstrip().splitlines()[0]
    delimiter = max(",;\t", key=header.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    columns: tuple[str, ...] = ()
    lines: list[tuple[int, tuple[str, ...]]] = []
    began = 1
    try:
        for cells in reader:
            line, began = began, reader.line_num + 1
            if not any(value.strip() for value in cells):
                continue
            if not columns:
                columns = tuple(value.strip().lower() for value in cells)
            elif len(lines) == MAX_ROWS:
                raise NotReadable(f"The file has more than {MAX_ROWS:,} rows: export fewer days at once.")
            else:
                lines.append((line, tuple(cells)))
    except csv.Error as error:
        raise NotReadable(f"Line {reader.line_num} cannot be read: {error}.") from None
    if len(columns) > MAX_COLUMNS:
        raise NotReadable(f"The file has {len(columns):,} columns; at most {MAX_COLUMNS} are taken.")
    if len(columns) < 2:
        raise NotReadable("The first line must name the columns, separated by commas, semicolons or tabs.")
    if not lines:
        raise NotReadable("The file has a header and no rows.")
    return Sheet(columns, lines)


def read_export(sheet: Sheet, columns: ColumnMap, *, most: int | None = None) -> ReadExport:
    """Every line of it (or the first `most`), in order."""
    rows: list[ExportRow] = []
    empty = 0
    for line, cells in sheet.lines[:most]:
        row = _row(line, cells, sheet.columns, columns)
        if row is None:
            empty += 1
        else:
            rows.append(row)
    return ReadExport(rows, empty)


def _row(line: int, cells: tuple[str, ...], names: tuple[str, ...], columns: ColumnMap) -> ExportRow | None:
    raw = ", ".join(cells)[:RAW_CHARS]
    if len(cells) > len(names):
        return ExportRow(line, problem=f"it has {len(cells)} cells under {len(names)} columns", raw=raw)
    values = dict(zip(names, (value.strip() for value in cells), strict=False))
    counted = (*(name for kind in TOKENS for name in getattr(columns, kind)), columns.cost_usd)
    if not any(values.get(name) for name in counted if name):
        return None
    try:
        return _good(line, values, columns)
    except ValueError as error:
        return ExportRow(line, problem=str(error), raw=raw)


def _good(line: int, values: Mapping[str, str], columns: ColumnMap) -> ExportRow:
    """Raises ValueError with what is wrong."""
    tokens = {kind: _tokens(values, getattr(columns, kind)) for kind in TOKENS}
    cached = tokens["cached_input_tokens"]
    if columns.cached_inside and cached and tokens["input_tokens"] is not None:
        if cached > tokens["input_tokens"]:
            raise ValueError(f"more cached tokens ({cached:,}) than input tokens ({tokens['input_tokens']:,})")
        tokens["input_tokens"] -= cached
    currency = values.get(columns.currency, "").lower() if columns.currency else ""
    if currency not in ("", "usd"):
        raise ValueError(f"the amount is in “{currency[:10]}”, not in USD")
    told = next((values[name] for name in columns.day if values.get(name)), "")
    return ExportRow(
        line,
        day=day_of(told),
        model=_model(values.get(columns.model, ""), columns)[:MODEL_CHARS],
        input_tokens=tokens["input_tokens"],
        cached_input_tokens=tokens["cached_input_tokens"],
        cache_write_tokens=tokens["cache_write_tokens"],
        output_tokens=tokens["output_tokens"],
        cost_usd=_usd(values.get(columns.cost_usd, "")) if columns.cost_usd else None,
    )


def _model(text: str, columns: ColumnMap) -> str:
    """OpenAI's line items are "model, what of it"."""
    return text.split(",")[0].strip() if columns.model == "line_item" else text


def _tokens(values: Mapping[str, str], names: Sequence[str]) -> int | None:
    """The sum of the columns that are there; None where the export has none of them."""
    there = [name for name in names if name in values]
    if not there:
        return None
    return sum(_count(name, values[name]) for name in there)


def _count(name: str, text: str) -> int:
    if not text:
        return 0
    plain = text.replace(",", "").replace("_", "")
    if not re.fullmatch(r"\d{1,18}(\.0+)?", plain, re.ASCII):
        raise ValueError(f"“{text[:40]}” in {name} is not a count of tokens")
    count = int(plain.partition(".")[0])
    if count > MOST_TOKENS:
        raise ValueError(f"“{text[:40]}” in {name} is more than any provider counts")
    return count


def _usd(text: str) -> Decimal | None:
    if not text:
        return None
    try:
        amount = Decimal(text.replace("$", "").replace(",", "").strip())
    except InvalidOperation:
        raise ValueError(f"“{text[:40]}” is not an amount in USD") from None
    if not amount.is_finite() or not -MOST_USD <= amount <= MOST_USD:
        raise ValueError(f"“{text[:40]}” is not an amount in USD")
    return amount.quantize(Decimal("1e-9"))


def day_of(text: str) -> date:
    """A day in UTC, from an ISO day or time, seconds since 1970, or 2026/9/1. Raises ValueError."""
    if not text:
        raise ValueError("the day is missing")
    day = _day(text)
    if day is None or not FIRST_DAY <= day <= LAST_DAY:
        raise ValueError(f"“{text[:40]}” is not a day (2026-11-30), a time, or seconds since 1970")
    return day


def _day(text: str) -> date | None:
    try:
        if re.fullmatch(r"\d{9,11}(\.\d+)?", text, re.ASCII):
            return datetime.fromtimestamp(float(text), UTC).date()
        if slashed := re.fullmatch(r"(\d{4})/(\d{1,2})/(\d{1,2})", text, re.ASCII):
            return date(*(int(part) for part in slashed.groups()))
        moment = datetime.fromisoformat(text.replace(" UTC", "+00:00"))
        return (moment if moment.tzinfo is None else moment.astimezone(UTC)).date()
    except (ValueError, OverflowError):
        return None


def model_key(name: str) -> str:
    """Equal for the names under which one model is asked for, counted and billed.

    "anthropic/claude-haiku-4-5-20251001", "claude-haiku-4-5-latest" and "Claude Haiku 4.5" are one model.
    """
    plain = re.sub(r"[\s._]+", "-", name.strip().lower().rpartition("/")[2])
    return re.sub(r"-(latest|\d{8}|\d{4}-\d{2}-\d{2})$", "", plain)
