"""Watches over the tasks that this process advances: renews their leases and passes on orders.

One thread a process, two small queries however many tasks it holds. An order, or the loss of the lease, sets
the task's `interrupt`; whoever waits for a model or a command sees it within a quarter of a second.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from django.db import DatabaseError, InterfaceError, OperationalError, connection

from workspaces.actions import leases
from workspaces.domain.states import PauseMode, TaskStatus
from workspaces.models import Task

logger = logging.getLogger(__name__)

WATCH_S = 0.2


@dataclass(slots=True)
class Orders:
    """What the outside wants of one held task. `interrupt` is set when anything is wanted at once."""

    task_id: int
    fence: int
    interrupt: threading.Event = field(default_factory=threading.Event)
    lost: bool = False
    cancel: bool = False
    pause_now: bool = False


class Keeper:
    """The leases of one process."""

    def __init__(self, lease_s: float, *, room: int = 1) -> None:
        self.lease_s = lease_s
        self._room = room
        self._draining = False
        self._held: dict[int, Orders] = {}
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    @contextmanager
    def holding(self, task_id: int, fence: int) -> Iterator[Orders]:
        orders = Orders(task_id, fence)
        with self._lock:
            self._held[task_id] = orders
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._watch, name="keeper", daemon=True)
                self._thread.start()
        try:
            yield orders
        finally:
            with self._lock:
                if self._held.get(task_id) is orders:
                    del self._held[task_id]

    def has_room(self) -> bool:
        """Whether a thread may go on with its task instead of taking the next one from the queue."""
        with self._lock:
            return not self._draining and len(self._held) < self._room

    def drain(self) -> None:
        """The process is to end: every thread stops after the step that it runs."""
        self._draining = True

    def _watch(self) -> None:
        renewed_at = time.monotonic()
        passed_over: set[int] = set()  # locked when the others were renewed
        while True:
            time.sleep(WATCH_S)
            with self._lock:
                held = dict(self._held)
            if not held:
                renewed_at = time.monotonic()
                continue
            try:
                if time.monotonic() - renewed_at > self.lease_s / 3:
                    passed_over = self._renew(held)
                    renewed_at = time.monotonic()
                elif passed_over:
                    passed_over = self._renew({pk: held[pk] for pk in passed_over & held.keys()})
                self._look(held)
            except (OperationalError, InterfaceError, DatabaseError) as error:
                logger.warning("the database does not answer the keeper: %s", error)
                if time.monotonic() - renewed_at > self.lease_s:
                    for orders in held.values():
                        _lose(orders)
            finally:
                connection.close()

    def _renew(self, held: dict[int, Orders]) -> set[int]:
        """The tasks that could not be renewed now: locked for a while, or lost, which `_look` tells by the fence."""
        return held.keys() - leases.renew({pk: orders.fence for pk, orders in held.items()}, lease_s=self.lease_s)

    def _look(self, held: dict[int, Orders]) -> None:
        wanted = Task.objects.filter(pk__in=list(held)).values_list("pk", "fence", "status", "pause_mode", "cancelling")
        for task_id, fence, status, pause_mode, cancelling in wanted:
            orders = held[task_id]
            if fence != orders.fence:
                _lose(orders)
                continue
            orders.cancel = cancelling
            orders.pause_now = status == TaskStatus.PAUSING.value and pause_mode == PauseMode.NOW.value
            if orders.cancel or orders.pause_now:
                orders.interrupt.set()


def _lose(orders: Orders) -> None:
    orders.lost = True
    orders.interrupt.set()
