"""The sockets of the fleet and the inbox, over the real channel layer."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from asgiref.sync import sync_to_async

from tests.web.people import Desk
from tests.web.sockets import Socket
from workspaces.actions.escalations import answer_escalation
from workspaces.actions.tasks import resume_task
from workspaces.actions.workspaces import set_member
from workspaces.domain.escalations import Decision
from workspaces.models import User
from workspaces.web.consumers import lists
from workspaces.web.consumers.fleet import FleetConsumer
from workspaces.web.consumers.inbox import InboxConsumer
from workspaces.web.consumers.task import TaskConsumer
from workspaces.web.consumers.terminal import TerminalConsumer
from workspaces.web.consumers.watcher import Watcher

pytestmark = pytest.mark.django_db(transaction=True)


async def show(socket: Socket, *rows: int) -> None:
    """As the page does when its socket opens."""
    await socket.send(json.dumps({"rows": rows}))


def run(test: Any) -> None:
    asyncio.run(test)


def test_a_row_is_replaced_when_its_task_changes(desk: Desk) -> None:
    task = desk.task()

    async def test() -> None:
        async with Socket("/ws/fleet/", desk.viewer) as connection:
            await show(connection, task.pk)
            first = await connection.until(f"#task-row-{task.pk}")
            assert "paused" in first.text(f"#task-row-{task.pk} .fleet-state")
            await sync_to_async(resume_task)(task.pk, actor=desk.owner)
            seen = await connection.until(f"#task-row-{task.pk}")
            assert "queued" in seen.text(f"#task-row-{task.pk} .fleet-state")
            assert seen.one(f"#task-row-{task.pk}")["hx-swap-oob"] == "true"

    run(test())


def test_a_new_task_is_offered_and_does_not_push_rows_away(desk: Desk) -> None:
    async def test() -> None:
        async with Socket("/ws/fleet/", desk.viewer) as connection:
            await show(connection)
            task = await sync_to_async(desk.task)()
            seen = await connection.until("#fleet-new button")
            assert seen.text("#fleet-new") == "Show 1 new task"
            seen.none(f"#task-row-{task.pk}")

    run(test())


def test_an_outsider_who_asks_for_a_row_gets_none(desk: Desk) -> None:
    task = desk.task()

    async def test() -> None:
        async with Socket("/ws/fleet/", desk.outsider) as connection:
            await show(connection, task.pk)
            await sync_to_async(resume_task)(task.pk, actor=desk.owner)
            assert not any(seen.all(f"#task-row-{task.pk}") for seen in await connection.seen_within(1.5))

    run(test())


def test_who_is_taken_out_of_the_workspace_gets_nothing_more(desk: Desk) -> None:
    task = desk.task()

    async def test() -> None:
        async with Socket("/ws/fleet/", desk.viewer) as connection:
            await show(connection, task.pk)
            await connection.until(f"#task-row-{task.pk}")
            await sync_to_async(set_member)(desk.workspace, user=desk.viewer, role=None, actor=desk.owner)
            await sync_to_async(resume_task)(task.pk, actor=desk.owner)
            assert not any(seen.all(f"#task-row-{task.pk}") for seen in await connection.seen_within(1.5))

    run(test())


def test_who_is_deactivated_is_disconnected(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lists, "CHECK_EVERY_S", 0.2)

    async def test() -> None:
        async with Socket("/ws/fleet/", desk.viewer) as connection:
            await show(connection)
            await User.objects.filter(pk=desk.viewer.pk).aupdate(is_active=False)
            while await connection.message() is not None:
                pass
            assert connection.code == lists.NOT_SIGNED_IN

    run(test())


@pytest.mark.parametrize("path", ["/ws/fleet/", "/ws/inbox/"])
def test_another_origin_and_a_stranger_are_refused(desk: Desk, path: str) -> None:
    async def test() -> None:
        for origin in ("https://evil.example", "http://localhost:8080", "null", "http://localhost.evil.example", ""):
            async with Socket(path, desk.owner, origin=origin) as foreign:
                assert foreign.code is not None, origin
        async with Socket(path) as stranger:
            assert stranger.code is not None

    run(test())


def test_a_socket_that_is_not_there_is_refused(desk: Desk) -> None:
    async def test() -> None:
        async with Socket("/ws/nowhere/", desk.owner) as nowhere:
            assert nowhere.code is not None

    run(test())


@pytest.mark.parametrize(
    "sent", ["{", "[]", '{"rows": "x"}', '{"rows": [null]}', '{"rows": 5}', '{"rows": [1e999]}', "\u0000"]
)
def test_nonsense_from_a_page_is_ignored(desk: Desk, sent: str) -> None:
    task = desk.task()

    async def test() -> None:
        async with Socket("/ws/fleet/", desk.viewer) as connection:
            await show(connection, task.pk)
            await connection.until(f"#task-row-{task.pk}")
            await connection.send(sent)
            await sync_to_async(resume_task)(task.pk, actor=desk.owner)
            await connection.until(f"#task-row-{task.pk}")

    run(test())


def test_a_card_is_replaced_when_another_operator_answers(desk: Desk) -> None:
    escalation = desk.held_call()

    async def test() -> None:
        async with Socket("/ws/inbox/", desk.owner) as connection:
            await show(connection, escalation.pk)
            await sync_to_async(answer_escalation)(escalation.pk, decision=Decision.APPROVE, actor=desk.operator)
            seen = await connection.until(f"#escalation-{escalation.pk}")
            assert str(desk.operator) in seen.text(".answered")
            assert seen.text("#open-count") == "0 open"

    run(test())


def test_a_new_question_is_offered(desk: Desk) -> None:
    async def test() -> None:
        async with Socket("/ws/inbox/", desk.viewer) as connection:
            await show(connection)
            await sync_to_async(desk.held_call)()
            seen = await connection.until("#inbox-new button")
            assert seen.text("#inbox-new") == "Show 1 new question"

    run(test())


def test_a_page_that_is_left_while_something_is_told_is_no_failure() -> None:
    class Gone(Watcher):
        async def base_send(self, message: Any) -> None:
            raise OSError("the client has disconnected")

    async def test() -> None:
        watcher = Gone()
        await watcher.send(text_data="news")
        await watcher.close(code=1011)

    asyncio.run(test())
    assert all(issubclass(each, Watcher) for each in (TaskConsumer, FleetConsumer, InboxConsumer, TerminalConsumer))
