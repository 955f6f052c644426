"""The only door for usage records: they come with their sums, in one statement, or not at all.

A record of a task is booked to the task's profile, also where a fallback answered: its model says who did. Whoever
books holds what makes it happen once (a task's row, a meter's): a record is never changed afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

from django.db import connection

from workspaces.domain.prices import PricedUnit
from workspaces.domain.states import ModelCallPurpose, UsagePurpose
from workspaces.models import ModelCall, Task, UsageRecord

_COLUMNS = [field for field in UsageRecord._meta.concrete_fields if not field.primary_key]
_NAMES = ", ".join(f'"{field.column}"' for field in _COLUMNS)
_PROFILE = (
    "(SELECT version.profile_id FROM workspaces_task AS task JOIN workspaces_profileversion AS version"
    " ON version.id = task.profile_version_id WHERE task.id = %s)"
)
_ROW = f"({', '.join(_PROFILE if field.column == 'profile_id' else '%s' for field in _COLUMNS)})"
# Hour and day are those of UTC whatever the session's time zone. Rows are taken in one order by everyone.
_BOOK = f"""
WITH booked AS (INSERT INTO workspaces_usagerecord ({_NAMES}) VALUES {{rows}} RETURNING *),
days AS (
    INSERT INTO workspaces_usageday AS sums (day, user_id, workspace_id, task_id, profile_id, model, purpose,
                                             records, cost_usd, unpriced)
    SELECT (created_at AT TIME ZONE 'UTC')::date, user_id, workspace_id, task_id, profile_id, model, purpose,
           count(*), coalesce(sum(cost_usd), 0), count(*) FILTER (WHERE cost_usd IS NULL)
      FROM booked GROUP BY 1, 2, 3, 4, 5, 6, 7 ORDER BY 1, 2, 3, 4, 5, 6, 7
        ON CONFLICT (day, task_id, workspace_id, user_id, profile_id, model, purpose) DO UPDATE
       SET records = sums.records + excluded.records, cost_usd = sums.cost_usd + excluded.cost_usd,
           unpriced = sums.unpriced + excluded.unpriced)
INSERT INTO workspaces_usagerollup AS rollup (hour, user_id, workspace_id, task_id, profile_id, model, purpose, unit,
                                              records, quantity, cost_usd, unpriced, unpriced_quantity)
SELECT date_trunc('hour', created_at, 'UTC') AS hour, user_id, workspace_id, task_id, profile_id, model, purpose, unit,
       count(*), sum(quantity), coalesce(sum(cost_usd), 0), count(*) FILTER (WHERE cost_usd IS NULL),
       coalesce(sum(quantity) FILTER (WHERE cost_usd IS NULL), 0)
  FROM booked GROUP BY 1, 2, 3, 4, 5, 6, 7, 8 ORDER BY 1, 2, 3, 4, 5, 6, 7, 8
    ON CONFLICT (hour, task_id, workspace_id, user_id, profile_id, model, purpose, unit) DO UPDATE
   SET records = rollup.records + excluded.records, quantity = rollup.quantity + excluded.quantity,
       cost_usd = rollup.cost_usd + excluded.cost_usd, unpriced = rollup.unpriced + excluded.unpriced,
       unpriced_quantity = rollup.unpriced_quantity + excluded.unpriced_quantity
"""  # noqa: S608 - columns of the model


def book(records: Sequence[UsageRecord]) -> None:
    """Write the records and add them to the sums. In the caller's transaction; one statement."""
    if not records:
        return
    values: list[Any] = [
        record.task_id
        if field.column == "profile_id"
        else field.get_db_prep_save(getattr(record, field.attname), connection)
        for record in records
        for field in _COLUMNS
    ]
    with connection.cursor() as cursor:
        cursor.execute(_BOOK.format(rows=", ".join([_ROW] * len(records))), values)


def of_call(task: Task, call: ModelCall, priced: Iterable[PricedUnit], *, at: datetime) -> list[UsageRecord]:
    """The records of one model call, booked to the task's owner."""
    return [
        UsageRecord(
            user_id=task.created_by_id,
            workspace_id=task.workspace_id,
            task=task,
            step_id=call.step_id,
            model_call=call,
            model=call.model,
            purpose=purpose_of(call).value,
            unit=row.unit.value,
            quantity=row.quantity,
            unit_price_usd=row.unit_price_usd,
            cost_usd=row.cost_usd,
            price_source=row.source,
            created_at=at,
        )
        for row in priced
    ]


def of_resource(
    *,
    user_id: int,
    workspace_id: int,
    task_id: int | None,
    purpose: UsagePurpose,
    priced: Iterable[PricedUnit],
    at: datetime,
) -> list[UsageRecord]:
    """The records of a sandbox's time or of stored bytes."""
    return [
        UsageRecord(
            user_id=user_id,
            workspace_id=workspace_id,
            task_id=task_id,
            purpose=purpose.value,
            unit=row.unit.value,
            quantity=row.quantity.quantize(Decimal("0.000001")),
            unit_price_usd=row.unit_price_usd,
            cost_usd=row.cost_usd,
            price_source=row.source,
            created_at=at,
        )
        for row in priced
    ]


def purpose_of(call: ModelCall) -> UsagePurpose:
    """A step's call after one that failed is a retry; what is asked beside it is what it is for."""
    own = call.purpose == ModelCallPurpose.STEP.value
    return UsagePurpose.RETRY if own and call.attempt > 1 else UsagePurpose(call.purpose)
