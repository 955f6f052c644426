"""A pool's history → Plotly figures as plain JSON. Pure; colours are put in by the page's script."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from workspaces.domain.quota_meters import Meter
from workspaces.queries.quota_history import Bin, History

STEPS = 5
CHARTS = {
    "calls": "Calls a minute",
    "tokens": "Tokens a minute",
    "refusals": "Refusals and retries",
    "waiting": "Waiting",
}


def figure(name: str, history: History, meters: Sequence[Meter]) -> dict[str, Any]:
    """`name` is one of CHARTS. A limit is drawn as it is now: what it was before stands in the notices."""
    limits = {meter.limit: meter.value for meter in meters if meter.value is not None}
    made: list[dict[str, Any]]
    y, second = "", ""
    if name == "calls":
        made = [_bars(history, "calls", "calls", lambda each: each.most_calls)]
        made += _limit(history, "limit of requests", limits.get("requests_per_minute"))
        y = _minute(history, "calls")
    elif name == "tokens":
        made = [
            _line(history, "input tokens", "prompt", lambda each: each.most_input),
            _line(history, "output tokens", "output", lambda each: each.most_output),
        ]
        made += _limit(history, "limit of input", limits.get("input_tokens_per_minute"), "prompt")
        made += _limit(history, "limit of output", limits.get("output_tokens_per_minute"), "output")
        y = _minute(history, "tokens")
    elif name == "refusals":
        made = [
            _bars(history, "refused by the provider", "share", lambda each: each.refusals),
            _bars(history, "retries", "cost", lambda each: each.retries),
        ]
        y = "count"
    else:
        made = [
            _bars(history, "longest queue", "queue", lambda each: each.longest_queue),
            {
                **_line(history, "waited", "cost", lambda each: round(each.waited_s, 3)),
                "mode": "lines+markers",
                "marker": {"size": 4},
                "yaxis": "y2",
                "hovertemplate": "%{x|%a %H:%M}: %{y:.1f} s waited by the calls let through<extra></extra>",
            },
        ]
        y, second = "tasks in the queue", "seconds waited"
    layout = _layout(history, y, second)
    if max((value or 0 for trace in made[:2] if "yaxis" not in trace for value in trace["y"]), default=0) < STEPS:
        layout["yaxis"] |= {"dtick": 1, "range": [0, STEPS]}  # counts, not thousandths
    return {"data": made, "layout": layout}


def _minute(history: History, what: str) -> str:
    return f"{what} a minute" if history.bin_s == 60 else f"{what}, busiest minute"


def _bars(history: History, name: str, role: str, of: Callable[[Bin], float | None]) -> dict[str, Any]:
    return {
        "type": "bar",
        "name": name,
        "x": _x(history),
        "y": [of(each) for each in history.bins],
        "hovertemplate": "%{x|%a %H:%M}: %{y:,} " + name + "<extra></extra>",
        "meta": {"role": role},
    }


def _line(history: History, name: str, role: str, of: Callable[[Bin], float | None]) -> dict[str, Any]:
    return {**_bars(history, name, role, of), "type": "scatter", "mode": "lines", "connectgaps": False}


def _limit(history: History, name: str, value: int | None, role: str = "share") -> list[dict[str, Any]]:
    if value is None:
        return []
    return [
        {
            "type": "scatter",
            "mode": "lines",
            "name": name,
            "x": [_x(history)[0], _x(history)[-1]],
            "y": [value, value],
            "line": {"dash": "dash"},
            "hovertemplate": f"{name}: %{{y:,}}<extra></extra>",
            "meta": {"role": role},
        }
    ]


def _x(history: History) -> list[str]:
    return [f"{each.at:%Y-%m-%d %H:%M}" for each in history.bins]


def _layout(history: History, y: str, second: str) -> dict[str, Any]:
    layout: dict[str, Any] = {
        "barmode": "stack",
        "margin": {"l": 56, "r": 60 if second else 20, "t": 40, "b": 44},
        "height": 260,
        "showlegend": True,
        "legend": {"orientation": "h", "y": 1.03, "yanchor": "bottom", "x": 0},
        "xaxis": {
            "type": "date",
            "title": {"text": "UTC"},
            "tickformat": "%a %H:%M" if history.period == "week" else "%H:%M",
            "automargin": True,
        },
        "yaxis": {"title": {"text": y}, "rangemode": "tozero", "nticks": 6, "tickformat": ",~s"},
    }
    if second:
        layout["yaxis2"] = {
            "title": {"text": second},
            "ticksuffix": " s",
            "nticks": 6,
            "automargin": True,
            "overlaying": "y",
            "side": "right",
            "rangemode": "tozero",
            "showgrid": False,
        }
    return layout
