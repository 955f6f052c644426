"""What a running machine and stored bytes have used since they were last read. Counters in, quantities out.

A machine's counters only grow and are its own: read twice they give nothing twice, read late they give all of it. A
reading that is older than the one that was booked gives nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal

GIB = 1024**3
INTERVAL_S = 60.0  # between two readings
STORAGE_EVERY_S = 6 * 3600.0  # it changes slowly, and every time leaves a record of every workspace
_PLACES = Decimal("0.000001")


@dataclass(frozen=True, slots=True)
class Counters:
    """Of one machine since it started. `memory_bytes`: what it holds now."""

    cpu_s: float = 0.0
    age_s: float = 0.0
    memory_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Used:
    cpu_s: float = 0.0
    memory_gib_s: float = 0.0

    @classmethod
    def sum(cls, parts: Iterable[Used]) -> Used:
        found = list(parts)
        return cls(sum(part.cpu_s for part in found), sum(part.memory_gib_s for part in found))

    @property
    def quantities(self) -> tuple[Decimal, Decimal]:
        """CPU seconds and GiB seconds, with six places."""
        return (_exact(self.cpu_s), _exact(self.memory_gib_s))


def used_between(before: Counters | None, now: Counters) -> Used | None:
    """Since `before` (None: since it started). None: `now` is the older reading.

    Memory has no counter: between two readings it is taken to have changed evenly.
    """
    if before is None:
        return Used(now.cpu_s, now.memory_bytes / GIB * now.age_s)
    cpu_s, age_s = now.cpu_s - before.cpu_s, now.age_s - before.age_s
    if cpu_s < 0 or age_s < 0:
        return None
    return Used(cpu_s, (before.memory_bytes + now.memory_bytes) / 2 / GIB * age_s)


def most_in(interval_s: float, *, cpus: float, memory_bytes: int) -> Used:
    """What a machine with these limits can use in the time."""
    return Used(cpus * interval_s, memory_bytes / GIB * interval_s)


def stored_gib_hours(before_bytes: int, now_bytes: int, elapsed_s: float) -> Decimal:
    """What was stored between two counts, taken to have changed evenly."""
    return _exact((before_bytes + now_bytes) / 2 / GIB * max(0.0, elapsed_s) / 3600)


def _exact(value: float) -> Decimal:
    return Decimal(value).quantize(_PLACES)
