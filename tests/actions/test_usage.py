"""The door for usage records: with their sums in one statement, or not at all; and the records of before it."""

from __future__ import annotations

from datetime import UTC
from decimal import Decimal
from importlib import import_module
from uuid import uuid4

import pytest
from django.db import connection, transaction

from tests.harness import quota_frees, scripted_task, work
from workspaces.actions.usage import book, of_resource
from workspaces.domain.prices import PricedUnit, Unit
from workspaces.domain.states import UsagePurpose
from workspaces.models import Task, UsageDay, UsageRecord, UsageRollup
from workspaces.queries.database import database_now
from workspaces.queries.integrity import verify

pytestmark = pytest.mark.django_db(transaction=True)

RETRIES = """
replies:
  - calls: [{name: note, arguments: {section: plan, text: a}}]
    fault: {kind: server, times: 1}
    usage: {input: 100, output: 30, reasoning: 10}
  - calls: [{name: finish, arguments: {summary: done}}]
"""


def broken() -> list[str]:
    return [f"{found.rule.name}: {row.what}" for found in verify() for row in found.rows]


def retried() -> Task:
    """Its first step's call failed once."""
    scenario = f"{RETRIES}# {uuid4()}"  # a fault is counted by its scenario
    task = work(scripted_task(scenario, input_usd_per_mtok=Decimal(2), output_usd_per_mtok=Decimal(8)))
    if task.status == "waiting":  # unless its moment has come already
        quota_frees()
        task = work(task)
    assert task.status == "succeeded"
    return task


def test_a_call_after_a_failure_is_a_retry_and_the_sums_are_those_of_the_records() -> None:
    task = retried()
    assert set(UsageRecord.objects.filter(step__number=1).values_list("purpose", flat=True)) == {"retry"}
    assert set(UsageRecord.objects.exclude(step__number=1).values_list("purpose", flat=True)) == {"step"}
    reasoned = UsageRollup.objects.get(task=task, unit="reasoning_tokens", purpose="retry")
    assert (reasoned.records, reasoned.quantity, reasoned.cost_usd) == (1, 10, Decimal("0.00008"))
    assert reasoned.profile_id == task.profile_version.profile_id
    assert sum(UsageRollup.objects.values_list("cost_usd", flat=True)) == task.cost_usd
    assert not broken()


def test_records_that_are_not_written_leave_no_sum_and_what_is_alike_is_one_row() -> None:
    task = work(scripted_task("replies: [{calls: [{name: finish, arguments: {summary: done}}]}]"))
    now = database_now()
    priced = [
        PricedUnit(Unit.CPU, Decimal("1.5"), None, None, "unknown"),
        PricedUnit(Unit.CPU, Decimal("2"), Decimal("0.001"), Decimal("0.002"), "site price 1: sandbox"),
    ]

    def write(task_id: int | None) -> None:
        book(
            of_resource(
                user_id=task.created_by_id,
                workspace_id=task.workspace_id,
                task_id=task_id,
                purpose=UsagePurpose.SANDBOX,
                priced=priced,
                at=now,
            )
        )

    with transaction.atomic():
        write(None)
        transaction.set_rollback(True)
    assert not UsageRollup.objects.filter(purpose="sandbox").exists()
    assert not UsageDay.objects.filter(purpose="sandbox").exists()
    write(None)
    write(None)
    write(task.pk)
    of_nobody = UsageRollup.objects.get(purpose="sandbox", task=None)
    assert (of_nobody.records, of_nobody.quantity, of_nobody.cost_usd) == (4, 7, Decimal("0.004"))
    assert (of_nobody.unpriced, of_nobody.unpriced_quantity) == (2, 3)
    day = UsageDay.objects.get(purpose="sandbox", task=None)
    assert (day.day, day.records, day.cost_usd, day.unpriced) == (now.astimezone(UTC).date(), 4, Decimal("0.004"), 2)
    assert of_nobody.hour == now.replace(minute=0, second=0, microsecond=0)
    assert UsageRollup.objects.get(purpose="sandbox", task=task).profile_id == task.profile_version.profile_id
    assert not broken()


def test_records_of_before_learn_whose_they_are_and_get_their_sums() -> None:
    retried()
    forget = """
        ALTER TABLE workspaces_usagerecord DISABLE TRIGGER workspaces_usagerecord_append_only;
        UPDATE workspaces_usagerecord SET profile_id = NULL, model = '', purpose = 'step', unit_price_usd = NULL;
        SET CONSTRAINTS ALL IMMEDIATE;
        ALTER TABLE workspaces_usagerecord ENABLE TRIGGER workspaces_usagerecord_append_only;
        DELETE FROM workspaces_usagerollup;
        DELETE FROM workspaces_usageday;
    """
    fills = [import_module(f"workspaces.migrations.{name}").FILL for name in ("0026_usage_sums", "0033_usage_by_day")]
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(forget)
    assert broken()
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(fills[0])
    assert {what.partition(":")[0] for what in broken()} == {"days"}
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(fills[1])
    assert not broken()
