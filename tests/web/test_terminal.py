"""The terminal's page and socket: for operators and owners; nothing of it exists for anybody else."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from asgiref.sync import sync_to_async

from tests.harness import add_member
from tests.web.pages import page
from tests.web.people import Desk
from tests.web.sockets import Socket
from workspaces import live
from workspaces.actions.terminal import order_command
from workspaces.actions.workspaces import set_member
from workspaces.domain.roles import Role
from workspaces.engine import terminal
from workspaces.models import AuditEntry, OperatorCommand, Workspace

pytestmark = pytest.mark.django_db(transaction=True)

HX = {"HTTP_HX_REQUEST": "true"}


def order(desk: Desk, text: str) -> OperatorCommand:
    return order_command(desk.workspace.pk, text=text, limit_s=30, actor=desk.operator)


def address(desk: Desk, more: str = "") -> str:
    return f"/workspaces/{desk.workspace.pk}/terminal/{more}"


@pytest.mark.parametrize("who", ["viewer", "outsider"])
def test_for_viewers_and_outsiders_there_is_no_terminal(desk: Desk, signed_in: Any, who: str) -> None:
    command = order(desk, "true")
    client = signed_in(getattr(desk, who))
    assert client.get(address(desk)).status_code == 404
    assert client.post(address(desk), {"command": "true", "limit_s": 30}, **HX).status_code == 404
    assert client.post(address(desk, f"{command.pk}/stop/"), **HX).status_code == 404
    assert client.get(address(desk, f"{command.pk}/output/")).status_code == 404
    assert OperatorCommand.objects.get().stopped_by is None
    shown = signed_in(desk.viewer).get(f"/workspaces/{desk.workspace.pk}/")
    page(shown).none(f"a[href='{address(desk)}']")


@pytest.mark.parametrize("who", ["operator", "owner", "staff"])
def test_operators_owners_and_staff_run_commands(desk: Desk, signed_in: Any, who: str) -> None:
    client = signed_in(getattr(desk, who))
    page(client.get(f"/workspaces/{desk.workspace.pk}/")).one(f"a[href='{address(desk)}']")
    answer = client.post(address(desk), {"command": "echo hi", "limit_s": 30}, **HX)
    assert page(answer).one("#terminal-command").get_text().strip() == "", "the box is free for the next one"
    command = OperatorCommand.objects.get()
    assert AuditEntry.objects.get(action="terminal.command").actor == getattr(desk, who)
    waiting = page(client.get(address(desk)))
    assert "ordered" in waiting.text(f"#command-{command.pk}")
    waiting.one(f"#command-{command.pk} pre[data-live]")
    terminal.run(command.pk)
    ended = page(client.get(address(desk)))
    assert "exit 0" in ended.text(f"#command-{command.pk}")
    assert ended.text(".command-output") == "hi"


def test_without_scripts_a_refused_command_stays_in_the_box(desk: Desk, signed_in: Any) -> None:
    order(desk, "sleep 1")
    client = signed_in(desk.owner)
    refused = client.post(address(desk), {"command": "echo <b>&", "limit_s": 600})
    assert refused.status_code == 409
    seen = page(refused)
    assert seen.one("#terminal-command").get_text().strip() == "echo <b>&"
    assert "still runs here" in seen.text("#terminal-box .notice-error")
    assert seen.one("#terminal-box option[selected]")["value"] == "600"
    htmx = client.post(address(desk), {"command": "echo again", "limit_s": 600}, **HX)
    assert (htmx.status_code, htmx["HX-Retarget"]) == (409, "#notice"), "the box is not touched"


def test_a_command_is_stopped_by_post_and_only_in_its_own_workspace(desk: Desk, signed_in: Any) -> None:
    command = order(desk, "sleep 100")
    client = signed_in(desk.operator)
    assert client.get(address(desk, f"{command.pk}/stop/")).status_code == 405
    elsewhere = Workspace.objects.create(name="e", owner=desk.owner, sandbox_key="e-1", driver="local")
    add_member(elsewhere, desk.operator, Role.OPERATOR)
    assert client.post(f"/workspaces/{elsewhere.pk}/terminal/{command.pk}/stop/", **HX).status_code == 404
    assert client.post(address(desk, f"{command.pk}/stop/"), **HX).status_code == 200
    terminal.run(command.pk)
    assert "did not run" in page(client.get(address(desk))).text(f"#command-{command.pk}")
    assert client.post(address(desk, f"{command.pk}/stop/"), **HX).status_code == 409


def test_output_is_text_wherever_it_is_shown(desk: Desk, signed_in: Any) -> None:
    command = order(desk, "echo '<script>alert(1)</script>'; seq 1 3000")
    terminal.run(command.pk)
    client = signed_in(desk.operator)
    seen = page(client.get(address(desk)))
    seen.none("#commands script")
    assert seen.text(".command-output").startswith("… ")
    whole = client.get(address(desk, f"{command.pk}/output/"))
    assert whole["Content-Type"].startswith("text/plain")
    assert whole.content.decode().startswith("<script>alert(1)</script>\n1\n2\n")


def test_older_commands_are_a_page_away(desk: Desk, signed_in: Any) -> None:
    OperatorCommand.objects.bulk_create(
        OperatorCommand(workspace=desk.workspace, actor=desk.owner, text=f"echo {n}", limit_s=30, status="finished")
        for n in range(40)
    )
    client = signed_in(desk.operator)
    newest = page(client.get(address(desk)))
    older = page(client.get(address(desk) + str(newest.one(".pager a")["href"])))
    shown = [tag.get_text() for seen in (newest, older) for tag in seen.all(".command-text")]
    assert shown == [f"echo {n}" for n in range(39, -1, -1)]
    older.none("main [ws-connect]")


# ---- the socket


async def hello(socket: Socket, after: int, *still_open: int) -> None:
    await socket.send(json.dumps({"after": after, "open": still_open}))


def test_the_socket_replays_then_follows_a_command_to_its_end(desk: Desk) -> None:
    first = order(desk, "echo first")

    async def test() -> None:
        async with Socket(f"/ws{address(desk)}", desk.operator) as socket:
            await hello(socket, 0)
            new = await socket.until(f"#command-{first.pk}")
            assert new.one("[hx-swap-oob='afterbegin:#commands']")
            await sync_to_async(live.command_output)(desk.workspace.pk, first.pk, "<passing>")
            passing = await socket.until(f"#command-output-{first.pk}[hx-swap-oob]")
            assert passing.text(f"#command-output-{first.pk}") == "<passing>"
            await sync_to_async(terminal.run)(first.pk)
            while "exit 0" not in (changed := await socket.until(f"#command-{first.pk}")).text(f"#command-{first.pk}"):
                pass
            assert changed.one(f"#command-{first.pk}")["hx-swap-oob"] == "true", "replaced, not doubled"
            second = await sync_to_async(order)(desk, "echo second")
            await socket.until(f"#command-{second.pk}")
        async with Socket(f"/ws{address(desk)}", desk.operator) as again:
            await sync_to_async(terminal.run)(second.pk)
            await hello(again, second.pk, second.pk)
            ended = await again.until(f"#command-{second.pk}")
            assert "second" in ended.text(".command-output"), "what ended while the page was away is told"

    asyncio.run(test())


@pytest.mark.parametrize("who", ["viewer", "outsider"])
def test_the_socket_is_closed_to_viewers_and_outsiders(desk: Desk, who: str) -> None:
    async def test() -> None:
        async with Socket(f"/ws{address(desk)}", getattr(desk, who)) as socket:
            assert await socket.message() is None
            assert socket.code == 4404

    asyncio.run(test())


def test_who_loses_the_role_gets_nothing_more(desk: Desk) -> None:
    async def test() -> None:
        async with Socket(f"/ws{address(desk)}", desk.operator) as socket:
            await hello(socket, 0)
            await socket.until("#terminal-state")
            demote = sync_to_async(set_member)
            await demote(desk.workspace, user=desk.operator, role=Role.VIEWER, actor=desk.owner)
            await sync_to_async(order_command)(desk.workspace.pk, text="true", limit_s=30, actor=desk.owner)
            assert await socket.message() is None
            assert socket.code == 4404

    asyncio.run(test())
