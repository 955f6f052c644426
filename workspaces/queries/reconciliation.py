"""An import beside what was recorded here on its days: both sides per day and model, and what explains a gap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any

from django.db import connection
from django.db.models import F, Sum
from django.db.models.functions import Coalesce

from workspaces.domain.cost_periods import DAY, midnight
from workspaces.domain.provider_exports import model_key
from workspaces.domain.reconciliation import Counted, Difference, Gaps, differences
from workspaces.models import UsageImport, UsageImportRow

BAD_SHOWN = 200
MOST_DAYS = 400


@dataclass(frozen=True, slots=True)
class Reconciled:
    rows: Sequence[Difference]
    bad: Sequence[UsageImportRow]
    whole_days: bool  # the export names no models
    from_day: date | None
    cut: bool  # it spans more days than are compared at once


def imports() -> list[UsageImport]:
    """The newest first, without their text."""
    return list(UsageImport.objects.select_related("created_by").defer("text").order_by("-pk")[:200])


def reconciled(source: UsageImport) -> Reconciled:
    bad = list(source.rows.exclude(problem="").order_by("line")[:BAD_SHOWN])
    if source.first_day is None or source.last_day is None:
        return Reconciled([], bad, False, None, False)
    first = max(source.first_day, source.last_day - timedelta(days=MOST_DAYS - 1))
    theirs = _theirs(source, first)
    whole_days = all(not row.model for row in theirs)
    ours, gaps = _ours(source, theirs, first, whole_days)
    found = differences(ours, theirs, gaps, whole_days=whole_days)
    return Reconciled(found, bad, whole_days, first, first != source.first_day)


def _theirs(source: UsageImport, first: date) -> list[Counted]:
    prompt = F("input_tokens") + Coalesce("cached_input_tokens", 0) + Coalesce("cache_write_tokens", 0)
    rows = (
        source.rows.filter(problem="", day__isnull=False, day__gte=first)
        .order_by()
        .values("day", "model")
        .annotate(prompt=Sum(prompt), output=Sum("output_tokens"), usd=Sum("cost_usd"))
    )
    return [Counted(row["day"], row["model"], row["prompt"], row["output"], row["usd"]) for row in rows if row["day"]]


def _ours(
    source: UsageImport, theirs: Sequence[Counted], first: date, whole_days: bool
) -> tuple[list[Counted], list[Gaps]]:
    """Of the provider's profiles, and of every model that the export names (a fallback may have asked for it)."""
    assert source.last_day is not None
    start, until = midnight(first), midnight(source.last_day) + DAY
    named = {model_key(row.model) for row in theirs}
    token_costs = any(row.cost_usd is not None for row in theirs)
    tokens = any(row.input_tokens is not None or row.output_tokens is not None for row in theirs)
    ours, gaps = [], []
    for day, model, of_provider, prompt, output, usd, unpriced in _sums(start, until, source.provider):
        if not (model_key(model) in named or (of_provider and (source.provider or whole_days))):
            continue
        ours.append(
            Counted(
                day,
                model,
                int(prompt or 0) if tokens else None,
                int(output or 0) if tokens else None,
                usd if token_costs else None,
            )
        )
        if unpriced and token_costs:
            gaps.append(Gaps(day, model, unpriced=int(unpriced)))
    gaps += [Gaps(day, model, int(silent), int(lost)) for day, model, silent, lost in _gaps(start, until)]
    return ours, gaps


def _sums(start: datetime, until: datetime, provider: str) -> list[tuple[Any, ...]]:
    return _rows(
        """
        SELECT (date_trunc('day', r.hour, 'UTC') AT TIME ZONE 'UTC')::date, r.model,
               %(provider)s = '' OR EXISTS (SELECT FROM workspaces_profileversion AS v
                                             WHERE v.profile_id = r.profile_id AND v.provider = %(provider)s),
               sum(r.quantity) FILTER (WHERE r.unit IN ('input_tokens', 'cached_input_tokens', 'cache_write_tokens')),
               sum(r.quantity) FILTER (WHERE r.unit IN ('output_tokens', 'reasoning_tokens')),
               sum(r.cost_usd), sum(r.unpriced)
          FROM (SELECT hour, model, profile_id, unit, sum(quantity) AS quantity, sum(cost_usd) AS cost_usd,
                       sum(unpriced) AS unpriced
                  FROM workspaces_usagerollup
                 WHERE hour >= %(start)s AND hour < %(until)s AND model <> ''
                 GROUP BY 1, 2, 3, 4) AS r
         GROUP BY 1, 2, 3
        """,
        {"start": start, "until": until, "provider": provider},
    )


def _gaps(start: datetime, until: datetime) -> list[tuple[Any, ...]]:
    """Calls that left no usage: answered without telling it, or never answered though they may have been billed."""
    return _rows(
        """
        SELECT (date_trunc('day', started_at, 'UTC') AT TIME ZONE 'UTC')::date, model,
               count(*) FILTER (WHERE status = 'replied'), count(*) FILTER (WHERE status <> 'replied')
          FROM workspaces_modelcall
         WHERE started_at >= %(start)s AND started_at < %(until)s
           AND (status = 'replied' AND input_tokens IS NULL AND output_tokens IS NULL OR status = 'dropped'
                OR status = 'failed' AND error_kind IN ('timeout', 'malformed'))
         GROUP BY 1, 2
        """,
        {"start": start, "until": until},
    )


def _rows(sql: str, values: dict[str, Any]) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql, values)
        rows: list[tuple[Any, ...]] = cursor.fetchall()
    return rows
