"""Tells people: digests what was signalled and sends what is due, without a task's step ever waiting for it.

One thread with one event loop in each worker and in the scheduler's process, so that alerts go out also while no worker
answers. It hears of commits from the database (doorbell.py), and looks by itself once a second. However many receivers
hang, a healthy one does not wait for them: each try is a coroutine, what is asked of the database runs in threads of
its own, and failing endpoints may take half of what is in the air at most. It owns nothing: what it was about to send
when it is killed, another one sends after the lease (actions/sendings.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from django.conf import settings
from django.db import Error, connection, connections

from workspaces.actions import alerts, sendings
from workspaces.actions.sendings import Claimed, Result
from workspaces.domain.endpoints import AttemptOutcome
from workspaces.engine.keeper import outside_the_pool
from workspaces.queries.action_links import with_tokens
from workspaces.queries.database import is_away

from .doorbell import listen
from .transports import TRANSPORTS, NotSent, Parcel, Sent
from .transports.base import TOTAL_S

logger = logging.getLogger(__name__)

POLL_S = 1.0
BACK_S = 0.1
IN_THE_AIR = 256  # tries of this process
FAILING_IN_THE_AIR = 128  # of them to endpoints whose newest answer was a bad one
DATABASE_THREADS = 3
AWAY_S = 1.0  # between two tries to write down what came of a try
ENDING_S = 20.0  # a worker that is told to end waits for what is in the air
CUT_OFF = "The process was told to end before an answer came: whether it arrived is not known."

T = TypeVar("T")


def digest() -> int:
    """Make of what was signalled, and of what time has brought, what is to be told. Returns how much there was."""
    return alerts.digest() + alerts.due() + sendings.give_up_stranded()


class Courier:
    """Of one process. `look` finds what is to be told, and says how much it was: it looks again until there is none."""

    def __init__(
        self,
        *,
        look: Callable[[], int] | None = None,
        poll_s: float = POLL_S,
        in_the_air: int = IN_THE_AIR,
        failing_in_the_air: int = FAILING_IN_THE_AIR,
    ) -> None:
        self._look = look or digest
        self._poll_s = poll_s
        self._most = in_the_air
        self._most_failing = failing_in_the_air
        self._lock = threading.Lock()
        self._reset()

    def _reset(self) -> None:
        self._process = os.getpid()
        self._thread: threading.Thread | None = None
        self._ears: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._told_to_end = threading.Event()
        self._air: dict[asyncio.Task[None], Claimed] = {}
        self._away = False

    def start(self, *, back_s: float = 0.0) -> None:
        """Runs from now on, also in a process that was forked from one in which it ran. Again: nothing happens.

        `back_s`: so long after a commit it looks, if others have left something to do.
        """
        with self._lock:
            if self._process != os.getpid():
                self._reset()
            if self._told_to_end.is_set() or (self._thread is not None and self._thread.is_alive()):
                return
            self._thread = threading.Thread(target=self._run, name="courier", daemon=True)
            self._thread.start()
            ears = (lambda: self._heard(back_s), self._told_to_end)
            self._ears = threading.Thread(target=listen, args=ears, name="courier-listens", daemon=True)
            self._ears.start()

    def nudge(self) -> None:
        """Look now. Where it does not run nothing happens: another process looks within a second."""
        self._heard(0.0)

    def _heard(self, back_s: float) -> None:
        loop = self._loop
        if loop is None or self._process != os.getpid():
            return
        with contextlib.suppress(RuntimeError):  # it has just ended
            loop.call_soon_threadsafe(loop.call_later, back_s, self._wake)

    def end(self) -> None:
        """Claim nothing more. Does not wait for what is in the air: `join` does."""
        self._told_to_end.set()
        self.nudge()

    def join(self, within_s: float = ENDING_S + 5) -> bool:
        """Whether it has ended, or never ran."""
        thread = self._thread
        if thread is None or self._process != os.getpid():
            return True
        thread.join(within_s)
        if self._ears is not None:
            self._ears.join(within_s)
        return not thread.is_alive()

    @property
    def running(self) -> bool:
        return self._process == os.getpid() and self._thread is not None and self._thread.is_alive()

    # ---- its thread

    def _run(self) -> None:
        while True:
            loop = asyncio.new_event_loop()
            # names are resolved in threads: as many as there are tries, for a name server may hang as well
            loop.set_default_executor(ThreadPoolExecutor(self._most, thread_name_prefix="courier-names"))
            self._database = ThreadPoolExecutor(DATABASE_THREADS, "courier-database", _connect)
            try:
                loop.run_until_complete(self._work(loop))
            except Exception:
                logger.exception("the courier stumbled; it goes on")
            finally:
                self._loop = None
                _disconnect(self._database)
                loop.close()  # without waiting for a name server that hangs
            if self._told_to_end.wait(self._poll_s):
                return

    async def _work(self, loop: asyncio.AbstractEventLoop) -> None:
        self._news, self._due, self._ending = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._air = {}
        self._loop = loop
        if self._told_to_end.is_set():
            return
        async with asyncio.TaskGroup() as group:
            group.create_task(self._digesting())
            group.create_task(self._sending())
        await self._land()

    def _wake(self) -> None:
        self._news.set()
        self._due.set()
        if self._told_to_end.is_set():
            self._ending.set()

    async def _digesting(self) -> None:
        while not self._ending.is_set():
            self._news.clear()
            if await self._asked(self._look):
                self._due.set()
            else:
                await self._until(self._news)

    async def _sending(self) -> None:
        while not self._ending.is_set():
            self._due.clear()
            claims = await self._asked(self._claim) or []
            for claimed in claims:
                task = asyncio.get_running_loop().create_task(self._one(claimed))
                self._air[task] = claimed
                task.add_done_callback(self._landed)
            if not claims:
                await self._until(self._due)

    def _claim(self) -> list[Claimed]:
        flying = list(self._air.values())
        failing = sum(1 for claimed in flying if claimed.failing)
        owners = Counter(claimed.owner for claimed in flying if claimed.owner is not None)
        return sendings.claim(
            self._most - len(flying), failing_limit=max(0, self._most_failing - failing), flying=owners
        )

    def _landed(self, task: asyncio.Task[None]) -> None:
        self._air.pop(task, None)
        if not task.cancelled() and task.exception() is not None:
            logger.error("a try was not written down", exc_info=task.exception())
        self._due.set()

    async def _one(self, claimed: Claimed) -> None:
        result = await send(claimed)
        while True:
            try:
                await self._in_thread(lambda: sendings.finished(claimed, result, chance=random.random()))  # noqa: S311
                return
            except Exception as error:
                if not is_away(error):
                    raise  # its lease ends, and it is sent again
            await asyncio.sleep(AWAY_S)

    async def _land(self) -> None:
        """What is in the air may come down within a limit; the rest is given back."""
        if self._air:
            await asyncio.wait(list(self._air), timeout=ENDING_S)
        left = dict(self._air)
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(list(left), timeout=1.0)
            await self._asked(lambda: sendings.put_back(list(left.values()), CUT_OFF))

    async def _until(self, event: asyncio.Event) -> None:
        try:
            async with asyncio.timeout(self._poll_s):
                await event.wait()
        except TimeoutError:
            return

    async def _asked(self, what: Callable[[], T]) -> T | None:
        """None where it could not be asked: it is asked again at the next look."""
        try:
            answer = await self._in_thread(what)
        except Exception as error:
            if not is_away(error):
                logger.exception("a part of the courier's look failed; the others go on")
            elif not self._away:
                self._away = True
                logger.warning("the database does not answer the courier: %s", error)
            return None
        self._away = False
        return answer

    def _in_thread(self, what: Callable[[], T]) -> asyncio.Future[T]:
        def ask() -> T:
            try:
                return what()
            except Error:
                connection.close()  # it may be broken: the next one opens anew
                raise

        return asyncio.get_running_loop().run_in_executor(self._database, ask)


def _connect() -> None:
    """Each thread has a connection of its own: tasks may have all of the pool's for a while."""
    connections["default"] = outside_the_pool()


