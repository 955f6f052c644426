"""Tools of MCP servers: the definition that a person accepted is what the model sees and the only one that is called.

A call opens a session, looks at what the server offers in it, and goes on only if the tool is still the accepted one.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from workspaces.domain.classify import is_hollow
from workspaces.domain.effects import Effect
from workspaces.domain.hidden import Hidden
from workspaces.domain.mcp import McpServer, Offered, fingerprint, offered
from workspaces.domain.results import ResultClass
from workspaces.domain.schema import Problem
from workspaces.domain.text import clean_text, clip, read_json
from workspaces.sandboxes.base import ExecInterrupted, Sandbox, SandboxError
from workspaces.tools.base import OutcomeUnknown, ToolContext, ToolResult, ToolSpec
from workspaces.tools.mcp_session import Session, SessionFailed, with_session
from workspaces.tools.output import OUTPUTS_FOLDER, failure, file_name, refused, result
from workspaces.wire.driving import CallInterrupted

if TYPE_CHECKING:
    from mcp_types import CallToolResult

CHANGED = "mcp_changed"  # in a result's data: the tool was not called, for it is another one now
MOST_BLOCKS = 200

Watch = Callable[[McpServer, Sequence[Offered]], None]


def look(
    server: McpServer, *, private: Sequence[str] = (), sandbox: Sandbox | None = None, key: str = "", **more: Any
) -> list[Offered]:
    """What a server offers now. Raises SessionFailed, CallInterrupted, SandboxError."""

    async def listed(session: Session) -> list[Offered]:
        return offered(server, await session.tools())

    return with_session(server, listed, private=private, sandbox=sandbox, key=key, **more)


class McpTool:
    """`definition` is the accepted one. `watch` is told what the server was found to offer at a call."""

    def __init__(
        self, server: McpServer, name: str, definition: Mapping[str, Any], *, private: Sequence[str] = ()
    ) -> None:
        self.server = server
        self.definition = definition
        self.fingerprint = fingerprint(definition)
        self.watch: Watch = lambda *_: None
        self.private = private
        self.hidden = Hidden(server.secrets)
        self.spec = ToolSpec(
            name=name,
            description=str(definition.get("description") or definition.get("title") or definition["name"]),
            parameters=definition["inputSchema"],
            effect=server.effect_of(definition),
            timeout_s=server.timeout_s,
            needs_sandbox=server.transport == "stdio",
        )

    def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        told = f"{self.spec.name} on the server {self.server.name}"
        listed: list[list[Offered]] = []

        async def checked_call(session: Session) -> CallToolResult | None:
            now = offered(self.server, await session.tools())
            listed.append(now)
            mine = next((one for one in now if one.tool == self.definition["name"]), None)
            if mine is None or mine.problem or mine.fingerprint != self.fingerprint:
                return None
            return await session.call(mine.tool, arguments, context.idempotency_key or context.key)

        try:
            answer = with_session(
                self.server,
                checked_call,
                private=self.private,
                sandbox=context.sandbox,
                key=context.key,
                interrupt=context.interrupt,
            )
        except CallInterrupted:
            raise ExecInterrupted(context.key) from None
        except SandboxError as error:
            return refused(error)
        except SessionFailed as error:
            return self._failed(told, error)
        finally:
            if listed:
                self.watch(self.server, listed[0])  # it may write: not within the session's loop
        if answer is None:
            why = "the server offers another definition of it now, or none: it was not called"
            return failure(f"{told}: {why}. An operator has to look at it first.", data={CHANGED: True})
        return self._told(answer, context)

    def _failed(self, told: str, error: SessionFailed) -> ToolResult:
        """Raises OutcomeUnknown."""
        why = self.hidden.off(str(error))
        if not error.asked:
            return failure(f"{told}: {why}{'' if error.answered else '; it was not called'}")
        found = ResultClass.TIMEOUT if error.timed_out else ResultClass.ERROR
        content = failure(f"{told} was called, and then: {why}").content.replace("error", found.value, 1)
        raise OutcomeUnknown(f"{told} was called, and no answer came: {why}.", ToolResult(content, found))

    def _told(self, answer: CallToolResult, context: ToolContext) -> ToolResult:
        parts: list[str] = []
        data: dict[str, Any] = {"mcp_server": self.server.name, "definition": self.fingerprint}
        saved: list[str] = []
        for number, block in enumerate(answer.content[:MOST_BLOCKS]):
            said = block.model_dump(by_alias=True, mode="json", exclude_none=True)
            part = self._block(said, number, context, saved)
            if part:
                parts.append(part)
        if len(answer.content) > MOST_BLOCKS:
            parts.append(f"[{len(answer.content) - MOST_BLOCKS} more parts are left out]")
        text = "\n".join(parts)
        if answer.structured_content is not None:
            structured = json.dumps(answer.structured_content, ensure_ascii=False, indent=1)
            if not text or not _same(text, answer.structured_content):
                parts.append(structured)
        if saved:
            data["saved_to"] = saved
        body = self.hidden.off(clean_text("\n".join(parts)))
        found, why = ResultClass.OK, ""
        if answer.is_error:
            found, why = ResultClass.ERROR, "the server says that the tool failed"
        elif is_hollow(body):
            bare = body.strip()
            found, why = (
                ResultClass.EMPTY,
                f"the tool answered with {f'an empty value ({bare})' if bare else 'nothing'}",
            )
        return result(context, body, found, why, data, may_write=self.spec.effect.touches_disk)

    def _block(self, said: Mapping[str, Any], number: int, context: ToolContext, saved: list[str]) -> str:
        kind = said.get("type")
        if kind == "text":
            return str(said.get("text", ""))
        if kind == "resource_link":
            return f"[a link to {self._brief(said.get('uri'))} {self._brief(said.get('description', ''))}]"
        inner = said.get("resource") if kind == "resource" else said
        assert isinstance(inner, Mapping)
        if "text" in inner:
            return f"[{self._brief(inner.get('uri', ''))}]\n{inner['text']}"
        coded = inner.get("data", inner.get("blob"))
        if coded is None:
            return f"[a part of the kind {clip(str(kind), 100)}]"
        what = f"{kind} ({clip(str(inner.get('mimeType', 'unknown type')), 100)})"
        try:
            raw = self.hidden.off_bytes(base64.b64decode(coded, validate=True))
        except (binascii.Error, ValueError):
            return f"[{what} that is not in base64]"
        if self.spec.effect is Effect.NONE:  # a file would change a disk that counts as unchanged
            return f"[{what}, {len(raw)} bytes, not kept]"
        path = f"{OUTPUTS_FOLDER}/{file_name(context.key)}-{number}"
        try:
            context.sandbox.write(path, raw)
        except SandboxError as error:
            return f"[{what}, {len(raw)} bytes, could not be saved: {error}]"
        saved.append(path)
        return f"[{what}, {len(raw)} bytes, is in {path}]"

    def _brief(self, said: object) -> str:
        return clip(self.hidden.off(str(said)), 500)


class WithheldTool:
    """Stands for a tool that may not be called: the gate refuses it with the reason. The model is not shown it."""

    def __init__(self, name: str, why: str) -> None:
        self.spec = ToolSpec(
            name=name,
            description="",
            parameters={"type": "object"},
            effect=Effect.EXTERNAL,
            needs_sandbox=False,
            refuses=lambda _: [Problem("$", self.why)],
        )
        self.why = f"{name} may not be called: {why}"

    def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        """One that was let through, and is withheld since."""
        return failure(f"{self.why}; it was not called")


def _same(text: str, value: Any) -> bool:
    """Whether the text says the structured value already; servers wrap what is no object in `result`."""
    bare = value["result"] if isinstance(value, dict) and set(value) == {"result"} else value
    if text == bare:
        return True
    try:
        return read_json(text) in (value, bare)
    except ValueError:
        return False
