"""Rows → Plotly figures as plain JSON. Pure: no query, no request; colours are put in by the page's script."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from workspaces.queries.usage import StepUsage


def usage_figure(rows: Sequence[StepUsage]) -> dict[str, Any]:
    """Prompt and output tokens as bars, cost as a line on its own axis; x is the n-th reply, named by its step.

    A cost that is not known leaves a gap in the line; it is never drawn as zero.
    """
    x = list(range(1, len(rows) + 1))
    names = [f"step {row.step}" + (f", branch {row.branch}" if row.branch > 1 else "") for row in rows]
    costs = [float(row.cost_usd) if row.cost_usd is not None else None for row in rows]
    traces: list[dict[str, Any]] = [
        _bars("prompt tokens", x, [row.prompt_tokens for row in rows], names, "prompt"),
        _bars("output tokens", x, [row.output_tokens for row in rows], names, "output"),
    ]
    if any(cost is not None for cost in costs):
        traces.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": "cost (USD)",
                "x": x,
                "y": costs,
                "yaxis": "y2",
                "text": names,
                "hovertemplate": "%{text}: $%{y:.6f}<extra></extra>",
                "connectgaps": False,
                "meta": {"role": "cost"},
            }
        )
    return {
        "data": traces,
        "layout": {
            "barmode": "stack",
            "margin": {"l": 52, "r": 60, "t": 48, "b": 40},
            "height": 270,
            "showlegend": True,
            "legend": {"orientation": "h", "y": 1.03, "yanchor": "bottom", "x": 0},
            "xaxis": {"title": {"text": "model reply"}, "rangemode": "tozero", "tickformat": "d"},
            "yaxis": {"title": {"text": "tokens"}, "rangemode": "tozero"},
            "yaxis2": {
                "tickprefix": "$",
                "tickformat": ".2~r",
                "nticks": 6,
                "automargin": True,
                "overlaying": "y",
                "side": "right",
                "rangemode": "tozero",
                "showgrid": False,
            },
        },
    }


def _bars(name: str, x: list[int], y: list[int], names: list[str], role: str) -> dict[str, Any]:
    return {
        "type": "bar",
        "name": name,
        "x": x,
        "y": y,
        "text": names,
        "textposition": "none",
        "hovertemplate": "%{text}: %{y:,} " + name + "<extra></extra>",
        "meta": {"role": role},
    }
