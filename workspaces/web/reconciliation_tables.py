"""Differences, unreadable lines and previews of an export as tables of the cost pages. Pure."""

from __future__ import annotations

from workspaces.domain.provider_exports import ReadExport
from workspaces.queries.reconciliation import Reconciled
from workspaces.web.cost_tables import Column, Table, table


def difference_table(found: Reconciled) -> Table:
    columns = [
        Column("day", "Day (UTC)", "day"),
        Column("model", "Model"),
        Column("ours_in", "Input, ours", "count"),
        Column("theirs_in", "theirs", "count"),
        Column("gap_in", "difference", "gap"),
        Column("ours_out", "Output, ours", "count"),
        Column("theirs_out", "theirs", "count"),
        Column("gap_out", "difference", "gap"),
        Column("ours_usd", "USD, ours", "usd"),
        Column("theirs_usd", "theirs", "usd"),
        Column("gap_usd", "difference", "change"),
        Column("why", "What explains it"),
    ]
    rows = []
    for row in found.rows:
        ours, theirs = row.ours, row.theirs
        rows.append(
            [
                row.day.isoformat(),
                row.model,
                ours.input_tokens if ours else None,
                theirs.input_tokens if theirs else None,
                row.input_tokens,
                ours.output_tokens if ours else None,
                theirs.output_tokens if theirs else None,
                row.output_tokens,
                ours.cost_usd if ours else None,
                theirs.cost_usd if theirs else None,
                row.cost_usd,
                row.why,
            ]
        )
    return table("difference", "Per day and model", columns, rows, "A difference is ours less theirs.")


def bad_table(found: Reconciled) -> Table:
    columns = [Column("line", "Line", "count"), Column("problem", "What is wrong"), Column("raw", "The line")]
    rows = [[row.line, row.problem, row.raw] for row in found.bad]
    return table("bad", "Lines that could not be read", columns, rows)


def preview_table(read: ReadExport) -> Table:
    columns = [
        Column("line", "Line", "count"),
        Column("day", "Day", "day"),
        Column("model", "Model"),
        Column("input_tokens", "Input", "count"),
        Column("cached_input_tokens", "Cached", "count"),
        Column("cache_write_tokens", "Cache write", "count"),
        Column("output_tokens", "Output", "count"),
        Column("cost_usd", "USD", "usd"),
        Column("problem", "What is wrong"),
    ]
    rows = [
        [
            row.line,
            row.day.isoformat() if row.day else None,
            row.model,
            row.input_tokens,
            row.cached_input_tokens,
            row.cache_write_tokens,
            row.output_tokens,
            row.cost_usd,
            row.problem,
        ]
        for row in read.rows
    ]
    return table("preview", "As it would be read", columns, rows)
