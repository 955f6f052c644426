"""A terminal, live: its commands as they are ordered, run and end, and the newest output of the one that runs.

The page says hello with the newest command it shows; what came after is replayed from the database, then followed.
Access is asked again with every batch: who may no longer command here gets nothing more. Commands are given by
POST, never through this socket.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from typing import Any

from channels.db import database_sync_to_async
from django.template.loader import render_to_string
from django.utils.html import escape

from workspaces.queries.terminal import PAGE_SIZE, commands_of, operated_workspace
from workspaces.web.terminal_parts import state_context

from .session import user_of_session
from .watcher import Watcher

logger = logging.getLogger(__name__)

FLUSH_EVERY_S = 0.25
CHECK_EVERY_S = 2.0  # of access, while only passing output arrives
NOT_SIGNED_IN = 4401
NOT_FOUND = 4404


class TerminalConsumer(Watcher):
    workspace_id: int
    follower: asyncio.Task[None] | None = None

    async def connect(self) -> None:
        """Outsiders and viewers are accepted and closed with a code: a browser cannot read why a handshake failed."""
        self.workspace_id = self.scope["url_route"]["kwargs"]["workspace_id"]
        self.newest: int | None = None  # of the commands that the page has; None before the hello
        self.running: set[int] = set()
        self.dirty: set[int] = set()
        self.texts: dict[int, str] = {}
        self.checked_at = time.monotonic()
        self.woken = asyncio.Event()
        self.groups_joined = [f"terminal.{self.workspace_id}", f"workspace.{self.workspace_id}"]
        for group in self.groups_joined:
            await self.channel_layer.group_add(group, self.channel_name)
        await self.accept()
        code = await database_sync_to_async(self._why_closed)()
        if code:
            await self.close(code=code)
            return
        self.follower = asyncio.create_task(self._follow())

    async def disconnect(self, code: int) -> None:
        if self.follower is not None:
            self.follower.cancel()
        for group in self.groups_joined:
            await self.channel_layer.group_discard(group, self.channel_name)

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        """`{"after": newest id, "open": [ids that the page shows as not ended]}` is the hello."""
        try:
            words = json.loads(text_data or "")
            if isinstance(words, dict) and "after" in words and self.newest is None:
                self.dirty |= {int(pk) for pk in list(words.get("open") or [])[:PAGE_SIZE]}
                self.newest = max(0, int(words["after"]))
                self.woken.set()
        except (ValueError, TypeError, OverflowError, RecursionError):
            return

    # --- from the groups

    async def command_changed(self, message: dict[str, Any]) -> None:
        self.dirty.add(int(message["id"]))
        self.woken.set()

    async def task_changed(self, message: dict[str, Any]) -> None:
        self.woken.set()

    async def command_output(self, message: dict[str, Any]) -> None:
        """Shown only for a command that was last seen open: late output of an ended one is dropped."""
        pk = int(message["id"])
        self.texts[pk] = str(message["text"])
        if time.monotonic() - self.checked_at > CHECK_EVERY_S:
            self.woken.set()
        if pk in self.running:
            await self.send(text_data=self._output(pk))

    # --- to the page

    async def _follow(self) -> None:
        """The one sender of commands, so that they go out in order; at most four times a second."""
        try:
            while True:
                await self.woken.wait()
                self.woken.clear()
                if self.newest is not None:
                    dirty, self.dirty = self.dirty, set()
                    html = await database_sync_to_async(self._news)(dirty)
                    if isinstance(html, int):
                        await self.close(code=html)
                        return
                    await self.send(text_data=html)
                await asyncio.sleep(FLUSH_EVERY_S)
        except asyncio.CancelledError:
            raise
        except Exception:
            # the page reconnects and gets everything from the database
            logger.exception("the terminal of workspace %s failed", self.workspace_id)
            await self.close(code=1011)

    def _why_closed(self) -> int:
        user = user_of_session(self.scope)
        self.checked_at = time.monotonic()
        if user is None:
            return NOT_SIGNED_IN
        self.workspace = operated_workspace(user, self.workspace_id)
        return 0 if self.workspace is not None else NOT_FOUND

    def _news(self, dirty: set[int]) -> str | int:
        """What is new and what has changed, as out-of-band HTML; or the code to close with."""
        code = self._why_closed()
        if code or self.workspace is None or self.newest is None:
            return code
        found = commands_of(self.workspace_id)
        new = list(found.filter(pk__gt=self.newest)[:PAGE_SIZE])[::-1]
        changed = list(found.filter(pk__in=dirty, pk__lte=self.newest))
        self.newest = max([self.newest, *(command.pk for command in new)])
        for command in (*new, *changed):
            (self.running.add if command.is_open else self.running.discard)(command.pk)
        self.texts = {pk: text for pk, text in self.texts.items() if pk in self.running}
        parts: list[str] = [render_to_string("terminal/_new.html", {"command": command}) for command in new]
        parts += [render_to_string("terminal/_command.html", {"command": command, "oob": True}) for command in changed]
        parts += [self._output(pk) for pk in self.texts]
        parts.append(render_to_string("terminal/_state.html", {**state_context(self.workspace), "oob": True}))
        return "".join(parts)

    def _output(self, pk: int) -> str:
        return f'<pre id="command-output-{pk}" hx-swap-oob="innerHTML">{escape(self.texts[pk])}</pre>'
