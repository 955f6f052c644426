"""Figures are made of rows alone."""

from __future__ import annotations

import json
from decimal import Decimal

from workspaces.queries.usage import StepUsage
from workspaces.web.charts import usage_figure


def test_an_unknown_cost_is_a_gap_and_never_zero() -> None:
    rows = [StepUsage(1, 1, 100, 10, Decimal("0.5")), StepUsage(2, 1, 200, 20, None)]
    prompt, output, cost = usage_figure(rows)["data"]
    assert (prompt["y"], output["y"], cost["y"]) == ([100, 200], [10, 20], [0.5, None])
    assert cost["connectgaps"] is False


def test_without_any_price_there_is_no_line() -> None:
    figure = usage_figure([StepUsage(1, 2, 100, 10, None)])
    assert [trace["type"] for trace in figure["data"]] == ["bar", "bar"]
    assert figure["data"][0]["text"] == ["step 1, branch 2"]


def test_a_figure_is_plain_json_also_when_empty() -> None:
    assert json.loads(json.dumps(usage_figure([])))["data"][0]["x"] == []
