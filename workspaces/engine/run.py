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

    def obey_at_boundary(self, disk: Disk) -> None:
        """Between two steps, with the task as it was just read: also a pause at the boundary is obeyed."""
        task = self.task
        self._obey(disk, task.status, task.pause_mode, task.cancelling, task.fence, at_boundary=True)

    def obey(self, disk: Disk) -> None:
        """Within a step: cancel, or pause now, if that is ordered.

        Raises Ended when it was ordered, FenceLost when the task is not ours.
        """
        if self.orders.lost:
            raise FenceLost(f"task {self.task.pk} was taken over")
        if not self.orders.interrupt.is_set():
            return  # the keeper has seen no order, and every write checks the fence
        columns = ("status", "pause_mode", "cancelling", "fence")
        self._obey(disk, *Task.objects.filter(pk=self.task.pk).values_list(*columns).get(), at_boundary=False)

    def _obey(
        self, disk: Disk, status: str, pause_mode: str, cancelling: bool, fence: int, *, at_boundary: bool
    ) -> None:
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
