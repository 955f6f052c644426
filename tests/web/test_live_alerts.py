"""The sockets of the bell, the alert list and of one alert, over the real channel layer."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from asgiref.sync import sync_to_async

from tests.web.alerted import alerted, began, make_rule
from tests.web.people import Desk
from tests.web.sockets import Socket
from workspaces.actions.alerts import acknowledge_alert
from workspaces.actions.workspaces import set_member
from workspaces.domain.incidents import Severity
from workspaces.models import User
from workspaces.queries.database import database_now
from workspaces.web.consumers import lists
from workspaces.web.consumers.alerts import NOT_FOUND

pytestmark = pytest.mark.django_db(transaction=True)


def run(test: Any) -> None:
    asyncio.run(test)


async def show(socket: Socket, *rows: int) -> None:
    await socket.send(json.dumps({"rows": rows}))


def test_the_bell_tells_the_truth_at_once_and_then_what_changes(desk: Desk) -> None:
    make_rule()
    alert = alerted(desk, "a:1")

    async def test() -> None:
        async with Socket("/ws/bell/", desk.viewer) as bell:
            first = await bell.until("#bell-count", within_s=30)
            assert first.text("#bell-count") == "1 1 open alert"
            first.none("#bell-said")
            await sync_to_async(alerted)(desk, "a:2", severity=Severity.CRITICAL)
            seen = await bell.until("#bell-said", within_s=30)
            assert seen.text("#bell-count") == "!2 2 open alerts, 1 critical"
            assert seen.text("#bell-said").startswith("New alert, critical:")
            await sync_to_async(acknowledge_alert)(alert.pk, actor=desk.operator)
            taken = await bell.until("#bell-count", within_s=30)
            assert taken.text("#bell-count") == "!1 1 open alert, 1 critical"
            taken.none("#bell-said")
        async with Socket("/ws/bell/", desk.viewer) as again:
            assert (await again.until("#bell-count", within_s=30)).text("#bell-count") == "!1 1 open alert, 1 critical"

    run(test())


def test_the_bell_tells_others_nothing(desk: Desk) -> None:
    make_rule()

    async def test() -> None:
        async with Socket("/ws/bell/", desk.outsider) as bell:
            await bell.until("#bell-count", within_s=30)
            await sync_to_async(alerted)(desk, "a:1")
            assert await bell.seen_within(2.0) == []
        async with Socket("/ws/bell/") as stranger:
            assert stranger.code is not None

    run(test())


def test_who_leaves_the_workspace_or_is_deactivated_is_told_no_more(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_rule()
    monkeypatch.setattr(lists, "CHECK_EVERY_S", 0.2)

    async def test() -> None:
        async with Socket("/ws/bell/", desk.viewer) as bell:
            await bell.until("#bell-count", within_s=30)
            await sync_to_async(set_member)(desk.workspace, user=desk.viewer, role=None, actor=desk.owner)
            await sync_to_async(alerted)(desk, "a:1")
            assert await bell.seen_within(2.0) == []
            await User.objects.filter(pk=desk.viewer.pk).aupdate(is_active=False)
            while await bell.message(timeout_s=30) is not None:
                pass
            assert bell.code == lists.NOT_SIGNED_IN

    run(test())


def test_a_row_is_replaced_where_it_stands_and_a_new_alert_is_offered(desk: Desk) -> None:
    make_rule()
    alert = alerted(desk, "a:1")
    made = database_now().timestamp()

    async def test() -> None:
        async with Socket(f"/ws/alerts/?severity=warning&made={made:.6f}", desk.viewer) as connection:
            await show(connection, alert.pk)
            await connection.until("#alerts-new", within_s=30)
            await sync_to_async(acknowledge_alert)(alert.pk, actor=desk.operator)
            seen = await connection.until(f"#alert-row-{alert.pk}", within_s=30)
            while "acknowledged" not in seen.text(".alert-state"):
                seen = await connection.until(f"#alert-row-{alert.pk}", within_s=30)
            assert seen.one(f"#alert-row-{alert.pk}")["hx-swap-oob"] == "true"
            mild = await sync_to_async(alerted)(desk, "a:2", severity=Severity.INFO)
            new = await sync_to_async(alerted)(desk, "a:3")
            seen = await connection.until("#alerts-new button", within_s=30)
            assert seen.text("#alerts-new") == "Show 1 new alert"
            assert seen.one("#alerts-new button")["hx-get"] == "/alerts/?severity=warning"
            for each in (mild, new):
                seen.none(f"#alert-row-{each.pk}")
            while not (seen.all("#alert-states") and "Open 1 Acknowledged 1" in seen.text("#alert-states")):
                seen = await connection.until("#alert-states", within_s=30)

    run(test())


def test_an_outsider_who_asks_for_a_row_or_a_page_gets_none(desk: Desk) -> None:
    make_rule()
    alert = alerted(desk, "a:1")

    async def test() -> None:
        async with Socket("/ws/alerts/", desk.outsider) as connection:
            await show(connection, alert.pk)
            await sync_to_async(acknowledge_alert)(alert.pk, actor=desk.operator)
            assert not any(seen.all(f"#alert-row-{alert.pk}") for seen in await connection.seen_within(2.0))
        async with Socket(f"/ws/alerts/{alert.pk}/", desk.outsider) as refused:
            while await refused.message(timeout_s=30) is not None:
                pass
            assert refused.code == NOT_FOUND

    run(test())


def test_the_page_follows_its_alert(desk: Desk) -> None:
    make_rule(group_by="workspace")
    alert = alerted(desk, "a:1")

    async def test() -> None:
        async with Socket(f"/ws/alerts/{alert.pk}/", desk.viewer) as connection:
            await connection.until("#alert-head", within_s=30)
            task = await sync_to_async(desk.task)()
            await sync_to_async(began)("a:2", task=task)
            grown = await connection.until("#alert-troubles", within_s=30)
            assert len(grown.all("#alert-troubles tbody tr")) == 2
            await sync_to_async(acknowledge_alert)(alert.pk, actor=desk.operator, reason="looking")
            seen = await connection.until("#alert-history", within_s=30)
            assert "looking" in seen.text("#alert-history")
            seen.none("#alert-troubles")  # nothing new about them: they stay as they are

    run(test())
