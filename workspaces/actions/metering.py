"""Sandbox time and stored bytes: booked from counters, in one transaction with how far they were booked.

Any number of workers may read at once, late, or twice: the meter's row says what was booked. What is booked is charged
to the budgets above whoever used it, and the most that the time until the next reading can cost is held there.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from decimal import Decimal

from django.db import connection, transaction
from django.db.models import Q, Sum
from django.db.models.functions import Now

from workspaces import dispatch
from workspaces.domain import metering, prices
from workspaces.domain.metering import Counters, Used
from workspaces.domain.prices import PricedUnit, Unit, UnitPrice
from workspaces.domain.states import UsagePurpose
from workspaces.models import SandboxMeter, Snapshot, StorageMeter, Task, Workspace
from workspaces.queries.prices import price_book
from workspaces.sandboxes.base import MachineUsage

from . import budget_holds
from .clock import database_now
from .usage import book, of_resource

_METERED = 7_411_905  # the advisory lock of one workspace's meters
KEPT = 64  # rows of machines, of one workspace: more than a sandbox tells of
BATCH = 200


def call_for_reading() -> None:
    """Have a worker read what runs, and what is stored where that is due."""
    dispatch.read_meters()


def sandbox_read(workspace_id: int, machines: Sequence[MachineUsage]) -> Used:
    """Book what the machines have used since they were last read. Returns how much that was."""
    with transaction.atomic():
        _alone(workspace_id)
        now = database_now()
        known = {row.machine: row for row in SandboxMeter.objects.filter(workspace=workspace_id)}
        before = max((row.at for row in known.values()), default=None)
        used = Used.sum(_noted(workspace_id, machine, known.get(machine.machine), now) for machine in machines)
        if len(known) > KEPT:
            newest = SandboxMeter.objects.filter(workspace=workspace_id).order_by("-pk").values("pk")[:KEPT]
            SandboxMeter.objects.filter(workspace=workspace_id).exclude(pk__in=newest).delete()
        workspace = Workspace.objects.select_related("held_by", "owner").get(pk=workspace_id)
        runs = any(machine.runs for machine in machines)
        _book_sandbox(workspace, _user_of(workspace, before), used, runs=runs, at=now)
    return used


def _noted(workspace_id: int, machine: MachineUsage, row: SandboxMeter | None, now: datetime) -> Used:
    counters = Counters(machine.cpu_s, machine.age_s, machine.memory_bytes)
    if row is None:
        row = SandboxMeter(workspace_id=workspace_id, machine=machine.machine)
        used = metering.used_between(None, counters)
    else:
        used = metering.used_between(Counters(row.cpu_s, row.age_s, row.memory_bytes), counters)
        if used == Used() and row.age_s == counters.age_s:
            return used
    if used is None:
        return Used()
    row.cpu_s, row.age_s, row.memory_bytes, row.at = counters.cpu_s, counters.age_s, counters.memory_bytes, now
    row.save()
    return used


def _user_of(workspace: Workspace, since: datetime | None) -> Task | None:
    """The task that holds the workspace, else the one that held it since the last reading."""
    if workspace.held_by is not None:
        return workspace.held_by
    lately = Task.objects.filter(workspace=workspace).order_by("-last_event_at", "-pk")
    return lately.filter(last_event_at__gte=since).first() if since is not None else lately.first()


def _book_sandbox(workspace: Workspace, task: Task | None, used: Used, *, runs: bool, at: datetime) -> None:
    table = price_book().resources(prices.SANDBOX)
    most = metering.most_in(metering.INTERVAL_S, cpus=float(workspace.cpus), memory_bytes=workspace.memory_bytes)
    _book(
        workspace,
        task,
        UsagePurpose.SANDBOX,
        _priced(used, table),
        coming=_priced(most, table) if runs else [],
        at=at,
    )


def _priced(used: Used, table: dict[Unit, UnitPrice]) -> list[PricedUnit]:
    cpu, memory = used.quantities
    return prices.priced({Unit.CPU: cpu, Unit.MEMORY: memory}, table)


def storage_due() -> list[int]:
    """Workspaces whose stored bytes were last counted six hours ago, or never."""
    counted = StorageMeter.objects.filter(at__gt=Now() - timedelta(seconds=metering.STORAGE_EVERY_S))
    found = Workspace.objects.exclude(pk__in=counted.values("workspace")).order_by("storage_meter__at", "pk")
    return list(found.values_list("pk", flat=True)[:BATCH])


def storage_counted(workspace_id: int, *, disk_bytes: int | None) -> Decimal:
    """Book what was stored since the last count, in GiB hours. `disk_bytes` None: not known now, taken as it was."""
    with transaction.atomic():
        _alone(workspace_id)
        now = database_now()
        row = StorageMeter.objects.filter(workspace=workspace_id).first()
        before = row.disk_bytes + row.snapshot_bytes if row is not None else 0
        since = row.at if row is not None else now
        row = row or StorageMeter(workspace_id=workspace_id, disk_bytes=0)
        row.disk_bytes = row.disk_bytes if disk_bytes is None else disk_bytes
        row.snapshot_bytes = _snapshot_bytes(workspace_id)
        row.at = now
        row.save()
        stored = row.disk_bytes + row.snapshot_bytes
        quantity = metering.stored_gib_hours(before, stored, (now - since).total_seconds())
        workspace = Workspace.objects.select_related("owner").get(pk=workspace_id)
        table = price_book().resources(prices.STORAGE)
        coming = metering.stored_gib_hours(stored, stored, metering.STORAGE_EVERY_S)
        if quantity or coming:
            _book(
                workspace,
                None,
                UsagePurpose.STORAGE,
                prices.priced({Unit.STORAGE: quantity}, table),
                coming=prices.priced({Unit.STORAGE: coming}, table),
                at=now,
            )
    return quantity


def _snapshot_bytes(workspace_id: int) -> int:
    """What each kept snapshot added when it was saved: bytes that several share are counted once, by the first."""
    kept = Snapshot.objects.filter(Q(freed_at=None), workspace=workspace_id)
    return kept.aggregate(bytes=Sum("added_bytes"))["bytes"] or 0


def _book(
    workspace: Workspace,
    task: Task | None,
    purpose: UsagePurpose,
    rows: Sequence[PricedUnit],
    *,
    coming: Sequence[PricedUnit],
    at: datetime,
) -> None:
    """`coming`: the most until the next time; held in the budgets as far as its price is known."""
    user_id = task.created_by_id if task is not None else workspace.owner_id
    task_id = task.pk if task is not None else None
    budget_holds.meter(
        user_id=user_id,
        workspace_id=workspace.pk,
        task_id=task_id,
        purpose=purpose,
        spent_usd=sum((row.cost_usd for row in rows if row.cost_usd is not None), Decimal(0)),
        next_usd=sum((row.cost_usd for row in coming if row.cost_usd is not None), Decimal(0)),
        at=at,
    )
    book(of_resource(user_id=user_id, workspace_id=workspace.pk, task_id=task_id, purpose=purpose, priced=rows, at=at))


def _alone(workspace_id: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s, %s)", [_METERED, workspace_id % 2**31])
