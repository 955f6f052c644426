"""One claim's working set: the task, its profile and tools, and the orders that it has to obey."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from workspaces.actions import steps
from workspaces.actions.errors import FenceLost
from workspaces.domain.states import PauseMode, TaskStatus
from workspaces.engine.keeper import Orders
from workspaces.models import Branch, ProfileVersion, Task
from workspaces.queries.profiles import tools_of
from workspaces.tools.base import Tool

if TYPE_CHECKING:
    from workspaces.engine.disk import Disk


class Ended(Exception):  # a way out, not a fault
    """This advance is over: the task waits, is paused or has ended, and the trace says so."""


class Run:
    def __init__(self, task: Task, fence: int, orders: Orders) -> None:
        self.task = task
        self.fence = fence
        self.orders = orders

    @property
    def branch(self) -> Branch:
        assert self.task.branch is not None
        return self.task.branch

    @property
    def version(self) -> ProfileVersion:
        return self.task.profile_version

    @cached_property
    def tools(self) -> dict[str, Tool]:
        return tools_of(self.version)

    def obey(self, disk: Disk, *, at_boundary: bool = False) -> None:
        """Cancel or pause if that is ordered; a pause at the boundary only where `at_boundary`.

        Raises Ended when it was ordered, FenceLost when the task is not ours.
        """
        if self.orders.lost:
            raise FenceLost(f"task {self.task.pk} was taken over")
        if not at_boundary and not self.orders.interrupt.is_set():
            return  # the keeper has seen no order, and every write checks the fence
        fresh = Task.objects.filter(pk=self.task.pk).values_list("status", "pause_mode", "cancelling", "fence").get()
        status, pause_mode, cancelling, fence = fresh
        if fence != self.fence:
            raise FenceLost(f"task {self.task.pk} was taken over")
        if cancelling:
            disk.end_commands()
            steps.finish_task(self.task.pk, self.fence, TaskStatus.CANCELLED, "cancelled by an operator")
            raise Ended
        now = pause_mode == PauseMode.NOW.value
        if status == TaskStatus.PAUSING.value and (now or at_boundary):
            frozen = now and disk.freeze()
            steps.finish_pause(self.task.pk, self.fence, frozen=frozen)
            raise Ended
        if TaskStatus(status).is_final or status == TaskStatus.WAITING.value:
            raise Ended
