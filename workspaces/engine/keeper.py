"""Watches over the tasks that this process advances: renews their leases and passes on orders.

One thread a process, two small queries however many tasks it holds. An order, or the loss of the lease, sets
the task's `interrupt`; whoever waits for a model or a command sees it within a quarter of a second.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from django.db import DatabaseError, InterfaceError, OperationalError, connection, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from workspaces.actions import leases
from workspaces.domain.states import PauseMode, TaskStatus
from workspaces.models import Task

logger = logging.getLogger(__name__)

WATCH_S = 0.2
INTERRUPTED_S = 5.0  # from the interrupt, which is seen within a quarter of a second, to the end by force


@dataclass(slots=True)
class Orders:
    """What the outside wants of one held task. `interrupt` is set when anything is wanted at once."""

    task_id: int
    fence: int
    interrupt: threading.Event = field(default_factory=threading.Event)
    lost: bool = False
    cancel: bool = False
    pause_now: bool = False
    hand_over: bool = False  # the process is to end: not beyond the phase (or call) that runs

    def why(self) -> str:
        """What interrupted, in words for the trace."""
        if self.cancel:
            return "cancelled"
        return "paused now" if self.pause_now or not self.hand_over else "its worker was told to end"


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
            orders.hand_over = self._draining
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

    @property
    def draining(self) -> bool:
        return self._draining

    def drain(self, within_s: float, *, end: Callable[[], None]) -> None:
        """The process is to end: every thread hands its task over after the phase that it runs.

        What still runs after `within_s` is interrupted: a model call is dropped, a command runs on in its sandbox
        for the next worker to wait for. `end` is called when the process has not ended by itself soon after; the
        leases that are held even then are released before.
        """
        with self._lock:
            if self._draining:
                return
            self._draining = True
            for orders in self._held.values():
                orders.hand_over = True
        threading.Thread(target=self._finish_drain, args=(within_s, end), name="drain", daemon=True).start()

    def _finish_drain(self, within_s: float, end: Callable[[], None]) -> None:
        until = time.monotonic() + within_s
        if not self._empty_within(within_s):
            with self._lock:
                for orders in self._held.values():
                    orders.interrupt.set()
            self._empty_within(INTERRUPTED_S)
        with self._lock:
            held = list(self._held.values())
        for orders in held:
            logger.warning("task %s is handed over in mid-phase", orders.task_id)
            with contextlib.suppress(DatabaseError, InterfaceError):
                if leases.release(orders.task_id, orders.fence):
                    leases.call(orders.task_id)
        if not held:  # for an end in order; other jobs have as long as the phases had
            time.sleep(max(0.0, until - time.monotonic()) + INTERRUPTED_S)
        end()

    def _empty_within(self, seconds: float) -> bool:
        until = time.monotonic() + seconds
        while self._held:
            if time.monotonic() > until:
                return False
            time.sleep(WATCH_S / 4)
        return True

    def _watch(self) -> None:
        # A connection of its own: a pool that has none to give must not cost the leases
        connections["default"] = outside_the_pool()
        try:
            self._watch_on()
        finally:
            connection.close()

    def _watch_on(self) -> None:
        renewed_at = time.monotonic()
        passed_over: set[int] = set()  # locked when the others were renewed
        told = False
        while True:
            time.sleep(WATCH_S)
            with self._lock:
                held = dict(self._held)
            if not held:
                renewed_at = time.monotonic()
                connection.close()
                continue
            try:
                if time.monotonic() - renewed_at > self.lease_s / 3:
                    passed_over = self._renew(held)
                    renewed_at = time.monotonic()
                elif passed_over:
                    passed_over = self._renew({pk: held[pk] for pk in passed_over & held.keys()})
                self._look(held)
                told = False
            except (OperationalError, InterfaceError, DatabaseError) as error:
                if not told:
                    logger.warning("the database does not answer the keeper: %s", error)
                told = True  # once an absence, not five times a second
                connection.close()
                if time.monotonic() - renewed_at > self.lease_s:
                    for orders in held.values():
                        _lose(orders)

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


def outside_the_pool() -> BaseDatabaseWrapper:
    own = connection.copy()
    own.settings_dict["OPTIONS"].pop("pool", None)
    return own


def _lose(orders: Orders) -> None:
    orders.lost = True
    orders.interrupt.set()
