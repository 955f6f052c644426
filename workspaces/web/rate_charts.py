"""Shares with their intervals → Plotly figures as plain JSON: recurrence and compounding. Pure, as charts.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from workspaces.domain.compounding import Bin
from workspaces.domain.recurrence import VersionRate


def recurrence_figure(rates: Sequence[VersionRate]) -> dict[str, Any]:
    """The share of tasks that met the cause, version by version; a version without a task is left out."""
    ran = [rate for rate in rates if rate.tasks]
    names = [f"v{rate.number}" for rate in ran]
    trace = _shares(
        names,
        [rate.share for rate in ran],
        [rate.interval for rate in ran],
        [f"{rate.hit} of {rate.tasks}" for rate in ran],
        [", ".join(rate.changed) or "the first" for rate in ran],
    )
    layout = _layout("version", "share of tasks that met it")
    layout["xaxis"]["ticktext"] = [
        name + ("<br>" + "<br>".join(rate.changed) if rate.changed else "")
        for name, rate in zip(names, ran, strict=True)
    ]
    layout["xaxis"]["tickvals"] = names
    return {"data": [trace], "layout": layout}


def compounding_figure(bins: Sequence[Bin], what: str) -> dict[str, Any]:
    """The share that failed, with its interval, and the median cost on an axis of its own."""
    names = [each.label for each in bins]
    counts = [f"n={each.tasks:,}" for each in bins]
    data = [
        _shares(
            names,
            [each.share or 0.0 for each in bins],
            [each.interval for each in bins],
            counts,
            [f"{each.failed:,} of {each.tasks:,} failed" for each in bins],
        )
    ]
    costs = [float(each.median_cost) if each.median_cost is not None else None for each in bins]
    if any(cost is not None for cost in costs):
        data.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": "median cost (USD)",
                "x": names,
                "y": costs,
                "yaxis": "y2",
                "text": [f"{each.priced:,} priced" for each in bins],
                "hovertemplate": "%{x}: $%{y:.6f} (%{text})<extra></extra>",
                "connectgaps": False,
                "line": {"dash": "dot"},
                "meta": {"role": "cost"},
            }
        )
    layout = _layout(what, "share that failed")
    layout["yaxis2"] = {
        "tickprefix": "$",
        "tickformat": ".2~r",
        "nticks": 6,
        "automargin": True,
        "overlaying": "y",
        "side": "right",
        "rangemode": "tozero",
        "showgrid": False,
    }
    return {"data": data, "layout": layout}


def _shares(
    x: list[str], shares: list[float], intervals: list[tuple[float, float]], counts: list[str], hover: list[str]
) -> dict[str, Any]:
    """Points with their 95 % intervals; the count behind each stands beside it."""
    return {
        "type": "scatter",
        "mode": "lines+markers+text",
        "name": "share, with its 95 % interval",
        "x": x,
        "y": shares,
        "text": counts,
        "textposition": "top right",
        "cliponaxis": False,
        "customdata": hover,
        "error_y": {
            "type": "data",
            "symmetric": False,
            "array": [round(high - share, 6) for share, (_, high) in zip(shares, intervals, strict=True)],
            "arrayminus": [round(share - low, 6) for share, (low, _) in zip(shares, intervals, strict=True)],
            "thickness": 1,
            "width": 5,
        },
        "hovertemplate": "%{x}: %{y:.0%} (%{text}; %{customdata})<extra></extra>",
        "meta": {"role": "share"},
    }


def _layout(x: str, y: str) -> dict[str, Any]:
    return {
        "margin": {"l": 52, "r": 60, "t": 40, "b": 56},
        "height": 330,
        "showlegend": True,
        "legend": {"orientation": "h", "y": 1.03, "yanchor": "bottom", "x": 0},
        "xaxis": {"title": {"text": x}, "type": "category", "automargin": True},
        "yaxis": {"title": {"text": y}, "tickformat": ".0%", "range": [0, 1.08], "nticks": 6},
    }
