"""A budget's periods → a Plotly figure as plain JSON. Pure, as charts.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from workspaces.queries.budget_page import PeriodRow

FEW = 5  # fewer bars than this would each be as broad as a hand


def periods_figure(rows: Sequence[PeriodRow]) -> dict[str, Any]:
    """Oldest first: what was spent and what is assumed as bars, today's limit as a line. In USD where it has that."""
    usd = any(row.limit_usd is not None for row in rows)
    names = [row.name for row in rows]
    spent = [float(row.spent_usd) if usd else row.spent_tokens for row in rows]
    assumed = [float(row.assumed_usd) if usd else row.assumed_tokens for row in rows]
    limits = [row.limit_usd if usd else row.limit_tokens for row in rows]
    hover = "%{x}: " + ("$%{y:.4f}" if usd else "%{y:,} tokens")
    data = [_bars("spent", names, spent, hover, "prompt")]
    if any(assumed):
        data.append(_bars("assumed: never answered", names, assumed, hover, "cost"))
    if any(limit is not None for limit in limits):
        data.append(
            {
                "type": "scatter",
                "mode": "lines+markers" if len(rows) == 1 else "lines",
                "name": "limit, as it is now",
                "x": names,
                "y": [float(limit) if limit is not None else None for limit in limits],
                "hovertemplate": hover + "<extra></extra>",
                "meta": {"role": "share"},
            }
        )
    axis: dict[str, Any] = {"rangemode": "tozero", "nticks": 6, "automargin": True}
    axis |= {"tickprefix": "$", "tickformat": ".3~r"} if usd else {"title": {"text": "tokens"}}
    return {
        "data": data,
        "layout": {
            "barmode": "stack",
            "margin": {"l": 56, "r": 16, "t": 40, "b": 40},
            "height": 280,
            "showlegend": True,
            "legend": {"orientation": "h", "y": 1.03, "yanchor": "bottom", "x": 0},
            "xaxis": {"type": "category", "automargin": True, "nticks": 12},
            "yaxis": axis,
        },
    }


def _bars(name: str, x: list[str], y: Sequence[float], hover: str, role: str) -> dict[str, Any]:
    few = {"width": 0.12 * len(x)} if len(x) < FEW else {}
    return {
        "type": "bar",
        **few,
        "name": name,
        "x": x,
        "y": list(y),
        "hovertemplate": hover + "<extra></extra>",
        "meta": {"role": role},
    }
