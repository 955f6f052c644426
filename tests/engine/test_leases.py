"""Leases of one process stand by themselves: a long write about one task costs no other task its lease."""

from __future__ import annotations

import threading
import time
from datetime import timedelta

import pytest
from django.db import connection
from django.utils import timezone

from tests.harness import scripted_task
from workspaces.actions import leases
from workspaces.actions.pen import writing
from workspaces.engine.keeper import Keeper
from workspaces.models import Task

pytestmark = pytest.mark.django_db(transaction=True)
SCENARIO = "replies: [{text: x}]"


def claimed(lease_s: float) -> leases.Claim:
    claim = leases.claim(scripted_task(SCENARIO).pk, worker="here", lease_s=lease_s)
    assert claim is not None
    return claim


def test_a_locked_task_is_passed_over_and_the_others_are_renewed() -> None:
    locked, free, lost = claimed(5), claimed(5), claimed(5)
    inside, leave = threading.Event(), threading.Event()

    def write_long() -> None:
        with writing(locked.task_id):
            inside.set()
            leave.wait(20)
        connection.close()

    writer = threading.Thread(target=write_long)
    writer.start()
    try:
        assert inside.wait(10)
        began = time.monotonic()
        held = {locked.task_id: locked.fence, free.task_id: free.fence, lost.task_id: lost.fence - 1}
        assert leases.renew(held, lease_s=100) == {free.task_id}
        assert time.monotonic() - began < 2, "it waited for the lock"
    finally:
        leave.set()
        writer.join()
    assert leases.renew({locked.task_id: locked.fence}, lease_s=100) == {locked.task_id}


def test_a_lease_that_was_let_go_is_not_renewed() -> None:
    """The keeper may have read its list a moment before."""
    claim = claimed(5)
    assert leases.renew({claim.task_id: claim.fence}, lease_s=100) == {claim.task_id}
    leases.release(claim.task_id, claim.fence)
    assert leases.renew({claim.task_id: claim.fence}, lease_s=100) == set()
    assert leases.claim(claim.task_id, worker="another", lease_s=5) is not None


def test_the_keeper_does_not_take_a_locked_task_for_a_lost_one() -> None:
    """Longer than the lease, so that it is renewed as soon as it can be, and the other one all the time."""
    lease_s = 1.5
    keeper = Keeper(lease_s)
    locked, free = claimed(lease_s), claimed(lease_s)
    with keeper.holding(locked.task_id, locked.fence) as ours, keeper.holding(free.task_id, free.fence) as other:
        with writing(locked.task_id):
            time.sleep(2 * lease_s)
        assert leases.claim(free.task_id, worker="another", lease_s=lease_s) is None
        time.sleep(1)
        assert not ours.lost
        assert not other.lost
        until = Task.objects.get(pk=locked.task_id).lease_until
        assert until is not None
        assert until > timezone.now() + timedelta(seconds=lease_s / 4)


def test_the_keeper_tells_a_lost_task() -> None:
    keeper = Keeper(5)
    claim = claimed(5)
    with keeper.holding(claim.task_id, claim.fence) as orders:
        Task.objects.filter(pk=claim.task_id).update(fence=claim.fence + 1)
        assert orders.interrupt.wait(5)
        assert orders.lost