def _disconnect(threads: ThreadPoolExecutor) -> None:
    together = threading.Barrier(DATABASE_THREADS)

    def close() -> None:
        connection.close()
        with contextlib.suppress(threading.BrokenBarrierError):
            together.wait(2.0)  # so that no thread closes twice, and another one not at all

    for _ in range(DATABASE_THREADS):
        threads.submit(close)
    threads.shutdown(wait=False)


async def send(claimed: Claimed) -> Result:
    """One try, to its end. Raises nothing: whatever happens is a result."""
    began = time.monotonic()

    def result(outcome: AttemptOutcome, sent: Sent, error: str = "", **more: Any) -> Result:
        return Result(
            outcome=outcome,
            duration_ms=int((time.monotonic() - began) * 1000),
            error=error,
            address=sent.address,
            request_headers=sent.request_headers,
            status=sent.status,
            response_headers=sent.response_headers,
            response_body=sent.response_body,
            **more,
        )

    if claimed.problem:
        return result(AttemptOutcome.FAULT, Sent(), claimed.problem)
    try:
        async with asyncio.timeout(TOTAL_S + 5):  # a transport keeps to TOTAL_S itself, and says what happened
            return result(AttemptOutcome.DELIVERED, await TRANSPORTS[claimed.kind].send(_parcel(claimed)))
    except NotSent as error:
        return result(
            error.outcome, error.heard, str(error), permanent=error.permanent, retry_after_s=error.retry_after_s
        )
    except TimeoutError:
        return result(AttemptOutcome.TIMEOUT, Sent(), "It took too long.")
    except Exception as error:
        logger.exception("delivery %s could not be sent", claimed.delivery)
        return result(AttemptOutcome.FAULT, Sent(), f"A fault of agentdesk: {type(error).__name__}.")


def _parcel(claimed: Claimed) -> Parcel:
    body = with_tokens(dict(claimed.body))
    return Parcel(
        id=claimed.message_id,
        type=claimed.type,
        body=body,
        address=claimed.address,
        secrets=claimed.secrets,
        tokens=tuple(_tokens(body)),
        private=tuple(settings.WEBHOOK_PRIVATE),
    )


def _tokens(body: Mapping[str, Any]) -> Iterator[str]:
    """What in a message lets somebody act: no answer that repeats it may bring it onto a page."""
    for address in body["data"].get("links", {}).values():
        yield str(address)
        yield str(address).rstrip("/").rpartition("/")[2]


_courier = Courier()


def start(*, stands_back: bool = False) -> None:
    """In this process, from now on: for workers and the scheduler, never for a process that serves pages.

    `stands_back`: where tasks want the processor, the scheduler's courier is let go first.
    """
    _courier.start(back_s=BACK_S if stands_back else 0.0)


def end() -> None:
    """The process was told to end: claim nothing more, and let what is in the air come down."""
    _courier.end()


def join() -> bool:
    """Whether it has ended, within its limit."""
    return _courier.join()
