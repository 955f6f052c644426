"""Anthropic Messages with tools, streamed, on Anthropic's SDK with its retries switched off.

Nothing is taken from the process's environment: a call uses the key of its config and no other. Redirects are
not followed, so that a key stays where it was sent.

Options (all optional):
- `prompt_caching` (default true): marks the system prompt and the end of the conversation as cacheable.
- `auth_header`: "x-api-key" for servers that want the key there; default is `Authorization: Bearer`.
- `tool_choice`: sent as it is when there are tools, e.g. {"type": "any"}.
- `headers`: more request headers; `extra_body`: more fields of the request's body.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import anthropic
import httpx2

from workspaces.domain import rate_headers
from workspaces.domain.text import clean_text
from workspaces.providers import faults, limits
from workspaces.providers.asking import ask
from workspaces.providers.assembly import field_of, text_of
from workspaces.providers.base import (
    ChatMessage,
    ChatReply,
    ChatRequest,
    FinishReason,
    ProviderConfig,
    ProviderError,
    RawToolCall,
    TokenUsage,
)
from workspaces.providers.history import sendable, with_unique_ids
from workspaces.wire.driving import tls_context

DEFAULT_BASE_URL = "https://api.anthropic.com"
_CONNECT_TIMEOUT_S = 20.0
_CACHE = {"type": "ephemeral"}
_COUNTS = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
_FINISH: dict[str, FinishReason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content_filter",
}


@dataclass(slots=True)
class _Block:
    kind: str
    call_id: str = ""
    name: str = ""
    given: object = None  # a server that does not stream the input sends it whole
    pieces: list[str] = field(default_factory=list)

    def arguments(self) -> str:
        text = "".join(self.pieces)
        if text.strip():
            return text
        return json.dumps(self.given, ensure_ascii=False) if self.given else "{}"


@dataclass(slots=True)
class _Arriving:
    """The reply so far."""

    started: float = field(default_factory=time.monotonic)
    text: list[str] = field(default_factory=list)
    chars: int = 0  # of text and arguments
    blocks: dict[int, _Block] = field(default_factory=dict)
    finish: str = ""
    usage: dict[str, int] = field(default_factory=dict)
    model: str = ""
    response_id: str = ""
    first_token_s: float | None = None
    rate: rate_headers.RateHint | None = None
    events: int = 0
    ended: bool = False

    def joined(self) -> str:
        return clean_text("".join(self.text))

    def note_token(self) -> None:
        if self.first_token_s is None:
            self.first_token_s = time.monotonic() - self.started


class AnthropicProvider:
    """Thread-safe: every call has a client of its own."""

    name = "anthropic"

    def __init__(self, config: ProviderConfig) -> None:
        self._config = config
        self._base_url = config.base_url or DEFAULT_BASE_URL
        self._where = faults.address(self._base_url)
        self._secrets = faults.secrets_of(config)

    def complete(
        self,
        request: ChatRequest,
        *,
        on_text: Callable[[str], None] | None = None,
        interrupt: threading.Event | None = None,
    ) -> ChatReply:
        faults.checked_url(self._base_url)
        key = faults.checked_key(self._config, self._where)
        arriving = _Arriving()
        return ask(
            lambda: self._send(key, request, arriving, on_text),
            read=lambda: self._reply(arriving, request),
            explain=self._error,
            vendor_error=anthropic.AnthropicError,
            where=self._where,
            timeout_s=self._config.timeout_s,
            interrupt=interrupt,
            partial=arriving.joined,
        )

    async def _send(
        self, key: str, request: ChatRequest, arriving: _Arriving, on_text: Callable[[str], None] | None
    ) -> None:
        http = anthropic.DefaultAsyncHttpxClient(
            verify=tls_context(), follow_redirects=False, event_hooks=limits.counted(self._where)
        )
        timeout = httpx2.Timeout(self._config.timeout_s, connect=min(_CONNECT_TIMEOUT_S, self._config.timeout_s))
        async with anthropic.AsyncAnthropic(
            api_key=key or "none",
            base_url=self._base_url,
            max_retries=0,
            timeout=timeout,
            http_client=http,
            default_headers=self._headers(key),
        ) as client:
            create = cast(Any, client.messages.create)  # the body is checked by the server, not by overloads
            stream = await create(**self._body(request))
            async with stream:
                arriving.rate = rate_headers.read(stream.response.headers)
                kind = stream.response.headers.get("content-type", "").lower()
                if "json" in kind and "event-stream" not in kind:  # the server does not stream: one whole reply
                    self._take_whole(json.loads(await stream.response.aread()), arriving, on_text)
                    return
                async for event in stream:
                    _take(event, arriving, on_text)
                    limits.check_size(self._where, arriving.chars, len(arriving.blocks))

    def _headers(self, key: str) -> dict[str, Any]:
        given = self._config.options.get("headers")
        headers: dict[str, Any] = {str(k): str(v) for k, v in given.items()} if isinstance(given, Mapping) else {}
        if self._config.options.get("auth_header") == "x-api-key":
            headers |= {"X-Api-Key": key or "none", "Authorization": anthropic.Omit()}
        return headers | limits.UNPACKED

    def _body(self, request: ChatRequest) -> dict[str, Any]:
        options = self._config.options
        system, messages = _conversation(request.messages)
        body: dict[str, Any] = {
            "model": request.model,
            "max_tokens": request.max_output_tokens,
            "messages": messages,
            "stream": True,
        }
        caching = bool(options.get("prompt_caching", True))
        if system:
            block: dict[str, Any] = {"type": "text", "text": system}
            body["system"] = [block | {"cache_control": _CACHE} if caching else block]
        if caching and messages:
            messages[-1]["content"][-1]["cache_control"] = _CACHE
        if request.tools:
            body["tools"] = [
                {"name": tool.name, "description": tool.description, "input_schema": dict(tool.parameters)}
                for tool in request.tools
            ]
            if options.get("tool_choice"):
                body["tool_choice"] = options["tool_choice"]
        # The SDK's 2.x has no temperature argument; models that still take one read it from the body.
        extra: dict[str, Any] = {} if request.temperature is None else {"temperature": request.temperature}
        if isinstance(options.get("extra_body"), Mapping):
            extra |= options["extra_body"]
        if extra:
            body["extra_body"] = extra
        return body

    def _take_whole(self, whole: object, arriving: _Arriving, on_text: Callable[[str], None] | None) -> None:
        if field_of(whole, "type") == "error" or (isinstance(whole, dict) and whole.get("error")):
            raise faults.refusal(self._where, status=None, body=whole, secrets=self._secrets)
        content = field_of(whole, "content")
        if not isinstance(content, list):
            return
        _take({"type": "message_start", "message": whole}, arriving, on_text)
        for at, block in enumerate(content):
            _take({"type": "content_block_start", "index": at, "content_block": block}, arriving, on_text)
        _take({"type": "message_delta", "delta": whole}, arriving, on_text)
        _take({"type": "message_stop"}, arriving, on_text)

    def _reply(self, arriving: _Arriving, request: ChatRequest) -> ChatReply:
        if not arriving.events:
            raise faults.unreadable(self._where, "it holds no message; is the base URL an Anthropic-compatible one?")
        if not (arriving.ended and arriving.finish):
            raise faults.unreachable(self._where, EOFError())
        calls = with_unique_ids(
            RawToolCall(clean_text(block.call_id), clean_text(block.name), clean_text(block.arguments()))
            for _, block in sorted(arriving.blocks.items())
            if block.kind == "tool_use"
        )
        chars = arriving.chars + sum(len(call.arguments) for call in calls)
        limits.check_size(self._where, chars, len(arriving.blocks))
        finish: FinishReason = _FINISH.get(arriving.finish, "other")
        return ChatReply(
            text=arriving.joined(),
            tool_calls=calls,
            finish_reason="tool_calls" if calls and finish == "stop" else finish,
            usage=_usage(arriving.usage),
            model=arriving.model or request.model,
            response_id=arriving.response_id,
            latency_s=time.monotonic() - arriving.started,
            first_token_s=arriving.first_token_s,
            rate=arriving.rate,
        )

    def _error(self, error: BaseException) -> ProviderError:
        if isinstance(error, anthropic.APIStatusError):
            return faults.refusal(
                self._where,
                status=error.status_code,
                body=error.body,
                headers=error.response.headers,
                secrets=self._secrets,
            )
        if isinstance(error, anthropic.APITimeoutError | httpx2.TimeoutException):
            if "ConnectTimeout" in repr(error.__cause__):
                return faults.unreachable(self._where, error)
            return faults.too_slow(self._where, self._config.timeout_s)
        if isinstance(error, anthropic.APIResponseValidationError):
            return faults.unreadable(self._where, "not what the API promises")
        return faults.unreachable(self._where, error)


def _conversation(messages: tuple[ChatMessage, ...]) -> tuple[str, list[dict[str, Any]]]:
    """The system prompt, and turns that alternate. A later system message becomes text of the user's turn."""
    ready = sendable(messages)
    lead = next((at for at, message in enumerate(ready) if message.role != "system"), len(ready))
    system = "\n\n".join(message.content for message in ready[:lead] if message.content.strip())
    turns: list[dict[str, Any]] = []
    for message in ready[lead:]:
        role = "assistant" if message.role == "assistant" else "user"
        blocks = _blocks(message)
        if not blocks:
            continue
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] += blocks
        else:
            turns.append({"role": role, "content": blocks})
    if not turns or turns[0]["role"] != "user":
        turns.insert(0, {"role": "user", "content": [{"type": "text", "text": "Begin."}]})
    return system, turns


