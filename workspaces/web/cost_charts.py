"""Tables of a cost page → Plotly figures as plain JSON. Pure, as charts.py; a figure holds its table's own numbers."""

from __future__ import annotations

from typing import Any

from workspaces.web.cost_tables import PURPOSES, Table

BARS = 12
TICKS = 7  # that fit beside each other, also on a phone


def trend_figure(trend: Table) -> dict[str, Any]:
    """Stacked bars, one colour a purpose; an hour or day without costs is a gap, not left out."""
    at = trend.column("at")
    data = [
        {
            "type": "bar",
            "name": column.title,
            "x": at,
            "y": [float(value) for value in trend.column(column.name)],
            "hovertemplate": "%{x}: $%{y:,.4f} " + column.title + "<extra></extra>",
            "meta": {"role": column.name.removesuffix("_usd")},
        }
        for column in trend.columns
        if column.name.removesuffix("_usd") in PURPOSES
    ]
    every = max(1, -(-len(at) // TICKS))
    axis = {
        "type": "category",
        "tickvals": at[::every],
        "ticktext": [each[11:] or each[5:] for each in at[::every]],
        "tickangle": 0,
        "automargin": True,
    }
    return {"data": data, "layout": _layout() | {"barmode": "stack", "xaxis": axis}}


def parts_figure(parts: Table) -> dict[str, Any]:
    """The dearest as bars beside what they cost before."""
    rows = [place for place, row in enumerate(parts.rows) if not row.rest][:BARS]
    names = [str(parts.column("name")[place]) for place in rows]
    data = []
    for name, title, role in (("before_usd", "the period before", "before"), ("usd", "this period", "now")):
        values = parts.column(name)
        data.append(
            {
                "type": "bar",
                "name": title,
                "x": rows,  # by place: two of them may have one name
                "y": [float(values[place] or 0) for place in rows],
                "text": names,
                "textposition": "none",
                "hovertemplate": "%{text}: $%{y:,.4f}, " + title + "<extra></extra>",
                "meta": {"role": role},
            }
        )
    ticks = {"tickvals": rows, "ticktext": [_short(name) for name in names], "automargin": True}
    return {"data": data, "layout": _layout() | {"barmode": "group", "xaxis": ticks}}


def _short(name: str) -> str:
    return name if len(name) <= 18 else f"{name[:16]}…"


def _layout() -> dict[str, Any]:
    return {
        "margin": {"l": 56, "r": 16, "t": 44, "b": 56},
        "height": 300,
        "showlegend": True,
        "legend": {"orientation": "h", "y": 1.03, "yanchor": "bottom", "x": 0},
        "yaxis": {"tickprefix": "$", "rangemode": "tozero", "nticks": 6, "automargin": True},
    }
