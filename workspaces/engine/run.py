"""One claim's working set: the task, its profile and tools, and the orders that it has to obey."""

from __future__ import annotations

import logging
from functools import cached_property
from typing import TYPE_CHECKING

from workspaces.actions import steps
from workspaces.actions.errors import FenceLost
from workspaces.domain.states import PauseMode, TaskStatus
from workspaces.engine.keeper import Orders
from workspaces.models import Branch, ProfileVersion, Task
from workspaces.queries.history import is_under_way
from workspaces.queries.profiles import own_tools_of
from workspaces.queries.tool_servers import mcp_tools
from workspaces.queries.tuning import asked_with
from workspaces.sandboxes.base import SandboxError
from workspaces.tools.base import Tool
from workspaces.tools.mcp import WithheldTool

if TYPE_CHECKING:
    from workspaces.engine.disk import Disk


logger = logging.getLogger(__name__)


class Ended(Exception):  # a way out, not a fault
    """This advance is over: the task waits, is paused or has ended, and the trace says so."""


class HandedOver(Exception):  # a way out, not a fault
    """This process is to end: what is written is complete up to here, the next worker goes on."""


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
        """With what is set for this task alone, as the running step's request was made with: see engine/context.py."""
        return asked_with(self.task)

    @cached_property
    def tools(self) -> dict[str, Tool]:
        """Those that the model is shown."""
        return own_tools_of(self.version) | self._of_servers[0]

    @cached_property
    def withheld(self) -> dict[str, WithheldTool]:
        """Tools of MCP servers that may not be called, which say why."""
        return self._of_servers[1]

    @cached_property
    def _of_servers(self) -> tuple[dict[str, Tool], dict[str, WithheldTool]]:
        return mcp_tools(self.version)

    def tool(self, name: str) -> Tool:
        """The tool of a call that was let through; it may be withheld since."""
        found = self.tools.get(name) or self.withheld.get(name)
        return found if found is not None else WithheldTool(name, "it is not there any more")

    def obey_at_boundary(self, disk: Disk) -> None:
        """With the task as it was just read: also a pause at the boundary is obeyed, if this is one.

        It is none where a worker died while a command ran: the step goes on first, for paused means quiet.
        """
        task = self.task
        pausing = task.status == TaskStatus.PAUSING.value
        at_boundary = pausing and not is_under_way(task.pk)
        self._obey(disk, task.status, task.pause_mode, task.cancelling, task.fence, at_boundary=at_boundary)

    def check_fence(self) -> None:
        """Before something is done to the disk that would spoil another worker's work. Raises FenceLost."""
        if not Task.objects.filter(pk=self.task.pk, fence=self.fence).exists():
            raise FenceLost(f"task {self.task.pk} was taken over")

    def obey(self, disk: Disk) -> None:
        """Within a step: cancel, or pause now, if that is ordered.

        Raises Ended when it was ordered, FenceLost when the task is not ours, HandedOver when this process is to end.
        """
        if self.orders.lost:
            raise FenceLost(f"task {self.task.pk} was taken over")
        if self.orders.interrupt.is_set():  # else the keeper has seen no order, and every write checks the fence
            columns = ("status", "pause_mode", "cancelling", "fence")
            self._obey(disk, *Task.objects.filter(pk=self.task.pk).values_list(*columns).get(), at_boundary=False)
        if self.orders.hand_over:
            raise HandedOver

    def _obey(
        self, disk: Disk, status: str, pause_mode: str, cancelling: bool, fence: int, *, at_boundary: bool
    ) -> None:
        if fence != self.fence:
            raise FenceLost(f"task {self.task.pk} was taken over")
        if cancelling:
            try:
                disk.end_commands()
            except SandboxError as error:  # nobody gets the workspace before what is in it has ended
                logger.warning("task %s ends, its commands could not be: %s", self.task.pk, error)
            steps.finish_task(self.task.pk, self.fence, TaskStatus.CANCELLED, "cancelled by an operator")
            raise Ended
        now = pause_mode == PauseMode.NOW.value
        if status == TaskStatus.PAUSING.value and (now or at_boundary):
            frozen = now and disk.freeze()
            steps.finish_pause(self.task.pk, self.fence, frozen=frozen)
            raise Ended
        if TaskStatus(status).is_final or status == TaskStatus.WAITING.value:
            raise Ended