def _blocks(message: ChatMessage) -> list[dict[str, Any]]:
    """The API refuses blank text blocks, so they are left out."""
    if message.role == "tool":
        result: dict[str, Any] = {"type": "tool_result", "tool_use_id": message.tool_call_id}
        if message.content.strip():
            result["content"] = [{"type": "text", "text": message.content}]
        return [result]
    blocks: list[dict[str, Any]] = []
    if message.content.strip():
        text = f"[system] {message.content}" if message.role == "system" else message.content
        blocks.append({"type": "text", "text": text.rstrip() if message.role == "assistant" else text})
    for call in message.tool_calls:
        block = {
            "type": "tool_use",
            "id": call.call_id,
            "name": call.name,
            "input": json.loads(call.arguments),
        }
        blocks.append(block)
    return blocks


def _take(event: object, arriving: _Arriving, on_text: Callable[[str], None] | None) -> None:
    """Add one event of the stream to what has arrived."""
    kind = field_of(event, "type")
    if kind == "message_start":
        message = field_of(event, "message")
        arriving.events += 1
        arriving.model = text_of(field_of(message, "model"))
        arriving.response_id = text_of(field_of(message, "id"))
        _note_usage(field_of(message, "usage"), arriving)
    elif kind == "content_block_start":
        given = field_of(event, "content_block")
        block = _Block(
            kind=text_of(field_of(given, "type")),
            call_id=text_of(field_of(given, "id")),
            name=text_of(field_of(given, "name")),
            given=field_of(given, "input"),
        )
        arriving.blocks[faults.count(field_of(event, "index"))] = block
        if block.kind == "tool_use":
            arriving.note_token()
        _take_text(text_of(field_of(given, "text")), arriving, on_text)
    elif kind == "content_block_delta":
        delta = field_of(event, "delta")
        at = arriving.blocks.get(faults.count(field_of(event, "index")))
        if at is not None and field_of(delta, "type") == "input_json_delta":
            at.pieces.append(text_of(field_of(delta, "partial_json")))
            arriving.chars += len(at.pieces[-1])
        elif field_of(delta, "type") == "text_delta":
            _take_text(text_of(field_of(delta, "text")), arriving, on_text)
    elif kind == "message_delta":
        arriving.finish = text_of(field_of(field_of(event, "delta"), "stop_reason")) or arriving.finish
        _note_usage(field_of(event, "usage"), arriving)
    elif kind == "message_stop":
        arriving.ended = True


