"""A task's page, live: the rows after those that the page has, each once, and the parts that changed with them.

The page says hello with the newest seq it shows; the socket has joined the task's group before that, replays
what was written since, and follows. Only the trace in the database is ever sent as rows: a lost, doubled or
late message of the channel layer changes nothing but the delay. Nothing is changed through this socket.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from typing import Any

from channels.db import database_sync_to_async
from django.template.loader import render_to_string

from workspaces.domain.events import EventKind
from workspaces.domain.states import TaskStatus, WaitingFor
from workspaces.models import Event, Task, User
from workspaces.queries.access import may_operate, visible_tasks
from workspaces.queries.escalations import cards_of_tasks
from workspaces.queries.quota_line import wait_of
from workspaces.queries.trace import Running, TraceFilter, current_line, events_after, group_of, running_now
from workspaces.web.quota_parts import wait_context
from workspaces.web.task_parts import BUSY, LIVE_PANELS, head_context, panel_context
from workspaces.web.trace_rows import rows_of

from .session import user_of_session
from .watcher import Watcher

logger = logging.getLogger(__name__)

FLUSH_EVERY_S = 0.25
LOOK_EVERY_S = 5.0  # at a quota pool, while the task waits in its queue: a place moves without any event of the task
CHECK_EVERY_S = 2.0  # of access, while only passing text arrives
BATCH_EVENTS = 100
TOO_FAR_BEHIND = 500
MAX_SHOWN_ESCALATIONS = 100
NOT_SIGNED_IN = 4401
NOT_FOUND = 4404


class TaskConsumer(Watcher):
    task_id: int
    follower: asyncio.Task[None] | None = None

    async def connect(self) -> None:
        """Outsiders are accepted and closed with a code at once: a browser cannot read why a handshake failed."""
        self.task_id = self.scope["url_route"]["kwargs"]["task_id"]
        self.group = f"task.{self.task_id}"
        self.seq: int | None = None  # the newest event that the page has; None before the hello
        self.wanted = TraceFilter()
        self.with_rows = True
        self.panel = ""
        self.shown_escalations: set[int] = set()
        self.running: dict[tuple[str, int], Running] = {}
        self.texts: dict[tuple[str, int], str] = {}
        self.fresh = True  # nothing was sent since the hello
        self.more = False  # rows are left to send
        self.busy = False  # calls come and go: their place is kept
        self.frozen = False  # what runs was halted by a pause
        self.queued = False  # it waits for quota
        self.place = ""  # in the queue, as it was sent last
        self.checked_at = time.monotonic()
        self.woken = asyncio.Event()
        await self.channel_layer.group_add(self.group, self.channel_name)
        await self.accept()
        code = await database_sync_to_async(self._why_closed)()
        if code:
            await self.close(code=code)
            return
        self.follower = asyncio.create_task(self._follow())

    async def disconnect(self, code: int) -> None:
        if self.follower is not None:
            self.follower.cancel()
        await self.channel_layer.group_discard(self.group, self.channel_name)

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        """`{"after": seq, "group", "branch", "rows", "escalations"}` is the hello, `{"panel"}` what is open."""
        try:
            words = json.loads(text_data or "")
            if not isinstance(words, dict):
                return
            if "panel" in words:
                self.panel = str(words["panel"])
            if "after" in words and self.seq is None:
                self.wanted = TraceFilter.from_words(words.get("group"), words.get("branch"))
                self.with_rows = words.get("rows") is not False
                shown = words.get("escalations") or []
                self.shown_escalations = {int(pk) for pk in shown[:MAX_SHOWN_ESCALATIONS]}
                self.seq = max(0, int(words["after"]))
                self.woken.set()
        except (ValueError, TypeError, OverflowError, RecursionError):
            return

    # --- from the task's group

    async def trace_grew(self, message: dict[str, Any]) -> None:
        if self.seq is None or message["seq"] > self.seq:
            self.woken.set()

    async def model_delta(self, message: dict[str, Any]) -> None:
        await self._passing("model", message)

    async def tool_delta(self, message: dict[str, Any]) -> None:
        await self._passing("tool", message)

    async def _passing(self, what: str, message: dict[str, Any]) -> None:
        """Shown only for a call that the trace says is running: late text of an ended one is dropped."""
        key = (what, int(message["id"]))
        self.texts[key] = str(message["text"])
        if self.follower is None or self.seq is None:
            return
        if time.monotonic() - self.checked_at > CHECK_EVERY_S:
            self.woken.set()
        if key in self.running:
            await self.send(text_data=self._latest())

    # --- to the page

    async def _follow(self) -> None:
        """The one sender of rows, so that they go out in order; at most four times a second."""
        try:
            while True:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self.woken.wait(), LOOK_EVERY_S if self.queued else None)
                self.woken.clear()
                if self.seq is not None:
                    html = await database_sync_to_async(self._news)()
                    if isinstance(html, int):
                        await self.close(code=html)
                        return
                    if html:
                        await self.send(text_data=html)
                    if self.more:
                        self.woken.set()
                await asyncio.sleep(FLUSH_EVERY_S)
        except asyncio.CancelledError:
            raise
        except Exception:
            # the page reconnects and gets everything from the database
            logger.exception("the socket of task %s failed", self.task_id)
            await self.close(code=1011)

    def _task(self) -> Task | int:
        """The task if this person may (still) see it, else the code to close with."""
        user = user_of_session(self.scope)
        self.checked_at = time.monotonic()
        if user is None:
            return NOT_SIGNED_IN
        self.user: User = user
        related = ("workspace", "created_by", "profile_version__profile", "latch__placed_by", "branch")
        return visible_tasks(user).select_related(*related).filter(pk=self.task_id).first() or NOT_FOUND

    def _why_closed(self) -> int:
        task = self._task()
        return task if isinstance(task, int) else 0

    def _news(self) -> str | int:
        """Everything that changed since the last call as out-of-band HTML, or the code to close with."""
        task = self._task()
        if isinstance(task, int):
            return task
        assert self.seq is not None
        behind = task.last_seq - self.seq
        self.more = False
        if behind <= 0 and not self.fresh:
            return self._queue(task)
        self.fresh = False
        operate = may_operate(self.user, task.workspace)
        events: list[Event] = []
        if behind > TOO_FAR_BEHIND:
            self.seq = task.last_seq
        elif behind > 0:
            # not those written since the task was read: the header would stay behind its own rows
            found = events_after(self.task_id, self.seq, limit=BATCH_EVENTS)
            events = [event for event in found if event.seq <= task.last_seq]
            self.seq = events[-1].seq
            behind = 0
            self.more = task.last_seq > self.seq
        self.busy = task.status in BUSY
        self.frozen = task.status == TaskStatus.PAUSED.value
        self.queued = task.waiting_for == WaitingFor.QUOTA.value
        self.running = {(each.what, each.pk): each for each in running_now(task)}
        self.texts = {key: text for key, text in self.texts.items() if key in self.running}
        parts = [self._rows(task, events, behind, operate), self._latest()]
        parts.append(render_to_string("tasks/_header.html", {**head_context(task, operate, self.user), "oob": True}))
        parts += self._escalations(task)
        if self.panel in LIVE_PANELS:
            context = {**panel_context(task, self.panel, operate), "oob": True}
            parts.append(render_to_string(LIVE_PANELS[self.panel], context))
        return "".join(parts)

    def _queue(self, task: Task) -> str:
        """Its place in the queue, when that has changed."""
        if not self.queued:
            return ""
        context = {**wait_context(wait_of(task)), "oob": True}
        html: str = render_to_string("tasks/_quota.html", context) if context["quota_wait"] else ""
        if html == self.place:
            return ""
        self.place = html
        return html

    def _rows(self, task: Task, events: list[Event], behind: int, operate: bool) -> str:
        wanted = self.wanted
        chosen = [
            event
            for event in reversed(events)
            if (wanted.group is None or group_of(event.kind) is wanted.group)
            and (wanted.branch is None or event.branch_number == wanted.branch)
        ]
        context = {
            "task": task,
            "seq": self.seq,
            "rows": rows_of(chosen, current_line(task)) if chosen and self.with_rows else [],
            "behind": max(0, behind) if self.with_rows else 0,
            # the rows that the page has do not say yet that they were left behind
            "turned": self.with_rows and any(event.kind == EventKind.TASK_ROLLED_BACK.value for event in events),
            "wanted": wanted,
            "can_operate": operate,
        }
        return render_to_string("trace/_live.html", context)

    def _latest(self) -> str:
        running = [
            {"what": each.what, "name": each.name, "text": self.texts.get(key, "")}
            for key, each in self.running.items()
        ]
        return render_to_string(
            "tasks/_latest.html", {"running": running, "frozen": self.frozen, "busy": self.busy, "oob": True}
        )

    def _escalations(self, task: Task) -> list[str]:
        """New questions are added, closed ones marked; a card in which somebody types is left alone."""
        cards = cards_of_tasks(self.user, [task.pk])
        closed = [card for card in cards if not card.is_open and card.escalation.pk in self.shown_escalations]
        parts: list[str] = [render_to_string("escalations/_card.html", {"card": card, "oob": True}) for card in closed]
        still_open = [card for card in cards if card.is_open]
        new = [card for card in still_open if card.escalation.pk not in self.shown_escalations]
        if new:
            parts.append(render_to_string("tasks/_new_escalations.html", {"cards": new}))
        self.shown_escalations = {card.escalation.pk for card in still_open}
        return parts
