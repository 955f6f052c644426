"""An operator's command in a workspace's sandbox: its life, its limits, and when it has to be refused. Pure."""

from __future__ import annotations

from enum import StrEnum

from workspaces.domain.states import TaskStatus

COMMAND_BYTES = 100_000  # Linux takes 128 KiB in one argument
OUTPUT_BYTES = 256 * 1024  # of each stream; what comes after it is read and dropped
KEPT_CHARS = 100_000
TIME_LIMITS_S = (30, 120, 600, 3_600)
DEFAULT_LIMIT_S = 120


class CommandStatus(StrEnum):
    ORDERED = "ordered"  # no worker has begun it
    RUNNING = "running"  # its intent is written
    FINISHED = "finished"  # exit code, timeout or a stop
    FAILED = "failed"  # it did not run: the sandbox could not be started
    UNKNOWN = "unknown"  # it was begun and its end is lost


OPEN = frozenset({CommandStatus.ORDERED, CommandStatus.RUNNING})
RESTS = frozenset({TaskStatus.PAUSED, TaskStatus.WAITING})


def why_not(
    *,
    holder: int | None,
    holder_status: str,
    leased: bool,
    restoring: bool,
    call_in_flight: str,
) -> str:
    """Why a workspace held by that task (None: it is free) takes no command now; empty when it does.

    A disk has one writer. `call_in_flight`: the tool of a call that a pause froze half-way; the command would
    wake it, and a paused task would go on behind everybody's back.
    """
    if holder is None:
        return ""
    if holder_status not in {status.value for status in RESTS}:
        return f"Task {holder} works here ({holder_status}), and a disk has one writer. Pause it, then run this."
    if restoring:
        return f"The files are being put back for task {holder}. Try again in a moment."
    if call_in_flight:
        return (
            f"Task {holder} was frozen in the middle of a call ({call_in_flight}), which a command would let go on. "
            "Resume it and pause it at the boundary, or roll it back."
        )
    if leased:
        return f"Task {holder} is just coming to rest. Try again in a moment."
    return ""
