"""Runs one asynchronous request inside the calling thread, so that an order or a deadline can drop it.

Each call has an event loop of its own: nothing is shared between threads, and what is dropped is really
closed. It never retries.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
import time
from collections.abc import Callable, Coroutine
from functools import cache
from typing import Any, TypeVar

POLL_S = 0.05  # how often an order is looked for; the contract allows 0.25 s
_CLEANUP_S = 0.15  # what a dropped request may take to close its connection

T = TypeVar("T")


class CallInterrupted(Exception):  # an order from outside, not a fault
    """`interrupt` was set: the request was dropped. `partial` is the text that had arrived."""

    def __init__(self, partial: str = "") -> None:
        super().__init__("the call was dropped by an order")
        self.partial = partial


class DeadlinePassed(Exception):
    """The overall time of the call is used up."""


@cache
def tls_context() -> ssl.SSLContext:
    """One for the process: loading certificates costs tens of milliseconds, each call has a new client."""
    import httpx2

    return httpx2.create_ssl_context()


def drive(
    start: Callable[[], Coroutine[Any, Any, T]],
    *,
    timeout_s: float,
    interrupt: threading.Event | None,
    partial: Callable[[], str] = str,
) -> T:
    """Run `start()` to its end. Raises CallInterrupted, DeadlinePassed, and whatever it raises itself."""
    if interrupt is not None and interrupt.is_set():
        raise CallInterrupted(partial())
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(_watched(start(), time.monotonic() + timeout_s, interrupt, partial))
    finally:
        _close(loop)


async def _watched(
    work: Coroutine[Any, Any, T],
    deadline: float,
    interrupt: threading.Event | None,
    partial: Callable[[], str],
) -> T:
    task = asyncio.ensure_future(work)
    while True:
        left = deadline - time.monotonic()
        pause = max(0.0, left if interrupt is None else min(left, POLL_S))
        done, _ = await asyncio.wait({task}, timeout=pause)
        if done:
            return task.result()
        ordered = interrupt is not None and interrupt.is_set()
        if not ordered and time.monotonic() < deadline:
            continue
        task.cancel()
        await asyncio.wait({task}, timeout=_CLEANUP_S)
        if task.done() and not task.cancelled():
            task.exception()  # looked at, so that asyncio does not complain about it later
        if ordered:
            raise CallInterrupted(partial())
        raise DeadlinePassed


def _close(loop: asyncio.AbstractEventLoop) -> None:
    """Close the loop without waiting for a name look-up that hangs in its thread (asyncio.run would)."""
    with contextlib.suppress(asyncio.CancelledError):
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        if left:
            loop.run_until_complete(asyncio.wait(left, timeout=_CLEANUP_S))
        loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()
