"""The sockets of the incident list and of one incident, over the real channel layer."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from asgiref.sync import sync_to_async

from tests.web.people import Desk
from tests.web.sockets import Socket
from tests.web.troubled import finding_of, looped, nudged, reported
from workspaces.actions.incidents import acknowledge_incident, resolve_incident
from workspaces.actions.workspaces import set_member
from workspaces.domain.incidents import Severity
from workspaces.models import Incident, Task
from workspaces.web.consumers.incidents import NOT_FOUND

pytestmark = pytest.mark.django_db(transaction=True)


def run(test: Any) -> None:
    asyncio.run(test)


async def show(socket: Socket, *rows: int) -> None:
    await socket.send(json.dumps({"rows": rows}))


def seen_at(incident: Incident) -> str:
    """The socket of its page as it is now."""
    return f"/ws/incidents/{incident.pk}/?seen={Task.objects.get(pk=incident.task_id).last_seq}"


def test_a_row_is_replaced_when_the_incident_is_acknowledged(desk: Desk) -> None:
    incident = reported(looped(desk))

    async def test() -> None:
        async with Socket("/ws/incidents/", desk.viewer) as connection:
            await show(connection, incident.pk)
            first = await connection.until(f"#incident-row-{incident.pk}", within_s=30)
            assert "open" in first.text(".incident-state")
            await sync_to_async(acknowledge_incident)(incident.pk, actor=desk.operator)
            seen = await connection.until(f"#incident-row-{incident.pk}", within_s=30)
            assert "acknowledged" in seen.text(".incident-state")
            assert seen.one(f"#incident-row-{incident.pk}")["hx-swap-oob"] == "true"

    run(test())


def test_a_new_incident_is_offered_and_does_not_push_rows_away(desk: Desk) -> None:
    task = looped(desk)

    async def test() -> None:
        async with Socket("/ws/incidents/?severity=error", desk.viewer) as connection:
            await show(connection)
            mild = await sync_to_async(reported)(task, fingerprint="1", severity=Severity.INFO)
            grave = await sync_to_async(reported)(task, fingerprint="2", severity=Severity.ERROR)
            while (seen := await connection.until("#incidents-new button", within_s=30)).text("#incidents-new") != (
                "Show 1 new incident"
            ):
                pass
            assert seen.one("#incidents-new button")["hx-get"] == "/incidents/?severity=error"
            for each in (mild, grave):
                seen.none(f"#incident-row-{each.pk}")

    run(test())


def test_an_outsider_who_asks_for_a_row_gets_none(desk: Desk) -> None:
    incident = reported(looped(desk))

    async def test() -> None:
        async with Socket("/ws/incidents/", desk.outsider) as connection:
            await show(connection, incident.pk)
            await sync_to_async(acknowledge_incident)(incident.pk, actor=desk.operator)
            assert not any(seen.all(f"#incident-row-{incident.pk}") for seen in await connection.seen_within(1.5))
        async with Socket(f"/ws/incidents/{incident.pk}/", desk.outsider) as refused:
            while await refused.message(timeout_s=30) is not None:
                pass
            assert refused.code == NOT_FOUND

    run(test())


def test_the_page_follows_its_incident_part_by_part(desk: Desk) -> None:
    task = looped(desk)
    incident = reported(task)

    async def test() -> None:
        address = await sync_to_async(seen_at)(incident)
        async with Socket(address, desk.operator) as connection:
            await show(connection)
            await sync_to_async(nudged)(incident, "Look elsewhere.")
            seen = await connection.until("#incident-answers", within_s=30)
            assert "Look elsewhere." in seen.text("#incident-answers")
            seen.none("#incident-attempts")  # nothing new about the calls: they stay as they are
            await sync_to_async(resolve_incident)(incident.pk, actor=desk.operator, reason="told it")
            closed = await connection.until("#incident-head", within_s=30)
            assert "told it" in closed.text("#incident-head")

    run(test())


def test_what_came_between_the_page_and_its_socket_is_sent_at_once(desk: Desk) -> None:
    incident = reported(looped(desk))
    address = seen_at(incident)
    nudged(incident, "Look elsewhere.")

    async def test() -> None:
        async with Socket(address, desk.viewer) as connection:
            seen = await connection.until("#incident-answers", within_s=30)
            assert "Look elsewhere." in seen.text("#incident-answers")

    run(test())


def test_an_unchanged_page_is_sent_nothing(desk: Desk) -> None:
    incident = reported(looped(desk))
    address = seen_at(incident)

    async def test() -> None:
        async with Socket(address, desk.viewer) as connection:
            await show(connection)
            assert await connection.seen_within(1.5) == []

    run(test())


def test_who_is_taken_out_of_the_workspace_gets_nothing_more(desk: Desk) -> None:
    incident = reported(looped(desk))
    address = seen_at(incident)

    async def test() -> None:
        async with Socket(address, desk.viewer) as connection:
            await show(connection)
            await sync_to_async(set_member)(desk.workspace, user=desk.viewer, role=None, actor=desk.owner)
            await sync_to_async(nudged)(incident, "A secret.")
            assert not any(seen.all("#incident-answers") for seen in await connection.seen_within(1.5))

    run(test())


def test_the_count_in_the_frame_follows_on_the_fleet(desk: Desk) -> None:
    task = looped(desk)
    assert finding_of(task)

    async def test() -> None:
        async with Socket("/ws/fleet/", desk.viewer) as connection:
            await show(connection, task.pk)
            await connection.until("#incident-count", within_s=30)
            await sync_to_async(reported)(task)
            seen = await connection.until("#incident-count", within_s=30)
            while seen.text("#incident-count") != "1 open":
                seen = await connection.until("#incident-count", within_s=30)

    run(test())
