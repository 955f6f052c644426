"""Whose turn has come at a quota pool is woken: after the commit that granted it, never under the pool's lock."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from workspaces.domain.states import WaitingFor
from workspaces.models import Task

from .waits import wake_waiting

logger = logging.getLogger(__name__)
TURN = "its turn at the quota pool has come"


def wake_granted(tasks: Iterable[int]) -> int:
    """How many were woken. Who waits for something else, or not any more, is left: its grant runs out by itself."""
    woken = 0
    for task in tasks:
        try:
            woken += wake_waiting(task, waiting_for=WaitingFor.QUOTA.value, why=TURN)
        except Task.DoesNotExist:
            logger.info("task %s is gone, its turn at a quota pool with it", task)
    return woken
