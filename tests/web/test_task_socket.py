"""A task's socket over the real channel layer: every row once, also after a reconnect, and only to members."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.sessions.models import Session

from tests.harness import work
from tests.web.pages import Page
from tests.web.people import Desk
from tests.web.sockets import Socket
from tests.web.worked import finished_task, with_many_events
from workspaces import live
from workspaces.actions.escalations import answer_escalation
from workspaces.actions.scratchpad import write_note
from workspaces.actions.tasks import resume_task, send_message
from workspaces.actions.workspaces import set_member
from workspaces.domain.escalations import Decision
from workspaces.models import Task

pytestmark = pytest.mark.django_db(transaction=True)


def run(test: Any) -> None:
    asyncio.run(test)


async def hello(socket: Socket, after: int, **more: Any) -> None:
    await socket.send(json.dumps({"after": after, **more}))


def rows(pages: list[Page]) -> list[int]:
    """The seqs of the rows in the order in which they came (each message holds its newest first)."""
    return [int(str(row["data-seq"])) for seen in pages for row in reversed(seen.all(".event"))]


async def until_row(socket: Socket, seq: int) -> list[Page]:
    """Every message with rows, up to the one that has this event."""
    found: list[Page] = []
    while not found or found[-1].one("#trace-seq")["data-seq"] != str(seq):
        found.append(await socket.until(".event"))
    return found


def test_rows_after_the_hello_are_replayed_then_followed(desk: Desk) -> None:
    task = finished_task(desk)
    other = desk.task()

    async def test() -> None:
        async with Socket(f"/ws/tasks/{task.pk}/", desk.viewer) as socket:
            await hello(socket, task.last_seq - 5)
            replayed = await socket.until(".event")
            assert rows([replayed]) == list(range(task.last_seq - 4, task.last_seq + 1))
            assert replayed.one("#trace-seq")["data-seq"] == str(task.last_seq)
        async with Socket(f"/ws/tasks/{other.pk}/", desk.viewer) as socket:
            await hello(socket, other.last_seq)
            await sync_to_async(send_message)(other.pk, text="Hello!", actor=desk.owner)
            followed = await socket.until(".event")
            assert rows([followed]) == [other.last_seq + 1]
            assert "Hello!" in followed.text(".event")

    run(test())


def test_no_gap_and_no_double_while_writers_and_a_reconnect_race(desk: Desk) -> None:
    task = desk.task()

    def write(count: int) -> None:
        for number in range(count):
            send_message(task.pk, text=f"message {number}", actor=desk.owner)

    async def test() -> None:
        seen: list[Page] = []
        writer = threading.Thread(target=write, args=(60,))
        newest = 0
        writer.start()
        for _ in range(3):
            async with Socket(f"/ws/tasks/{task.pk}/", desk.viewer) as socket:
                await hello(socket, newest)
                got = await socket.seen_within(0.6)
                seen += got
                newest = max([newest, *rows(got)])
        writer.join()
        async with Socket(f"/ws/tasks/{task.pk}/", desk.viewer) as socket:
            await hello(socket, newest)
            last = (await Task.objects.aget(pk=task.pk)).last_seq
            if newest < last:
                seen += await until_row(socket, last)
        assert last > 60
        assert rows(seen) == list(range(1, last + 1))

    run(test())


def test_a_page_far_behind_is_told_to_load_anew(desk: Desk) -> None:
    task = with_many_events(desk.task(), 700)

    async def test() -> None:
        async with Socket(f"/ws/tasks/{task.pk}/", desk.viewer) as socket:
            await hello(socket, 1)
            told = await socket.until("#trace-behind button")
            told.none(".event")
            assert told.one("#trace-seq")["data-seq"] == str(task.last_seq)
        async with Socket(f"/ws/tasks/{task.pk}/", desk.viewer) as socket:
            await hello(socket, task.last_seq - 300)
            got = await until_row(socket, task.last_seq)
            assert rows(got) == list(range(task.last_seq - 299, task.last_seq + 1)), "in batches, in order"

    run(test())


def test_a_filter_of_the_page_holds_for_its_socket(desk: Desk) -> None:
    task = finished_task(desk)

    async def test() -> None:
        async with Socket(f"/ws/tasks/{task.pk}/", desk.viewer) as socket:
            await hello(socket, 0, group="checkpoints")
            got = await socket.until(".event")
            assert {row["class"][1] for row in got.all(".event")} == {"event-checkpoints"}
        async with Socket(f"/ws/tasks/{task.pk}/", desk.viewer) as socket:
            await hello(socket, 0, rows=False)
            (await socket.until("#task-header")).none(".event")

    run(test())


def test_the_head_and_the_open_panel_follow(desk: Desk) -> None:
    task = desk.task()

    async def test() -> None:
        async with Socket(f"/ws/tasks/{task.pk}/", desk.operator) as socket:
            await hello(socket, task.last_seq, panel="scratchpad")
            first = await socket.until("#task-header")
            assert first.text("#task-status") == "paused"
            await sync_to_async(write_note)(task.pk, section="plan", text="be brief", actor=desk.owner)
            seen = await socket.until("#scratchpad .note")
            assert seen.one("#scratchpad")["hx-swap-oob"] == "true"
            await sync_to_async(resume_task)(task.pk, actor=desk.owner)
            seen = await socket.until("#task-header")
            assert seen.text("#task-status") == "queued"
            seen.one("#control-pause")

    run(test())


def test_a_question_appears_and_is_closed_in_place(desk: Desk) -> None:
    task = desk.task(hold=False)

    async def test() -> None:
        async with Socket(f"/ws/tasks/{task.pk}/", desk.operator) as socket:
            await hello(socket, task.last_seq)
            await sync_to_async(work)(task)
            asked = await socket.until(".escalation")
            assert asked.one("section[hx-swap-oob]")["hx-swap-oob"] == "beforeend:#task-escalations"
            pk = int(str(asked.one(".escalation")["id"]).rsplit("-", 1)[1])
            await sync_to_async(send_message)(task.pk, text="and?", actor=desk.owner)
            (await socket.until(".event")).none(".escalation")
            answer = sync_to_async(answer_escalation)
            await answer(pk, decision=Decision.REJECT, words="not today", actor=desk.operator)
            closed = await socket.until(".escalation")
            assert closed.one(".escalation")["hx-swap-oob"] == "true"
            assert "not today" in closed.text(".escalation blockquote")

    run(test())


def test_streaming_text_is_shown_for_a_running_call_only(desk: Desk) -> None:
    task = finished_task(desk)
    call = task.model_calls.first()

    async def test() -> None:
        async with Socket(f"/ws/tasks/{task.pk}/", desk.viewer) as socket:
            await hello(socket, task.last_seq)
            await socket.until("#task-header")
            await sync_to_async(live.text_delta)(task.pk, call.pk, "late words")
            assert not [seen for seen in await socket.seen_within(0.5) if "late words" in seen.soup.get_text()]
        await task.model_calls.filter(pk=call.pk).aupdate(status="running")
        async with Socket(f"/ws/tasks/{task.pk}/", desk.viewer) as socket:
            await hello(socket, task.last_seq)
            assert "is replying" in (await socket.until("#latest .latest-call")).text("#latest")
            await sync_to_async(live.text_delta)(task.pk, call.pk, "so far <b>so good</b>")
            while True:
                seen = await socket.until("#latest .latest-call")
                if seen.text("#latest pre"):
                    break
            assert seen.text("#latest pre") == "so far <b>so good</b>"

    run(test())


def test_only_members_from_our_own_pages(desk: Desk) -> None:
    task = desk.task()

    async def test() -> None:
        async with Socket(f"/ws/tasks/{task.pk}/", desk.outsider) as socket:
            assert await socket.message() is None
            assert socket.code == 4404
        async with Socket("/ws/tasks/999999999/", desk.outsider) as socket:
            assert await socket.message() is None
            assert socket.code == 4404, "what is not there and what is not yours look the same"
        async with Socket(f"/ws/tasks/{task.pk}/") as socket:
            assert await socket.message() is None
            assert socket.code == 4401
        async with Socket(f"/ws/tasks/{task.pk}/", desk.owner, origin="http://evil.example") as socket:
            assert socket.code is not None, "refused in the handshake"

    run(test())


def test_a_role_taken_away_ends_the_socket_at_the_next_event(desk: Desk) -> None:
    task = desk.task()

    async def test() -> None:
        async with Socket(f"/ws/tasks/{task.pk}/", desk.viewer) as socket:
            await hello(socket, task.last_seq)
            await socket.until("#task-header")
            await sync_to_async(set_member)(desk.workspace, user=desk.viewer, role=None, actor=desk.owner)
            await sync_to_async(send_message)(task.pk, text="secret", actor=desk.owner)
            assert await socket.message() is None
            assert socket.code == 4404
        async with Socket(f"/ws/tasks/{task.pk}/", desk.operator) as socket:
            await hello(socket, task.last_seq + 1)
            await socket.until("#task-header")
            await Session.objects.all().adelete()
            await sync_to_async(send_message)(task.pk, text="secret", actor=desk.owner)
            assert await socket.message() is None
            assert socket.code == 4401

    run(test())


@pytest.mark.parametrize(
    "noise",
    [
        "",
        "{",
        "[]",
        "1",
        '{"after": "x"}',
        '{"after": null}',
        '{"after": 1e999}',
        '{"escalations": 3, "after": 1}',
        '{"escalations": [1e999], "after": 1}',
    ],
)
def test_noise_from_a_page_changes_nothing(desk: Desk, noise: str) -> None:
    task = desk.task()

    async def test() -> None:
        async with Socket(f"/ws/tasks/{task.pk}/", desk.viewer) as socket:
            await socket.send(noise)
            await hello(socket, 0)
            assert rows([await socket.until(".event")]) == list(range(1, task.last_seq + 1))

    run(test())
