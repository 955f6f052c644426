"""Sandbox time and stored bytes: read from counters, booked once, to whoever used them, at the site's price or none."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from django.db.models import F, Sum

from tests.harness import check_history, make_user, make_workspace, scripted_task, work
from tests.sandboxes.conftest import open_driver
from workspaces.actions import metering as booking
from workspaces.actions.prices import set_prices
from workspaces.domain.metering import GIB
from workspaces.domain.prices import Unit
from workspaces.engine import lifecycle, metering
from workspaces.engine.boxes import sandbox_for
from workspaces.models import Budget, BudgetAccount, SandboxMeter, StorageMeter, Task, UsageRecord, Workspace
from workspaces.queries.database import database_now
from workspaces.queries.integrity import verify
from workspaces.sandboxes import counters
from workspaces.sandboxes.base import MachineUsage
from workspaces.sandboxes.docker import DockerSandbox

pytestmark = pytest.mark.django_db(transaction=True)

FINISHES = "replies: [{calls: [{name: finish, arguments: {summary: done}}]}]"


@pytest.fixture(autouse=True)
def all_rules_hold() -> Iterator[None]:
    yield
    broken = [f"{found.rule.name}: {row.what}" for found in verify() for row in found.rows]
    assert not broken


def booked(workspace: Workspace, unit: Unit, **more: Task) -> Decimal:
    records = UsageRecord.objects.filter(workspace=workspace, unit=unit.value, **more)
    return records.aggregate(sum=Sum("quantity"))["sum"] or Decimal(0)


def machine(name: str, cpu_s: float, age_s: float, *, gib: float = 1, runs: bool = True) -> MachineUsage:
    return MachineUsage(name, cpu_s, age_s, int(gib * GIB), runs)


def test_a_machine_is_booked_once_whatever_is_read_twice_late_or_after_it_was_replaced() -> None:
    workspace = make_workspace(make_user())
    first, replaced = machine("a", 5, 10), machine("a", 8, 30, runs=False)
    booking.sandbox_read(workspace.pk, [first])
    booking.sandbox_read(workspace.pk, [first])
    assert (booked(workspace, Unit.CPU), booked(workspace, Unit.MEMORY)) == (5, 10)
    booking.sandbox_read(workspace.pk, [replaced, machine("b", 1, 2)])
    booking.sandbox_read(workspace.pk, [machine("a", 6, 20)])  # of a worker that was slow
    booking.sandbox_read(workspace.pk, [replaced, machine("b", 1, 2)])
    assert (booked(workspace, Unit.CPU), booked(workspace, Unit.MEMORY)) == (9, 32)
    assert set(UsageRecord.objects.values_list("cost_usd", "unit_price_usd", "price_source")) == {
        (None, None, "unknown")
    }
    assert set(UsageRecord.objects.values_list("user", "task", "profile")) == {(workspace.owner_id, None, None)}


def test_it_is_booked_to_the_task_that_used_it_at_the_site_s_price() -> None:
    task = work(scripted_task(FINISHES))
    per_hour = {Unit.CPU: Decimal("3.6"), Unit.MEMORY: Decimal("0.36")}
    set_prices("sandbox", per_hour, reason="the machine's bill", actor=task.created_by)
    booking.sandbox_read(task.workspace_id, [machine("a", 20, 60, runs=False)])
    records = UsageRecord.objects.filter(purpose="sandbox")
    # 20 s at 0.001, 60 GiB s at 0.0001
    assert {row.unit: row.cost_usd for row in records} == {
        "cpu_seconds": Decimal("0.02"),
        "memory_gib_seconds": Decimal("0.006"),
    }
    assert {(row.task, row.user, row.profile) for row in records} == {
        (task, task.created_by, task.profile_version.profile)
    }
    check_history(task)
    Task.objects.filter(pk=task.pk).update(last_event_at=F("last_event_at") - timedelta(hours=1))
    booking.sandbox_read(task.workspace_id, [machine("a", 21, 61, runs=False)])  # nobody has used it since
    assert records.filter(task=None, user=task.workspace.owner, unit="cpu_seconds").get().quantity == 1


def test_the_time_until_the_next_reading_is_held_in_the_budgets_above_and_given_back() -> None:
    task = scripted_task(FINISHES)
    set_prices("sandbox", {Unit.CPU: Decimal("3.6"), Unit.MEMORY: Decimal(0)}, reason="bill", actor=task.created_by)
    budget = Budget.objects.create(
        scope="workspace",
        workspace=task.workspace,
        period="total",
        limit_usd=Decimal("0.10"),
        created_by=task.created_by,
        created_at=database_now(),
    )
    Workspace.objects.filter(pk=task.workspace_id).update(held_by=task, cpus=1)
    booking.sandbox_read(task.workspace_id, [machine("a", 20, 30)])
    account = BudgetAccount.objects.get(budget=budget)
    assert (account.spent_usd, account.reserved_usd) == (Decimal("0.02"), Decimal("0.06"))  # a minute of one CPU
    booking.sandbox_read(task.workspace_id, [machine("a", 70, 90)])
    account.refresh_from_db()
    assert (account.spent_usd, account.reserved_usd) == (Decimal("0.07"), 0)  # there is no room for another minute
    booking.sandbox_read(task.workspace_id, [machine("a", 75, 95, runs=False)])
    account.refresh_from_db()
    assert (account.spent_usd, account.reserved_usd) == (Decimal("0.075"), 0)


def test_stored_bytes_are_booked_every_six_hours_to_the_workspace_s_owner() -> None:
    task = work(
        scripted_task(
            FINISHES.replace("{name: finish", "{name: write_file, arguments: {path: a, content: xxxx}}, {name: finish")
        )
    )
    workspace = task.workspace
    assert booking.storage_due() == [workspace.pk]
    metering.count(workspace)
    meter = StorageMeter.objects.get(workspace=workspace)
    kept = workspace.snapshots.filter(freed_at=None).aggregate(bytes=Sum("added_bytes"))["bytes"]
    assert meter.snapshot_bytes == kept > 0
    assert meter.disk_bytes == sandbox_for(workspace).usage().disk_bytes
    assert (booking.storage_due(), booked(workspace, Unit.STORAGE)) == ([], 0)

    StorageMeter.objects.update(at=database_now() - timedelta(hours=5, minutes=50))
    assert booking.storage_due() == []
    StorageMeter.objects.update(at=database_now() - timedelta(hours=6), disk_bytes=GIB, snapshot_bytes=3 * GIB)
    assert booking.storage_due() == [workspace.pk]
    booking.storage_counted(workspace.pk, disk_bytes=4 * GIB - kept)
    booking.storage_counted(workspace.pk, disk_bytes=4 * GIB - kept)  # at once again
    record = UsageRecord.objects.filter(purpose="storage").first()
    assert record is not None
    assert record.quantity == pytest.approx(Decimal(24), abs=Decimal("0.1"))
    assert (record.user, record.task, record.cost_usd) == (workspace.owner, None, None)
    assert booked(workspace, Unit.STORAGE) == pytest.approx(Decimal(24), abs=Decimal("0.2"))


def test_a_sandbox_that_is_not_measured_books_nothing() -> None:
    task = work(scripted_task(FINISHES), until=lambda t: t.steps_taken >= 1)
    assert sandbox_for(task.workspace).machines() is None
    assert metering.run()
    assert not UsageRecord.objects.filter(purpose="sandbox").exists()
    assert StorageMeter.objects.filter(workspace=task.workspace).exists()


@pytest.mark.docker
def test_a_container_that_burns_a_second_is_booked_also_after_it_was_removed(tmp_path: Path) -> None:
    open_driver("docker", "content", tmp_path / "probe").close()  # skips where there is no Docker
    burn = "(ulimit -t 1; while :; do :; done) || true"  # until it has had its second, on however busy a machine
    task = work(
        scripted_task(
            f"replies: [{{calls: [{{name: shell, arguments: {{command: '{burn}'}}}}]}},"
            " {calls: [{name: finish, arguments: {summary: done}}]}]",
            driver="docker",
        )
    )
    workspace = task.workspace
    sandbox = sandbox_for(workspace)
    assert isinstance(sandbox, DockerSandbox)
    try:
        assert metering.run()
        cpu = booked(workspace, Unit.CPU, task=task)
        assert cpu > Decimal("0.9")
        assert booked(workspace, Unit.MEMORY) > 0
        (running,) = sandbox.machines() or []
        told = sandbox._api.stats(sandbox.container_name, stream=False, one_shot=True)
        said = counters.from_stats(running.machine, told, sandbox._inspect()["State"]["StartedAt"])
        assert said is not None  # what a remote engine says is the same, but for the moments between
        assert said.cpu_s == pytest.approx(running.cpu_s, abs=5)
        assert said.age_s == pytest.approx(running.age_s, abs=30)

        Workspace.objects.filter(pk=workspace.pk).update(used_at=database_now() - timedelta(days=1))
        Task.objects.update(status_since=database_now() - timedelta(days=1))
        assert lifecycle.sleep(workspace.pk)
        assert sandbox.state() == "stopped"
        meter = SandboxMeter.objects.get(workspace=workspace)
        assert meter.cpu_s >= float(cpu)
        total = booked(workspace, Unit.CPU)
        assert float(total) == pytest.approx(meter.cpu_s, abs=0.0001)
        metering.count(workspace)
        assert booked(workspace, Unit.CPU) == total
    finally:
        sandbox.destroy()
