"""Lists with live rows: the fleet and the inbox. What changes is gathered and sent at most twice a second.

The page tells which rows it shows; only those are rendered, each after a fresh check of access. A person who
was signed out, deactivated or taken out of a workspace stops getting its rows within CHECK_EVERY_S.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Coroutine
from typing import Any
from urllib.parse import parse_qs

from channels.db import database_sync_to_async

from workspaces.models import User
from workspaces.queries.access import visible_workspaces

from .session import user_of_session
from .watcher import Watcher

FLUSH_EVERY_S = 0.5
CHECK_EVERY_S = 10.0
MAX_ROWS = 500
NOT_SIGNED_IN = 4403
TRY_AGAIN = 1011

logger = logging.getLogger(__name__)


class LiveList(Watcher):
    """Subclasses render: `prepare` once, `fragments` for the tasks that changed."""

    user: User
    flush_every_s = FLUSH_EVERY_S

    async def connect(self) -> None:
        user = self.scope["user"]
        if not user.is_authenticated:
            await self.close(code=NOT_SIGNED_IN)
            return
        self.user = user
        self.shown: set[int] = set()
        self.dirty: set[int] = set()
        self.woken = asyncio.Event()
        self.loop = asyncio.get_running_loop()
        self.groups_joined: set[str] = set()
        query = parse_qs(self.scope["query_string"].decode("latin-1"))
        self.query = {name: values[-1] for name, values in query.items()}
        await self._join()
        await database_sync_to_async(self.prepare)()
        await self.accept()
        self.work = [self._start(self._flush_forever()), self._start(self._check_forever())]

    async def disconnect(self, code: int) -> None:
        for job in getattr(self, "work", []):
            job.cancel()
        for group in getattr(self, "groups_joined", set()):
            await self.channel_layer.group_discard(group, self.channel_name)

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        """The page says which rows it shows; anything else is ignored. What changed since it was made is sent."""
        try:
            rows = json.loads(text_data or "")["rows"]
            self.shown = {int(row) for row in rows[:MAX_ROWS]}
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
            return
        self.dirty.update(await database_sync_to_async(self.tasks_shown)())
        self.woken.set()

    async def task_changed(self, message: dict[str, Any]) -> None:
        self.dirty.add(message["task"])
        self.woken.set()

    # --- for subclasses; all three run in a thread with a database connection

    def prepare(self) -> None:
        """Remember what is needed to tell new from known."""

    def tasks_shown(self) -> set[int]:
        """The tasks of the rows that the page shows."""
        return set(self.shown)

    def fragments(self, tasks: set[int]) -> str:
        """The out-of-band HTML for these changed tasks; empty when the page need not change."""
        raise NotImplementedError

    # --- loops

    def _start(self, loop: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """A loop that fails closes the socket, so that the page reconnects instead of standing still."""
        job = asyncio.create_task(loop)
        job.add_done_callback(self._ended)
        return job

    def _ended(self, job: asyncio.Task[None]) -> None:
        if not job.cancelled() and (error := job.exception()) is not None:
            logger.error("a live list failed", exc_info=error)
            self.closing = asyncio.ensure_future(self.close(code=TRY_AGAIN))

    async def _flush_forever(self) -> None:
        while True:
            await self.woken.wait()
            self.woken.clear()
            started = time.monotonic()
            tasks, self.dirty = self.dirty, set()
            html = await database_sync_to_async(self.fragments)(tasks)
            if html:
                await self.send(text_data=html)
            await asyncio.sleep(max(0.0, self.flush_every_s - (time.monotonic() - started)))

    async def _check_forever(self) -> None:
        while True:
            await asyncio.sleep(CHECK_EVERY_S)
            if not await self._still_signed_in():
                await self.close(code=NOT_SIGNED_IN)
                return
            await self._join()

    async def _join(self) -> None:
        wanted = await database_sync_to_async(self._wanted_groups)()
        for group in wanted - self.groups_joined:
            await self.channel_layer.group_add(group, self.channel_name)
        for group in self.groups_joined - wanted:
            await self.channel_layer.group_discard(group, self.channel_name)
        self.groups_joined = wanted

    def _wanted_groups(self) -> set[str]:
        return {f"workspace.{pk}" for pk in visible_workspaces(self.user).values_list("pk", flat=True)}

    async def _still_signed_in(self) -> bool:
        """The session is still there and its user may still sign in; takes up changed rights on the way."""
        fresh = await database_sync_to_async(user_of_session)(self.scope)
        if fresh is None or fresh.pk != self.user.pk:
            return False
        self.user = fresh
        return True
