"""The sockets of the quota pages and of a task that waits for quota, over the real channel layer."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from asgiref.sync import sync_to_async

from tests.web.people import Desk
from tests.web.pooled import make_pool, noticed, wait_in
from tests.web.sockets import Socket
from workspaces.models import QuotaClaim, QuotaPool, Task
from workspaces.web.consumers.quota import NOT_FOUND

pytestmark = pytest.mark.django_db(transaction=True)


def run(test: Any) -> None:
    asyncio.run(test)


async def look(socket: Socket, *pools: int, **words: Any) -> None:
    await socket.send(json.dumps({"rows": pools, "visible": True, **words}))


def test_a_card_is_replaced_in_place_and_a_new_pool_is_offered(desk: Desk) -> None:
    pool = make_pool()
    wait_in(pool, desk.task())

    async def test() -> None:
        async with Socket("/ws/quota/", desk.viewer) as connection:
            await look(connection, pool.pk)
            first = await connection.until(f"#quota-pool-{pool.pk}", within_s=30)
            assert "Queue 1" in first.text(".quota-facts")
            other = await sync_to_async(make_pool)(group="other")
            await sync_to_async(wait_in)(other, await sync_to_async(desk.task)())
            await sync_to_async(wait_in)(pool, await sync_to_async(desk.task)())
            seen = await connection.until(f"#quota-pool-{pool.pk}", within_s=30)
            while "Queue 2" not in seen.text(".quota-facts"):
                seen = await connection.until(f"#quota-pool-{pool.pk}", within_s=30)
            assert seen.one(f"#quota-pool-{pool.pk}")["hx-swap-oob"] == "true"
            offered = seen if seen.all("#quota-new a") else await connection.until("#quota-new a", within_s=30)
            assert offered.text("#quota-new") == "Show 1 new pool"
            offered.none(f"#quota-pool-{other.pk}")

    run(test())


def test_a_pools_page_is_sent_only_the_parts_that_changed_and_nothing_in_the_background(desk: Desk) -> None:
    pool = make_pool()
    task = desk.task()
    wait_in(pool, task)

    async def test() -> None:
        async with Socket(f"/ws/quota/{pool.pk}/", desk.viewer) as connection:
            await look(connection, visible=False)
            assert await connection.seen_within(2.5) == []
            await look(connection)
            await connection.until("#pool-notices", within_s=30)
            await sync_to_async(noticed)(pool, "The provider refused a call.", task=task)
            seen = await connection.until("#pool-notices", within_s=30)
            assert "The provider refused a call." in seen.text("#pool-notices")
            seen.none("#pool-users")
            await look(connection, again=True)
            again = await connection.until("#pool-users", within_s=30)
            assert again.all("#pool-notices"), "what the page left out is sent again"

    run(test())


def test_who_may_not_know_of_a_pool_hears_nothing_of_it(desk: Desk) -> None:
    pool = make_pool()
    wait_in(pool, desk.task())

    async def test() -> None:
        async with Socket(f"/ws/quota/{pool.pk}/", desk.outsider) as refused:
            while await refused.message(timeout_s=30) is not None:
                pass
            assert refused.code == NOT_FOUND
        async with Socket("/ws/quota/", desk.outsider) as connection:
            await look(connection, pool.pk)
            assert not any(seen.all("[data-pool]") for seen in await connection.seen_within(2.5))

    run(test())


def _first_leaves(pool: QuotaPool) -> None:
    QuotaClaim.objects.filter(pool=pool).order_by("pk").first().delete()  # type: ignore[union-attr]


def test_a_waiting_task_follows_its_place_without_any_event_of_its_own(desk: Desk) -> None:
    pool = make_pool()
    wait_in(pool, desk.task("The first."))
    task = desk.task("The second.")
    wait_in(pool, task, task_finish=9.0)
    seq = Task.objects.get(pk=task.pk).last_seq

    async def test() -> None:
        async with Socket(f"/ws/tasks/{task.pk}/", desk.viewer) as connection:
            await connection.send(json.dumps({"after": seq}))
            seen = await connection.until("#task-quota", within_s=30)
            assert "Place 2 of 2 in gpt at example" in seen.text("#task-quota")
            assert "Before it: 1 of the same user, 0 of others" in seen.text("#task-quota")
            await sync_to_async(_first_leaves)(pool)
            while "Place 1 of 1" not in seen.text("#task-quota"):
                seen = await connection.until("#task-quota", within_s=30)
            seen.none("#task-header")

    run(test())