def _take_text(text: str, arriving: _Arriving, on_text: Callable[[str], None] | None) -> None:
    if not text:
        return
    arriving.note_token()
    arriving.text.append(text)
    arriving.chars += len(text)
    if on_text is not None:
        on_text(clean_text(text))


def _note_usage(told: object, arriving: _Arriving) -> None:
    """The counts of a stream are cumulative: of those told twice the larger one counts."""
    kept = field_of(told, "cache_creation")
    counts = {name: field_of(told, name) for name in _COUNTS} | {
        "thinking_tokens": field_of(field_of(told, "output_tokens_details"), "thinking_tokens"),
        "for_5m": field_of(kept, "ephemeral_5m_input_tokens"),
        "for_1h": field_of(kept, "ephemeral_1h_input_tokens"),
    }
    for name, value in counts.items():
        if value is not None:
            arriving.usage[name] = max(faults.count(value), arriving.usage.get(name, 0))


def _usage(told: Mapping[str, int]) -> TokenUsage | None:
    """Anthropic's counts are disjoint already: `input_tokens` excludes what the cache read or wrote."""
    if "output_tokens" not in told and "input_tokens" not in told:
        return None
    output, for_1h = told.get("output_tokens", 0), told.get("for_1h", 0)
    written = told.get("cache_creation_input_tokens", 0) or told.get("for_5m", 0) + for_1h  # some tell only the parts
    return TokenUsage(
        input_tokens=told.get("input_tokens", 0),
        output_tokens=output,
        cached_input_tokens=told.get("cache_read_input_tokens", 0),
        cache_write_tokens=written,
        reasoning_tokens=min(told.get("thinking_tokens", 0), output),
        cache_write_1h_tokens=min(for_1h, written),
    )
