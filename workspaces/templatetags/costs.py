"""How a cell of a cost table is written: short, with the exact figure on hover."""

from __future__ import annotations

from decimal import Decimal

from django import template
from django.utils.html import conditional_escape, escape, format_html
from django.utils.safestring import SafeString, mark_safe

from workspaces.templatetags.desk import percent, price, usd
from workspaces.web.cost_tables import MADE_OF_PRICES, Cell, Column, Table

register = template.Library()


@register.filter
def cost_cell(cell: Cell) -> SafeString | str:
    value = cell.value
    if cell.href:
        return format_html('<a href="{}">{}</a>', cell.href, value)
    if value is None:
        if cell.column.kind == "price":
            return "price unknown"
        return "unknown" if cell.column.name in MADE_OF_PRICES else "–"
    match cell.column.kind:
        case "usd":
            return usd(value)
        case "change":
            return _change(value)
        case "gap":
            return f"{value:+,}".replace("-", "−") if value else "–"
        case "share":
            return percent(value) if value >= 0.01 or not value else "<1 %"
        case "count":
            return f"{value:,}" if value else "–"
        case "number":
            return format_html('<span title="{}">{}</span>', f"{value:f}", _number(value))
        case "price":
            return _price(value)
    return str(value)


@register.filter
def cost_rows(table: Table) -> SafeString:
    """The rows of a table's body. Made here: a page has thousands of cells, and a template takes ten times as long."""
    heads = [f'<td data-name="{escape(column.title.lower())}"{_class(column)}>' for column in table.columns]
    rows = []
    for row in table.rows:
        cells = (
            f"{head}{conditional_escape(cost_cell(cell))}</td>" for head, cell in zip(heads, row.cells, strict=True)
        )
        rows.append(f"<tr{' class=muted' if row.rest else ''}>{''.join(cells)}</tr>")
    return mark_safe("\n".join(rows))  # noqa: S308 - every value in it was escaped above


def _class(column: Column) -> str:
    if column.kind == "day":
        return ' class="day"'
    return ' class="num"' if column.numeric else ""


def _change(amount: Decimal) -> SafeString | str:
    if not amount:
        return "–"
    sign = "+" if amount > 0 else "−"
    return format_html("{}{}", sign, usd(abs(amount)))


def _price(value: Decimal) -> SafeString:
    """As price lists have it: what a token costs is read by the million."""
    by_million = value and value < Decimal("0.001")
    amount = price(value * 1_000_000 if by_million else value)
    title = f"{value:f} USD"
    return format_html('<span title="{}">{}{}</span>', title, amount, " / million" if by_million else "")


def _number(value: Decimal) -> str:
    if not value:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:,.2f}"
