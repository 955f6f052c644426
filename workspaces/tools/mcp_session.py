"""One session with a server of the Model Context Protocol: opened for a list or a call, bounded, and closed after it.

The official SDK speaks the protocol; what is here holds its ends. A server over stdio runs in the sandbox, never on
this machine; one over HTTP is reached by the guarded client. Nothing a server asks for itself (sampling, input, roots)
is given. A session is short on purpose: what was listed in it is what is called in it, and nothing is left running.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
import anyio.to_thread
import httpx2

from workspaces.domain.mcp import MOST_TOOLS, McpServer
from workspaces.domain.text import clip, decode_output
from workspaces.sandboxes.base import Sandbox, SandboxError, StdioProcess
from workspaces.wire.driving import CallInterrupted, DeadlinePassed, drive
from workspaces.wire.guarded import Guard, Wire, guarded_client

if TYPE_CHECKING:  # costs half a second: only who has such a server pays it
    from mcp import Client
    from mcp_types import CallToolResult

MOST_BYTES = 32 * 1024 * 1024  # of all that a server says in one session
MOST_LINE_BYTES = 16 * 1024 * 1024
MOST_PAGES = 50
MOST_LISTED = 2_000
VERSION = "1"
KEY_META = "agentdesk/idempotency-key"

T = TypeVar("T")


class SessionFailed(Exception):
    """The server did not do what was asked. `asked`: the call itself had gone out, so it may have been done.

    `answered`: it was, with an error.
    """

    def __init__(self, why: str, *, asked: bool = False, answered: bool = False, timed_out: bool = False) -> None:
        super().__init__(why)
        self.asked = asked
        self.answered = answered
        self.timed_out = timed_out


@dataclass(slots=True)
class _State:
    """How far a session has come; kept outside of it for when it breaks off."""

    wire: Wire
    process: StdioProcess | None = None
    calling: bool = False
    too_much: str = ""


class Session:
    """What can be asked within one."""

    def __init__(self, client: Client, state: _State, server: McpServer) -> None:
        self._client = client
        self._state = state
        self._server = server

    async def tools(self) -> list[dict[str, Any]]:
        """Every tool as the server says it. Raises SessionFailed when there is no end to them."""
        found: list[dict[str, Any]] = []
        cursor: str | None = None
        seen: set[str] = set()
        for _ in range(MOST_PAGES):
            page = await self._client.list_tools(cursor=cursor)
            found += [tool.model_dump(by_alias=True, mode="json", exclude_none=True) for tool in page.tools]
            if len(found) > MOST_LISTED:
                break
            cursor = page.next_cursor
            if cursor is None or cursor in seen:
                wanted = sum(self._server.lets_through(str(tool["name"])) for tool in found)
                if wanted > MOST_TOOLS:
                    raise SessionFailed(f"it offers {wanted} tools: name those that are wanted, at most {MOST_TOOLS}")
                return found
            seen.add(cursor)
        raise SessionFailed(f"it offers more than {MOST_LISTED} tools, or pages without end")

    async def call(self, tool: str, arguments: Mapping[str, Any], key: str) -> CallToolResult:
        from mcp_types import CallToolRequest, CallToolRequestParams, CallToolResult

        self._state.wire.sent = False
        self._state.calling = True
        meta: Any = {KEY_META: key}
        params = CallToolRequestParams(name=tool, arguments=dict(arguments), _meta=meta)
        # not the client's own `call_tool`: that one applies the server's patterns to the answer, without a limit
        return await self._client.session.send_request(CallToolRequest(params=params), CallToolResult)


def with_session(
    server: McpServer,
    work: Callable[[Session], Coroutine[Any, Any, T]],
    *,
    private: Sequence[str] = (),
    sandbox: Sandbox | None = None,
    key: str = "",
    interrupt: threading.Event | None = None,
    timeout_s: float | None = None,
) -> T:
    """Open a session, do `work`, close it. Raises SessionFailed, CallInterrupted, SandboxError."""
    state = _State(Wire())
    limit_s = timeout_s or server.timeout_s
    if server.transport == "stdio":
        assert sandbox is not None
        state.process = sandbox.open_stdio(server.command, key=key, env=server.env)
    failed: SessionFailed
    try:
        return drive(lambda: _work(server, work, state, private, limit_s), timeout_s=limit_s, interrupt=interrupt)
    except DeadlinePassed:
        failed = _failed(state, f"no answer came within {limit_s:g} s", timed_out=True)
    except SessionFailed as error:
        failed = error
    except (CallInterrupted, SandboxError):
        raise
    except BaseExceptionGroup as group:
        failed = _from(_first(group), state)
    except Exception as error:  # noqa: BLE001 - whatever a library makes of what a server sends
        failed = _from(error, state)
    finally:
        if state.process is not None:
            state.process.close()
    raise failed from None


async def _work(
    server: McpServer,
    work: Callable[[Session], Coroutine[Any, Any, T]],
    state: _State,
    private: Sequence[str],
    limit_s: float,
) -> T:
    from mcp import Client
    from mcp_types import Implementation

    async with _transport(server, state, private, limit_s) as transport:
        client = Client(
            transport,
            cache=None,
            read_timeout_seconds=limit_s,
            client_info=Implementation(name="agentdesk", version=VERSION),
        )
        async with client:
            return await work(Session(client, state, server))


@contextlib.asynccontextmanager
async def _transport(server: McpServer, state: _State, private: Sequence[str], limit_s: float) -> AsyncIterator[Any]:
    if state.process is not None:
        yield _over_stdio(state.process, state)
        return
    from mcp.client.streamable_http import streamable_http_client

    guard = Guard(server.allow, private)
    async with guarded_client(guard, state.wire, read_s=limit_s, limit_bytes=MOST_BYTES) as client:
        client.headers.update(dict(server.headers))
        client.headers["accept-encoding"] = "identity"
        yield streamable_http_client(server.url, http_client=client)


@contextlib.asynccontextmanager
async def _over_stdio(process: StdioProcess, state: _State) -> AsyncIterator[Any]:
    """The SDK's two streams over a program's input and output: one JSON-RPC message a line."""
    from mcp.shared.message import SessionMessage

    to_session, from_server = anyio.create_memory_object_stream[Any](0)
    to_server, from_session = anyio.create_memory_object_stream[Any](0)

    async def read() -> None:
        buffer, total = b"", 0
        async with to_session:
            while chunk := await anyio.to_thread.run_sync(process.read, abandon_on_cancel=True):
                total += len(chunk)
                *lines, buffer = (buffer + chunk).split(b"\n")
                if total > MOST_BYTES or len(buffer) > MOST_LINE_BYTES:
                    state.too_much = "the answer is larger than the limit"
                    return
                for line in lines:
                    if line.strip():
                        await to_session.send(_message(line))

    async def write() -> None:
        async with from_session:
            async for said in from_session:
                assert isinstance(said, SessionMessage)
                line = said.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
                state.wire.sent = True
                try:
                    await anyio.to_thread.run_sync(process.write, line, abandon_on_cancel=True)
                except OSError:
                    await to_session.aclose()  # the session is told that nothing follows
                    return

    async with anyio.create_task_group() as group:
        group.start_soon(read)
        group.start_soon(write)
        try:
            yield from_server, to_server
        finally:
            group.cancel_scope.cancel()
            for stream in (from_server, to_server, to_session, from_session):
                stream.close()


def _message(line: bytes) -> Any:
    from mcp.shared.message import SessionMessage
    from mcp_types import jsonrpc_message_adapter

    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError as error:  # what is no message is told to the session, which goes on
        return error


def _first(group: BaseExceptionGroup[Any]) -> BaseException:
    found: BaseException = group
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found


def _from(error: BaseException, state: _State) -> SessionFailed:
    from mcp import MCPError
    from mcp_types import CONNECTION_CLOSED, REQUEST_TIMEOUT
    from pydantic import ValidationError

    if isinstance(error, SessionFailed):
        return error
    if isinstance(error, MCPError):
        if error.code == REQUEST_TIMEOUT:
            return _failed(state, "no answer came in time", timed_out=True)
        if error.code == CONNECTION_CLOSED:
            return _failed(state, "the connection ended before an answer came")
        lost = state.wire.status >= 500 or bool(state.wire.refused or state.too_much)
        why = f"{clip(error.message, 2_000)} (code {error.code})"
        if state.wire.status >= 400:
            why += f", HTTP {state.wire.status}"
        return _failed(state, why, answered=not lost)
    if isinstance(error, ValidationError):
        return _failed(state, f"its answer is none of the protocol's ({error.error_count()} faults in it)")
    if isinstance(error, httpx2.HTTPError):
        return _failed(state, str(error) or type(error).__name__)
    return _failed(state, f"{type(error).__name__}: {clip(str(error), 500)}")


def _failed(state: _State, why: str, *, answered: bool = False, timed_out: bool = False) -> SessionFailed:
    why = state.wire.refused or state.too_much or why
    if state.process is not None:
        said = decode_output(state.process.errors()).strip()
        why += f"; its standard error ends: {clip(said[-1_000:], 1_000)}" if said else ""
    asked = state.calling and state.wire.sent
    return SessionFailed(why, asked=asked and not answered, answered=answered, timed_out=timed_out)
