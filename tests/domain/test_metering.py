"""Counters in, quantities out: however often and in what order a machine is read, nothing counts twice or is lost."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workspaces.domain.metering import GIB, Counters, Used, most_in, stored_gib_hours, used_between

STEPS = st.lists(st.tuples(st.integers(0, 5000), st.integers(1, 5000)), min_size=1, max_size=12)


@given(STEPS, st.lists(st.integers(0, 11), max_size=30))
@settings(max_examples=100, derandomize=True, deadline=None)
def test_readings_add_up_to_the_last_one_in_whatever_order_they_come(
    steps: list[tuple[int, int]], order: list[int]
) -> None:
    readings, cpu, age = [], 0, 0
    for more_cpu, more_age in steps:
        cpu, age = cpu + more_cpu, age + more_age
        readings.append(Counters(cpu / 1000, age / 1000, 2 * GIB))
    booked, parts = None, []
    for at in [at for at in order if at < len(readings)] + [len(readings) - 1]:
        used = used_between(booked, readings[at])
        if used is not None:
            booked = readings[at]
            parts.append(used)
    assert Used.sum(parts).cpu_s == pytest.approx(cpu / 1000)
    assert Used.sum(parts).memory_gib_s == pytest.approx(2 * age / 1000)


def test_memory_is_taken_to_have_changed_evenly() -> None:
    used = used_between(Counters(1, 10, 1 * GIB), Counters(3, 20, 2 * GIB))
    assert used == Used(2, 15.0)
    assert used.quantities == (Decimal("2.000000"), Decimal("15.000000"))
    assert most_in(60, cpus=1.5, memory_bytes=GIB // 2) == Used(90, 30)


def test_stored_bytes_by_the_hour() -> None:
    assert stored_gib_hours(GIB, 3 * GIB, 1800) == Decimal("1.000000")
    assert stored_gib_hours(GIB, GIB, -5) == 0
