"""The only door to the channel layer. Sends what happened to those who watch; never blocks the sender for long.

Groups: `task.<id>` gets every event's seq and the passing deltas; `workspace.<id>` gets the ids of tasks
that changed (the fleet and the inbox listen there); `terminal.<id>` gets a workspace's commands and their
output; `alerts` hears that some alert or delivery changed. Losing a message here loses nothing: consumers replay
from the database.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from functools import partial
from typing import Any

from channels.layers import get_channel_layer
from django.db import transaction

logger = logging.getLogger(__name__)

TRACE_S, FLEET_S = 0.03, 0.2
ALERTS_GROUP = "alerts"

_lock = threading.Lock()
_soon: dict[tuple[str, int], dict[str, Any]] = {}  # what is about to be sent, by group and task
_loop: asyncio.AbstractEventLoop | None = None
_loop_pid = 0


def task_group(task_id: int) -> str:
    return f"task.{task_id}"


def workspace_group(workspace_id: int) -> str:
    return f"workspace.{workspace_id}"


def terminal_group(workspace_id: int) -> str:
    return f"terminal.{workspace_id}"


def command_changed(workspace_id: int, command_id: int) -> None:
    """On commit, tell who has the workspace's terminal open."""
    message = {"type": "command.changed", "id": command_id}
    transaction.on_commit(lambda: _send(terminal_group(workspace_id), message))


def command_output(workspace_id: int, command_id: int, text: str) -> None:
    """The newest output of a running command; the caller keeps it to 10 a second. Never stored."""
    _send(terminal_group(workspace_id), {"type": "command.output", "id": command_id, "text": text})


def publish(task_id: int, workspace_id: int, seq: int) -> None:
    """On commit, tell the watchers that the task's trace now reaches `seq`."""

    def send() -> None:
        _send_soon(task_group(task_id), TRACE_S, {"type": "trace.grew", "task": task_id, "seq": seq})
        _send_soon(workspace_group(workspace_id), FLEET_S, {"type": "task.changed", "task": task_id})

    transaction.on_commit(send)


def alerts_changed() -> None:
    """On commit, tell who looks at alerts, or at the bell, that something changed: each renders what is his."""
    message = {"type": "alerts.changed", "task": 0}
    transaction.on_commit(lambda: _send_soon(ALERTS_GROUP, FLEET_S, message))


def _send_soon(group: str, within_s: float, message: dict[str, Any]) -> None:
    """A task writes several times a step: one message tells of what came within a moment, with its newest seq."""
    key = (group, message["task"])
    with _lock:
        waits = key in _soon
        _soon[key] = message
    if waits:
        return

    def tell() -> None:
        with _lock:
            newest = _soon.pop(key, message)
        _send(group, newest)

    loop = _sender_loop()
    loop.call_soon_threadsafe(loop.call_later, within_s, tell)


def text_delta(task_id: int, model_call_id: int, text: str) -> None:
    """The streaming reply so far; the caller keeps it to 10 a second. Never stored."""
    _send(task_group(task_id), {"type": "model.delta", "task": task_id, "id": model_call_id, "text": text})


def output_delta(task_id: int, tool_call_id: int, text: str) -> None:
    """The newest output of a running tool call; the caller keeps it to 10 a second. Never stored."""
    _send(task_group(task_id), {"type": "tool.delta", "task": task_id, "id": tool_call_id, "text": text})


def _send(group: str, message: dict[str, Any]) -> None:
    layer = get_channel_layer()
    if layer is None:
        return
    future = asyncio.run_coroutine_threadsafe(layer.group_send(group, message), _sender_loop())
    future.add_done_callback(partial(_log_failure, group))


def _log_failure(group: str, future: Any) -> None:
    if not future.cancelled() and future.exception() is not None:
        logger.warning("live message to %s was lost: %s", group, future.exception())


def _sender_loop() -> asyncio.AbstractEventLoop:
    """One event loop a process, so that every thread shares the layer's one connection."""
    global _loop, _loop_pid
    with _lock:
        if _loop is None or _loop_pid != os.getpid():
            _soon.clear()  # what a parent process meant to send is its own matter
            _loop = asyncio.new_event_loop()
            _loop_pid = os.getpid()
            threading.Thread(target=_loop.run_forever, name="live", daemon=True).start()
        return _loop
